/* A libnvidia-ml.so.1 without a GPU: it answers from a scenario file, read anew at each call.
 *
 * The file is named by FAKE_NVML_SCENARIO and holds one setting a line, "KEY VALUE":
 *   devices 2                  how many GPUs there are
 *   0.field.230 1              a field value of GPU 0; 0.field.230.error 3 makes that field fail
 *   0.remap_pending 1          any other value of GPU 0, by the names used below
 *   0.error.NAME 15            the call NAME fails so for GPU 0; "error.NAME 9" for calls without one
 *   hang.NAME 1                the call NAME does not return while the line is there
 *   0.hang.NAME 1              the same for GPU 0 alone
 *   0.field.161.3 7            a field value of link 3; without the link, of every link
 *   0.field.161.type 4         the type that stands beside a value
 *   event 7 0 8 79 [gi ci]     event number 7 on GPU 0: type 8, content 79; each is given out once
 *   traits 8 0 79 40 4 0 9     event number 8 on GPU 0 with traits: Xid (0 = none), severity,
 *                              attributes, the group's attributes, trace; only with -DWITH_NEWEST
 * Symbols that a driver lacks are left out at build time: -DWITHOUT_RECENT is one of 2021, as it is
 * one of 2025, -DWITH_NEWEST one of 2026.
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, TIMEOUT = 10, SHORT = 7, OTHER_VERSION = 25 };

extern int known_devices[64];

static __attribute__((unused)) void pause_ms(long ms) {
  struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
  nanosleep(&t, NULL);
}

static __attribute__((unused)) void copy(const char *from, char *to, size_t size) {
  size_t length = strlen(from);
  if (length >= size) length = size - 1;
  memcpy(to, from, length);
  to[length] = 0;
}

static __attribute__((unused)) int setting(const char *key, char *value, size_t size) {
  const char *path = getenv("FAKE_NVML_SCENARIO");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[512];
  int found = 0;
  size_t length = strlen(key);
  if (!file) return 0;
  while (fgets(line, sizeof line, file)) {
    if (strncmp(line, key, length) == 0 && line[length] == ' ') {
      char *end = line + strcspn(line, "\n");
      *end = 0;
      copy(line + length + 1, value, size);
      found = 1;
    }
  }
  fclose(file);
  return found;
}

static __attribute__((unused)) long long number(const char *key, long long otherwise) {
  char value[256];
  return setting(key, value, sizeof value) ? strtoll(value, NULL, 0) : otherwise;
}

static __attribute__((unused)) long long of(int device, const char *name, long long otherwise) {
  char key[128];
  snprintf(key, sizeof key, "%d.%s", device, name);
  return number(key, otherwise);
}

static __attribute__((unused)) void text(int device, const char *name, const char *otherwise, char *out, size_t size) {
  char key[128], value[256];
  snprintf(key, sizeof key, "%d.%s", device, name);
  copy(setting(key, value, sizeof value) ? value : otherwise, out, size);
}

static __attribute__((unused)) int call(const char *name, int device) {
  char key[128];
  int error;
  for (;;) {
    snprintf(key, sizeof key, "hang.%s", name);
    int hangs = number(key, 0) != 0;
    snprintf(key, sizeof key, "%d.hang.%s", device, name);
    hangs |= device >= 0 && number(key, 0) != 0;
    if (!hangs) break;
    pause_ms(20);
  }
  snprintf(key, sizeof key, "error.%s", name);
  error = (int)number(key, 0);
  if (device >= 0 && !error) {
    snprintf(key, sizeof key, "%d.error.%s", device, name);
    error = (int)number(key, 0);
    if (!error) error = (int)of(device, "error", 0);
  }
  return error;
}

#define ENTER(name, device) do { int e = call(name, device); if (e) return e; } while (0)

static __attribute__((unused)) int at(void *handle) { return (int)((int *)handle - known_devices); }

#endif
