/* What each GPU answers. */
#include "fake_nvml.h"

int known_devices[64];

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER("init", -1); return OK; }
int nvmlShutdown(void) {
  const char *path = getenv("FAKE_NVML_SHUTDOWN");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (file) fclose(file);
  return OK;
}
const char *nvmlErrorString(int code) { (void)code; return "fake"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  char value[128];
  ENTER("driver_version", -1);
  copy(setting("driver", value, sizeof value) ? value : "580.65.06", out, size);
  return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  ENTER("count", -1);
  *count = (unsigned)number("devices", 1);
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  ENTER("handle", (int)index);
  if (index >= 64) return INVALID;
  *handle = &known_devices[index];
  return OK;
}

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
} Pci;

int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
  int d = at(handle);
  ENTER("pci", d);
  memset(pci, 0, sizeof *pci);
  pci->domain = (unsigned)of(d, "domain", 0);
  pci->bus = (unsigned)of(d, "bus", 0x1b + d);
  pci->device = (unsigned)of(d, "device", 0);
  snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
  return OK;
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
  char otherwise[64];
  int d = at(handle);
  ENTER("uuid", d);
  snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-0000-0000-%012d", d);
  text(d, "uuid", otherwise, out, size);
  return OK;
}

int nvmlDeviceGetSerial(void *handle, char *out, unsigned size) {
  char otherwise[64];
  int d = at(handle);
  ENTER("serial", d);
  snprintf(otherwise, sizeof otherwise, "16500%05d", d);
  text(d, "serial", otherwise, out, size);
  return OK;
}

int nvmlDeviceGetArchitecture(void *handle, unsigned *architecture) {
  ENTER("architecture", at(handle));
  *architecture = (unsigned)of(at(handle), "architecture", 9);
  return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
  ENTER("mig", at(handle));
  *current = *pending = (unsigned)of(at(handle), "mig", 0);
  return OK;
}

int nvmlDeviceGetVbiosVersion(void *handle, char *out, unsigned size) {
  ENTER("vbios", at(handle));
  text(at(handle), "vbios", "96.00.74.00.01", out, size);
  return OK;
}

typedef struct {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int error;
  union { unsigned long long ull; unsigned ui; double d; } value;
} FieldValue;

int nvmlDeviceGetFieldValues(void *handle, int count, FieldValue *values) {
  int d = at(handle);
  ENTER("fields", d);
  for (int i = 0; i < count; i++) {
    char key[64], value[64];
    snprintf(key, sizeof key, "%d.field.%u.error", d, values[i].field);
    values[i].error = (int)number(key, 0);
    snprintf(key, sizeof key, "%d.field.%u.type", d, values[i].field);
    values[i].type = (unsigned)number(key, values[i].field == 230 ? 1 : 3);
    snprintf(key, sizeof key, "%d.field.%u.%u", d, values[i].field, values[i].scope);
    if (setting(key, value, sizeof value)) { values[i].value.ull = strtoull(value, NULL, 0); continue; }
    snprintf(key, sizeof key, "%d.field.%u", d, values[i].field);
    if (setting(key, value, sizeof value)) values[i].value.ull = strtoull(value, NULL, 0);
    else if (values[i].field == 230) values[i].value.ull = 0;
    else values[i].error = UNSUPPORTED;
  }
  return OK;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failure) {
  int d = at(handle);
  ENTER("remapped_rows", d);
  *corrected = 0;
  *uncorrected = (unsigned)of(d, "remapped", 0);
  *pending = (unsigned)of(d, "remap_pending", 0);
  *failure = (unsigned)of(d, "remap_failure", 0);
  return OK;
}

typedef struct { unsigned max, high, partial, low, none; } Banks;
int nvmlDeviceGetRowRemapperHistogram(void *handle, Banks *banks) {
  ENTER("histogram", at(handle));
  banks->max = (unsigned)of(at(handle), "banks_max", 640);
  banks->high = banks->partial = banks->low = 0;
  banks->none = (unsigned)of(at(handle), "banks_none", 0);
  return OK;
}

#define BUS(symbol, name, otherwise)                   \
  int symbol(void *handle, unsigned *value) {          \
    ENTER(name, at(handle));                           \
    *value = (unsigned)of(at(handle), name, otherwise); \
    return OK;                                         \
  }
