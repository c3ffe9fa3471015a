/* What happens to GPUs: event sets, in the form of each driver. */
#include "fake_nvml.h"

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size);

/* Each set hands out each event of its kinds once. */
typedef struct {
  long long last;
  int plain, traits;
} Set;
static Set sets[8];
static int made;

int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *types) {
  ENTER("event_types", at(handle));
  *types = (unsigned long long)of(at(handle), "event_types", 0xfe0b);
  return OK;
}

int nvmlEventSetCreate(void **set) {
  ENTER("event_set", -1);
  *set = &sets[made++ % 8];
  *(Set *)*set = (Set){-1, 0, 0};
  return OK;
}
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
  ENTER("register", at(handle));
  ((Set *)set)->plain = 1;
  return types & ~(unsigned long long)of(at(handle), "event_types", 0xfe0b) ? INVALID : OK;
}

typedef struct {
  void *device;
  unsigned long long type, content;
  unsigned gi, ci;
} EventData;

typedef struct {
  EventData event;
  int traits; /* whether it is one with traits: then content is the Xid, 0 = none */
  unsigned severity, attributes, group;
  unsigned long long trace;
} Heard;

static int next_event(Set *set, Heard *heard) {
  const char *path = getenv("FAKE_NVML_SCENARIO");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[512];
  int found = 0;
  if (!file) return 0;
  while (!found && fgets(line, sizeof line, file)) {
    long long id;
    int device;
    unsigned long long type = 0, content = 0, trace = 0;
    unsigned gi = 0xffffffffu, ci = 0xffffffffu, severity, attributes, group;
    heard->traits = 0;
    if (!set->plain || sscanf(line, "event %lld %d %lli %lli %u %u", &id, &device,
                              (long long *)&type, (long long *)&content, &gi, &ci) < 4) {
      if (!set->traits ||
          sscanf(line, "traits %lld %d %lli %u %u %u %lli", &id, &device, (long long *)&content,
                 &severity, &attributes, &group, (long long *)&trace) != 7)
        continue;
      heard->traits = 1;
      heard->severity = severity;
      heard->attributes = attributes;
      heard->group = group;
      heard->trace = trace;
    }
    if (id <= set->last || device < 0 || device >= 64) continue;
    set->last = id;
    heard->event = (EventData){&known_devices[device], type, content, gi, ci};
    found = 1;
  }
  fclose(file);
  return found;
}

static int wait_for(Set *set, Heard *heard, unsigned timeout) {
  ENTER("event_wait", -1);
  for (unsigned waited = 0;; waited += 20) {
    if (next_event(set, heard)) return OK;
    if (waited >= timeout) return TIMEOUT;
    pause_ms(20);
  }
}

int nvmlEventSetWait_v2(void *set, EventData *event, unsigned timeout) {
  Heard heard;
  int result = wait_for(set, &heard, timeout);
  if (result == OK) *event = heard.event;
  return result;
}

#ifdef WITH_NEWEST
typedef struct {
  unsigned timeout, kind;
  char uuid[96], module[16];
  unsigned long long type, content, cursor, instance, stamp, trace;
  unsigned gi, ci, severity, category, code, scope, originator, module_instance, chiplet, level;
  unsigned attributes, cper, group;
  unsigned char group_size, group_index;
} Newest;
static Heard last;

int nvmlEventSetRegisterGpuOperationalEvents_v1(void *set, void *config) {
  (void)config;
  ENTER("register_traits", -1);
  ((Set *)set)->traits = 1;
  return OK;
}

int nvmlEventSetWait_v3(void *set, Newest *event) {
  int result = wait_for(set, &last, event->timeout);
  if (result != OK) return result;
  event->kind = (unsigned)last.traits;
  nvmlDeviceGetUUID(last.event.device, event->uuid, sizeof event->uuid);
  event->type = last.event.type;
  event->content = last.traits ? 0 : last.event.content;
  event->gi = last.event.gi;
  event->ci = last.event.ci;
  event->severity = last.severity;
  event->attributes = last.attributes;
  event->group = last.group;
  event->trace = last.trace;
  snprintf(event->module, sizeof event->module, "memory");
  event->code = 17;
  return OK;
}

int nvmlEventSetGetContextCount_v1(void *set, unsigned *count) {
  (void)set;
  ENTER("contexts", -1);
  *count = last.traits && last.event.content ? 2 : 0;
  return OK;
}

typedef struct { unsigned index, kind, source, size; unsigned short version; } Context;
int nvmlEventSetGetContextInfo_v1(void *set, Context *context) {
  (void)set;
  context->kind = context->index == 1; /* the first one is of a kind that nobody knows yet */
  return OK;
}

typedef struct { unsigned index, xid; } LegacyXid;
int nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(void *set, LegacyXid *context) {
  (void)set;
  context->xid = (unsigned)last.event.content;
  return OK;
}
#endif
