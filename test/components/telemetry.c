/*
 * Writes telemetry, by picolet:board/telemetry called by hand: points FROM to TO, COUNT of them in a call, then an event,
 * and says how far it is; for as long as MS between calls. `0` as TO goes on for ever.
 *   telemetry FROM TO COUNT MS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IMPORT(name) __attribute__((import_module("picolet:board/telemetry@0.1.0"), import_name(name)))

typedef struct { const char *at; size_t length; } text;
typedef struct { text name, value; } tag;
/* A value: which of integer, floating, boolean, text; aligned to eight. */
typedef struct { text name; uint8_t kind; union { int64_t integer; double floating; text text; } value; } field;
typedef struct {
  text measurement;
  tag *tags;
  size_t tag_count;
  field *fields;
  size_t field_count;
  uint8_t has_time;
  uint64_t time;
} point;
/* Whether it failed; which error; its text or number. */
typedef struct { uint8_t failed; uint8_t padding[7]; uint8_t error; uint64_t value; } result;

IMPORT("write") void telemetry_write(const point *, size_t, result *);
IMPORT("emit") void telemetry_emit(int severity, const char *, size_t, const char *, size_t, const tag *, size_t,
                                   int has_time, uint64_t time, result *);

static text of(const char *each) {
  text made = {each, strlen(each)};
  return made;
}

static int check(const char *what, const result *answer) {
  if (!answer->failed) return 0;
  printf("%s failed: %d\n", what, answer->error);
  fflush(stdout);
  return 1;
}

static void pause_ms(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

int main(int argc, char **argv) {
  if (argc < 5) return 1;
  long from = atol(argv[1]), to = atol(argv[2]), count = atol(argv[3]), wait = atol(argv[4]);
  tag tags[] = {{of("bed"), of("3")}};
  point *points = calloc(count, sizeof *points);
  field *fields = calloc(count, sizeof *fields);
  result answer;
  for (long next = from; to == 0 || next < to; next += count) {
    for (long at = 0; at < count; at += 1) {
      fields[at] = (field){.name = of("value"), .kind = 0, .value.integer = next + at};
      points[at] = (point){.measurement = of("count"), .tags = tags, .tag_count = 1, .fields = &fields[at], .field_count = 1};
    }
    do telemetry_write(points, count, &answer);
    while (check("write", &answer) && (pause_ms(50), 1));
    if (to != 0) {
      printf("wrote %ld\n", next + count);
      fflush(stdout);
    }
    if (wait > 0) pause_ms(wait);
  }
  text name = of("done"), message = of("all \"written\"");
  telemetry_emit(2, name.at, name.length, message.at, message.length, tags, 1, 0, 0, &answer);
  if (check("emit", &answer)) return 1;
  printf("told\n");
  fflush(stdout);
  for (;;) pause_ms(3600000);
}
