/*
 * A serial port as a component sees it, by hand-written bindings of picolet:board/serial, one step after the other; says on
 * stdout what came of each, `error TAG` where it was refused. The last port opened is the one that is meant:
 *   open PORT BAUD DATA-BITS PARITY STOP-BITS FLOW (numbers) | appears PORT (opened until it is there) | set BAUD DATA-BITS |
 *   write TEXT | fill COUNT | read COUNT | count COUNT (reads so many, says their sum) | end (reads until it ends) |
 *   lines | raise (dtr and rts) | break | close | hoard PORT COUNT | hold
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define SERIAL "picolet:board/serial@0.1.0"
#define STREAMS "wasi:io/streams@0.2.3"

typedef int32_t handle;

IMPORT(SERIAL, "open") void serial_open(const char *, size_t, uint32_t, int, int, int, int, uint8_t *);
IMPORT(SERIAL, "[method]port.input") handle port_input(handle);
IMPORT(SERIAL, "[method]port.output") handle port_output(handle);
IMPORT(SERIAL, "[method]port.set-options") void port_set(handle, uint32_t, int, int, int, int, uint8_t *);
IMPORT(SERIAL, "[method]port.modem-lines") void port_lines(handle, uint8_t *);
IMPORT(SERIAL, "[method]port.set-modem-lines") void port_set_lines(handle, int, uint8_t *);
IMPORT(SERIAL, "[method]port.send-break") void port_break(handle, uint8_t *);
IMPORT(SERIAL, "[resource-drop]port") void port_drop(handle);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void write_all(handle, const void *, size_t, uint8_t *);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void read_some(handle, uint64_t, uint8_t *);
IMPORT(STREAMS, "[resource-drop]input-stream") void input_drop(handle);
IMPORT(STREAMS, "[resource-drop]output-stream") void output_drop(handle);

static const char *const ERRORS[] = {"not-granted", "no-such-port", "busy", "unsupported", "io"};
static _Alignas(8) uint8_t result[64];
static handle port, input, output;

static int32_t word(int offset) { return *(int32_t *)(result + offset); }

/* Whether it went well; else it is said. */
static int well(void) {
  if (result[0] == 0) return 1;
  if (result[4] == 4) printf("error io: %.*s\n", (int)word(12), (const char *)(uintptr_t)word(8));
  else printf("error %s\n", ERRORS[result[4]]);
  return 0;
}

static int try_open(const char *path, const int *options) {
  serial_open(path, strlen(path), (uint32_t)options[0], options[1], options[2], options[3], options[4], result);
  if (result[0] != 0) return 0;
  port = word(4);
  input = port_input(port);
  output = port_output(port);
  return 1;
}

static void shut(void) {
  input_drop(input);
  output_drop(output);
  port_drop(port);
}

/* Takes at most so many bytes; 0 at the end, or when it has failed. */
static size_t take(size_t most, char *into) {
  read_some(input, most, result);
  if (result[0] != 0) return printf(result[4] == 1 ? "closed\n" : "failed\n"), 0;
  size_t length = (size_t)word(8);
  void *bytes = (void *)(uintptr_t)word(4);
  memcpy(into, bytes, length);
  free(bytes);
  return length;
}

static void put(const char *bytes, size_t length) {
  while (length > 0) {
    size_t part = length < 4096 ? length : 4096;
    write_all(output, bytes, part, result);
    if (result[0] != 0) {
      printf(result[4] == 1 ? "closed\n" : "failed\n");
      return;
    }
    bytes += part;
    length -= part;
  }
  printf("written\n");
}

static char buffer[1 << 18];

static void count(size_t wanted) {
  unsigned long sum = 0;
  size_t got = 0;
  while (got < wanted) {
    size_t length = take(wanted - got, buffer);
    if (length == 0) return;
    for (size_t i = 0; i < length; i += 1) sum += (unsigned char)buffer[i] * (unsigned long)((got + i) % 251 + 1);
    got += length;
  }
  printf("sum %lu\n", sum);
}

static void hoard(const char *path, int most) {
  static const int options[] = {9600, 8, 0, 1, 0};
  int opened = 0;
  (void)path;
  for (char name[64]; opened < most; opened += 1) {
    snprintf(name, sizeof name, "%s-%d", path, opened);
    if (!try_open(name, options)) break;
  }
  printf("opened %d\n", opened);
  if (opened < most) well();
}

int main(int argc, char **argv) {
  static const int plain[] = {9600, 8, 0, 1, 0};
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < argc; i += 1) {
    const char *step = argv[i];
    if (strcmp(step, "open") == 0) {
      int options[5];
      for (int k = 0; k < 5; k += 1) options[k] = atoi(argv[i + 2 + k]);
      if (try_open(argv[i + 1], options)) printf("open\n");
      else well();
      i += 6;
    } else if (strcmp(step, "appears") == 0) {
      const char *path = argv[++i];
      struct timespec pause = {0, 20000000};
      int refused = 0;
      while (!try_open(path, plain) && result[4] == 1) {
        if (refused++ == 0) well();
        nanosleep(&pause, NULL);
      }
      if (result[0] == 0) printf("open\n");
      else well();
    } else if (strcmp(step, "set") == 0) {
      port_set(port, (uint32_t)atoi(argv[i + 1]), atoi(argv[i + 2]), 0, 1, 0, result);
      if (well()) printf("set\n");
      i += 2;
    } else if (strcmp(step, "write") == 0) {
      put(argv[i + 1], strlen(argv[i + 1]));
      i += 1;
    } else if (strcmp(step, "fill") == 0) {
      size_t length = (size_t)atoi(argv[++i]);
      for (size_t k = 0; k < length; k += 1) buffer[k] = (char)(k % 251);
      put(buffer, length);
    } else if (strcmp(step, "read") == 0) {
      size_t wanted = (size_t)atoi(argv[++i]), got = 0;
      while (got < wanted) {
        size_t length = take(wanted - got, buffer + got);
        if (length == 0) break;
        got += length;
      }
      if (got == wanted) printf("read %.*s\n", (int)got, buffer);
    } else if (strcmp(step, "count") == 0) {
      count((size_t)atoi(argv[++i]));
    } else if (strcmp(step, "end") == 0) {
      while (take(4096, buffer) > 0) continue;
    } else if (strcmp(step, "lines") == 0) {
      port_lines(port, result);
      if (well()) printf("lines %d\n", result[4]);
    } else if (strcmp(step, "raise") == 0) {
      port_set_lines(port, 3, result);
      if (well()) printf("raised\n");
    } else if (strcmp(step, "break") == 0) {
      port_break(port, result);
      if (well()) printf("break\n");
    } else if (strcmp(step, "close") == 0) {
      shut();
      printf("shut\n");
    } else if (strcmp(step, "hoard") == 0) {
      hoard(argv[i + 1], atoi(argv[i + 2]));
      i += 2;
    } else if (strcmp(step, "hold") == 0) {
      for (struct timespec hour = {3600, 0};;) nanosleep(&hour, NULL);
    } else {
      printf("no step %s\n", step);
      return 2;
    }
  }
  return 0;
}
