/*
 * Takes what there is without end: files | folders | clocks | memory, or writes to both outputs as fast as it can: flood.
 * Says how far it came where a program can see the end of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))

IMPORT("wasi:clocks/monotonic-clock@0.2.3", "subscribe-duration") int32_t subscribe_duration(uint64_t);

static int opens(const char *path, int flags) {
  int count = 0;
  while (open(path, flags, 0644) >= 0) count++;
  printf("%d, then %s\n", count, strerror(errno));
  return 0;
}

static int clocks(void) {
  for (;;) subscribe_duration(1000000000);
}

static int memory(void) {
  for (long pages = 0;; pages += 16) {
    if (__builtin_wasm_memory_grow(0, 16) == (size_t)-1) return printf("no more memory\n"), 0;
    memset((char *)((__builtin_wasm_memory_size(0) - 16) << 16), 1, 1 << 20);
  }
}

static int flood(void) {
  static char text[60000];
  memset(text, 'x', sizeof text - 1);
  for (;;) write(1, text, sizeof text - 1), write(2, text, sizeof text - 1);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "files") == 0) return opens("/data/file", O_CREAT | O_RDWR);
  if (strcmp(what, "folders") == 0) return opens("/data", O_RDONLY | O_DIRECTORY);
  if (strcmp(what, "clocks") == 0) return clocks();
  if (strcmp(what, "memory") == 0) return memory();
  if (strcmp(what, "flood") == 0) return flood();
  return 1;
}
