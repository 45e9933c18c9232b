/*
 * Lines and buses of the board as a component sees them, by hand-written bindings of picolet:board/gpio and i2c, one
 * step after the other; says on stdout what came of each, `error TAG` where it was refused:
 *   lines | output LINE LEVEL | set LEVEL | level (of the output) | input LINE | read (the input) | edges LINE |
 *   next (edges) | wait (until there are edges) | bus PATH ADDRESS | put HEX | get COUNT | ask HEX COUNT |
 *   huge (more than there may be) | drop | hold
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define GPIO "picolet:board/gpio@0.1.0"
#define I2C "picolet:board/i2c@0.1.0"
#define POLL "wasi:io/poll@0.2.3"

typedef int32_t handle;
typedef struct { uint8_t tag; union { uint32_t length; struct { const void *at; uint32_t length; } bytes; } value; } operation;

IMPORT(GPIO, "lines") void gpio_lines(uint8_t *);
/* bias, active-low, edges, debounce-microseconds */
IMPORT(GPIO, "open-input") void gpio_input(const char *, size_t, int, int, int, int, uint32_t, uint8_t *);
/* drive, bias, active-low, initial */
IMPORT(GPIO, "open-output") void gpio_output(const char *, size_t, int, int, int, int, uint8_t *);
IMPORT(GPIO, "[method]input-line.read") void input_read(handle, uint8_t *);
IMPORT(GPIO, "[method]input-line.next") void input_next(handle, uint32_t, uint8_t *);
IMPORT(GPIO, "[method]input-line.subscribe") handle input_subscribe(handle);
IMPORT(POLL, "[method]pollable.block") void pollable_block(handle);
IMPORT(POLL, "[resource-drop]pollable") void pollable_drop(handle);
IMPORT(GPIO, "[resource-drop]input-line") void input_drop(handle);
IMPORT(GPIO, "[method]output-line.read") void output_read(handle, uint8_t *);
IMPORT(GPIO, "[method]output-line.write") void output_write(handle, int, uint8_t *);
IMPORT(GPIO, "[resource-drop]output-line") void output_drop(handle);
IMPORT(I2C, "open") void i2c_open(const char *, size_t, uint32_t, uint8_t *);
IMPORT(I2C, "[method]device.transaction") void i2c_transaction(handle, const operation *, size_t, uint8_t *);
IMPORT(I2C, "[method]device.read") void i2c_read(handle, uint32_t, uint8_t *);
IMPORT(I2C, "[method]device.write") void i2c_write(handle, const void *, size_t, uint8_t *);
IMPORT(I2C, "[method]device.write-read") void i2c_write_read(handle, const void *, size_t, uint32_t, uint8_t *);
IMPORT(I2C, "[resource-drop]device") void i2c_drop(handle);

static const char *const GPIO_ERRORS[] = {"not-granted", "no-such-line", "busy", "unsupported", "io"};
static const char *const I2C_ERRORS[] = {"not-granted", "no-such-bus", "busy", "too-large", "bus", "arbitration-loss",
  "no-acknowledge", "overrun", "timeout", "other"};
static _Alignas(8) uint8_t result[64];
static handle output, input, device;

static uint32_t word(int offset) { return *(uint32_t *)(result + offset); }

/* Whether it went well; else it is said. @param at of the error's case */
static int well(const char *const *names, int in_words, int at) {
  if (result[0] == 0) return 1;
  printf("error %s", names[result[at]]);
  if (result[at] == in_words) printf(": %.*s", (int)word(at + 8), (const char *)(uintptr_t)word(at + 4));
  if (names == I2C_ERRORS && result[at] == 6) printf(" %d", result[at + 4]);
  printf("\n");
  return 0;
}

static int pins(void) { return well(GPIO_ERRORS, 4, 4); }
static int bus(void) { return well(I2C_ERRORS, 9, 4); }

static size_t bytes_of(const char *hex, uint8_t *into) {
  size_t length = strlen(hex) / 2;
  for (size_t i = 0; i < length; i += 1) {
    unsigned byte;
    sscanf(hex + 2 * i, "%2x", &byte);
    into[i] = (uint8_t)byte;
  }
  return length;
}

static void say(uint32_t at, uint32_t length) {
  printf("bytes ");
  for (uint32_t i = 0; i < length; i += 1) printf("%02x", ((const uint8_t *)(uintptr_t)at)[i]);
  printf("\n");
}