BUS(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
BUS(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
BUS(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", 5)
BUS(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", 5)
BUS(nvmlDeviceGetModuleId, "module", 3)

int nvmlDeviceGetMemoryErrorCounter(void *handle, unsigned kind, unsigned counter, unsigned place,
                                    unsigned long long *count) {
  (void)kind, (void)counter;
  ENTER("memory_errors", at(handle));
  *count = (unsigned long long)of(at(handle), place == 7 ? "sram_errors" : "dram_errors", 0);
  return OK;
}

#ifdef WITHOUT_RECENT
int nvmlDeviceGetRetiredPages(void *handle, unsigned cause, unsigned *count,
                              unsigned long long *pages) {
  (void)pages;
  ENTER("retired_pages", at(handle));
  *count = (unsigned)of(at(handle), cause ? "retired_double" : "retired_single", 0);
  return *count ? SHORT : OK;
}
#else
int nvmlDeviceGetRetiredPages_v2(void *handle, unsigned cause, unsigned *count,
                                 unsigned long long *pages, unsigned long long *times) {
  unsigned there = (unsigned)of(at(handle), cause ? "retired_double" : "retired_single", 0);
  long long error = of(at(handle), "error.retired_pages", UNSUPPORTED);
  if (error) return (int)error;
  ENTER("retired_pages", at(handle));
  if (*count < there) { *count = there; return SHORT; }
  for (unsigned i = 0; i < there; i++) pages[i] = times[i] = i;
  *count = there;
  return OK;
}

#endif

int nvmlDeviceGetRetiredPagesPendingStatus(void *handle, unsigned *pending) {
  long long error = of(at(handle), "error.retirement_pending", UNSUPPORTED);
  if (error) return (int)error;
  *pending = (unsigned)of(at(handle), "retirement_pending", 0);
  return OK;
}

int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter,
                                unsigned long long *count) {
  int d = at(handle);
  (void)counter;
  ENTER("ecc", d);
  *count = (unsigned long long)of(d, kind ? "ecc_uncorrected" : "ecc_corrected", 0);
  return OK;
}

#ifdef WITHOUT_RECENT
#define nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons
#endif
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
  ENTER("clocks", at(handle));
  *reasons = (unsigned long long)of(at(handle), "clocks", 1);
  return OK;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
  int d = at(handle);
  char key[32];
  ENTER("nvlink", d);
  if (link >= of(d, "links", 0)) return link == 0 || link >= 18 ? INVALID : UNSUPPORTED;
  snprintf(key, sizeof key, "link.%u", link);
  *active = (unsigned)of(d, key, 1);
  return OK;
}

int nvmlDeviceGetNvLinkErrorCounter(void *handle, unsigned link, unsigned counter,
                                    unsigned long long *count) {
  char key[48];
  (void)link;
  ENTER("link_errors", at(handle));
  snprintf(key, sizeof key, "link_errors.%u", counter);
  *count = (unsigned long long)of(at(handle), key, 0);
  return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, unsigned *type) {
  char key[48];
  ENTER("link_type", at(handle));
  snprintf(key, sizeof key, "link.%u.type", link);
  *type = (unsigned)of(at(handle), key, of(at(handle), "links.type", 2));
  return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, Pci *pci) {
  char key[48];
  ENTER("link_end", at(handle));
  memset(pci, 0, sizeof *pci);
  snprintf(key, sizeof key, "link.%u.bus", link);
  pci->bus = (unsigned)of(at(handle), key, of(at(handle), "links.bus", 5));
  return OK;
}

int nvmlDeviceGetPcieReplayCounter(void *handle, unsigned *count) {
  ENTER("pcie_replay", at(handle));
  *count = (unsigned)of(at(handle), "pcie_replay", 0);
  return OK;
}

#ifndef WITHOUT_RECENT
typedef struct { unsigned version, channel, tpc; } Repair;
int nvmlDeviceGetRepairStatus(void *handle, Repair *repair) {
  ENTER("repair", at(handle));
  repair->channel = (unsigned)of(at(handle), "repair_channel", 0);
  repair->tpc = (unsigned)of(at(handle), "repair_tpc", 0);
  return OK;
}

typedef struct { unsigned version, flag; } Unrepairable;
int nvmlDeviceGetUnrepairableMemoryFlag_v1(void *handle, Unrepairable *memory) {
  ENTER("unrepairable", at(handle));
  memory->flag = (unsigned)of(at(handle), "unrepairable", 0);
  return OK;
}

typedef struct { unsigned version; unsigned long long counters[11]; unsigned exceeded; } Sram;
int nvmlDeviceGetSramEccErrorStatus(void *handle, Sram *sram) {
  ENTER("sram", at(handle));
  sram->exceeded = (unsigned)of(at(handle), "sram_exceeded", 0);
  return OK;
}

typedef struct {
  unsigned corrected, corrected_idle, uncorrected, uncorrected_idle, pending, failure;
} Rows;
int nvmlDeviceGetRemappedRows_v2(void *handle, Rows *rows) {
  int d = at(handle);
  ENTER("remapped_rows", d);
  memset(rows, 0, sizeof *rows);
  rows->uncorrected = (unsigned)of(d, "remapped", 0);
  rows->uncorrected_idle = (unsigned)of(d, "remapped_idle", 0);
  rows->pending = (unsigned)of(d, "remap_pending", 0);
  rows->failure = (unsigned)of(d, "remap_failure", 0);
  return OK;
}

typedef struct {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique, state, mask;
  unsigned char summary;
} Fabric;
int nvmlDeviceGetGpuFabricInfoV(void *handle, Fabric *fabric) {
  int d = at(handle);
  ENTER("fabric", d);
  unsigned version = fabric->version >> 24;
  if (version > of(d, "fabric_version", 3)) return OTHER_VERSION;
  fabric->state = (unsigned)of(d, "fabric_state", 3);
  fabric->mask = (unsigned)of(d, "fabric_mask", 0xaa);
  fabric->status = (int)of(d, "fabric_status", 0);
  if (version >= 3) fabric->summary = (unsigned char)of(d, "fabric_health", 1);
  return OK;
}

typedef struct {
  unsigned version;
  char guid[16], chassis[16];
  unsigned char slot, tray, host, peer, module;
} Platform;
int nvmlDeviceGetPlatformInfo(void *handle, Platform *platform) {
  int d = at(handle);
  ENTER("platform", d);
  if (of(d, "chassis_slot", -1) < 0) return UNSUPPORTED;
  memset(platform->chassis, 0, sizeof platform->chassis);
  text(d, "chassis", "1820", platform->chassis, sizeof platform->chassis);
  platform->slot = (unsigned char)of(d, "chassis_slot", 0);
  platform->tray = (unsigned char)of(d, "tray", 0);
  platform->module = (unsigned char)of(d, "module", 0);
  return OK;
}

typedef struct { unsigned version; int margin; } Margin;
int nvmlDeviceGetMarginTemperature(void *handle, Margin *margin) {
  ENTER("margin", at(handle));
  margin->margin = (int)of(at(handle), "thermal_margin", 40);
  return OK;
}
#endif

#ifdef WITHOUT_RECENT
typedef struct { unsigned char cluster[16]; int status; unsigned clique, state; } PlainFabric;
int nvmlDeviceGetGpuFabricInfo(void *handle, PlainFabric *fabric) {
  ENTER("fabric", at(handle));
  if (of(at(handle), "fabric_state", -1) < 0) return UNSUPPORTED;
  fabric->state = (unsigned)of(at(handle), "fabric_state", 3);
  fabric->status = (int)of(at(handle), "fabric_status", 0);
  return OK;
}
#endif

#ifdef WITH_NEWEST
typedef struct { unsigned char type; unsigned id; } Clique;
typedef struct {
  unsigned char cluster[16];
  int status;
  Clique cliques[64];
  unsigned count;
  unsigned char state;
  unsigned mask;
  unsigned char summary;
} NewestFabric;
int nvmlDeviceGetGpuFabricInfo_v4(void *handle, NewestFabric *fabric) {
  int d = at(handle);
  ENTER("fabric", d);
  fabric->state = (unsigned char)of(d, "fabric_state", 3);
  fabric->mask = (unsigned)of(d, "fabric_mask", 0xaa);
  fabric->status = (int)of(d, "fabric_status", 0);
  fabric->summary = (unsigned char)of(d, "fabric_health", 1);
  return OK;
}
#endif