static void lines(void) {
  gpio_lines(result);
  if (!pins()) return;
  const uint32_t *info = (const uint32_t *)(uintptr_t)word(4);
  printf("lines");
  /* id, name, and an optional consumer */
  for (uint32_t i = 0; i < word(8); i += 1, info += 7) {
    printf(" %.*s", (int)info[1], (const char *)(uintptr_t)info[0]);
    if (((const uint8_t *)info)[16]) printf("=%.*s", (int)info[6], (const char *)(uintptr_t)info[5]);
  }
  printf("\n");
}

typedef struct { uint8_t edge; uint64_t timestamp; uint32_t sequence; } edge_event;

/* Says of each edge its direction and number, and `early` if its time is not after that of the one before it. */
static void wait_for_edges(void) {
  static uint64_t last;
  handle pollable = input_subscribe(input);
  pollable_block(pollable);
  pollable_drop(pollable);
  input_next(input, 100, result);
  if (!pins()) return;
  const edge_event *edges = (const edge_event *)(uintptr_t)word(4);
  for (uint32_t i = 0; i < word(8); last = edges[i++].timestamp) {
    const char *early = edges[i].timestamp > last ? "" : " early";
    printf("%s %u%s\n", edges[i].edge ? "falling" : "rising", edges[i].sequence, early);
  }
}

static void too_large(void) {
  operation many[43];
  for (int i = 0; i < 43; i += 1) many[i] = (operation){0, {.length = 1}};
  i2c_transaction(device, many, 43, result);
  bus();
  i2c_read(device, 0xffffffff, result);
  bus();
  i2c_write(device, NULL, 8193, result);
  bus();
}

int main(int argc, char **argv) {
  static uint8_t buffer[8192];
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < argc; i += 1) {
    const char *step = argv[i];
    if (strcmp(step, "lines") == 0) {
      lines();
    } else if (strcmp(step, "output") == 0) {
      gpio_output(argv[i + 1], strlen(argv[i + 1]), 0, 0, 0, atoi(argv[i + 2]), result);
      if (pins()) output = (handle)word(4), printf("output\n");
      i += 2;
    } else if (strcmp(step, "set") == 0) {
      output_write(output, atoi(argv[++i]), result);
      if (pins()) printf("set\n");
    } else if (strcmp(step, "level") == 0) {
      output_read(output, result);
      if (pins()) printf("level %d\n", result[4]);
    } else if (strcmp(step, "input") == 0) {
      i += 1;
      gpio_input(argv[i], strlen(argv[i]), 0, 0, 0, 0, 0, result);
      if (pins()) input = (handle)word(4), printf("input\n");
    } else if (strcmp(step, "read") == 0) {
      input_read(input, result);
      if (pins()) printf("read %d\n", result[4]);
    } else if (strcmp(step, "next") == 0) {
      input_next(input, 100, result);
      if (pins()) printf("edges %u\n", word(8));
    } else if (strcmp(step, "wait") == 0) {
      wait_for_edges();
    } else if (strcmp(step, "edges") == 0) {
      i += 1;
      gpio_input(argv[i], strlen(argv[i]), 0, 0, 3, 0, 0, result);
      if (pins()) input = (handle)word(4), printf("waits for edges\n");
    } else if (strcmp(step, "bus") == 0) {
      i2c_open(argv[i + 1], strlen(argv[i + 1]), (uint32_t)strtoul(argv[i + 2], NULL, 0), result);
      if (bus()) device = (handle)word(4), printf("bus\n");
      i += 2;
    } else if (strcmp(step, "put") == 0) {
      size_t length = bytes_of(argv[++i], buffer);
      i2c_write(device, buffer, length, result);
      if (bus()) printf("put\n");
    } else if (strcmp(step, "get") == 0) {
      i2c_read(device, (uint32_t)atoi(argv[++i]), result);
      if (bus()) say(word(4), word(8));
    } else if (strcmp(step, "ask") == 0) {
      size_t length = bytes_of(argv[i + 1], buffer);
      i2c_write_read(device, buffer, length, (uint32_t)atoi(argv[i + 2]), result);
      if (bus()) say(word(4), word(8));
      i += 2;
    } else if (strcmp(step, "huge") == 0) {
      too_large();
    } else if (strcmp(step, "drop") == 0) {
      if (output) output_drop(output);
      if (input) input_drop(input);
      if (device) i2c_drop(device);
      output = input = device = 0;
      printf("dropped\n");
    } else if (strcmp(step, "hold") == 0) {
      for (struct timespec hour = {3600, 0};;) nanosleep(&hour, NULL);
    } else {
      printf("no step %s\n", step);
      return 2;
    }
  }
  return 0;
}
