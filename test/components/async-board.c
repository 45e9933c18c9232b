/*
 * What the board gives beside WASI, by a component of WASI 0.3. Its first argument says what it does.
 *
 *   count BUCKET KEY N    adds one N times, while a timer of WASI 0.3 runs; says what came of it, and that the timer was still there
 *   keep BUCKET KEY TEXT  sets, and says what it gets
 *   swap BUCKET KEY TEXT  by wasi:keyvalue: swaps, fails to with a handle that is older, and swaps with the one that it is given then
 *   board                 says its node's name, one entry of its configuration and a line of log, and writes a point
 */
#include "async.h"

#define KEYVALUE "picolet:board/keyvalue@0.1.0"
#define STORE "wasi:keyvalue/store@0.2.0-draft2"
#define ATOMICS "wasi:keyvalue/atomics@0.2.0-draft2"
#define MONOTONIC "wasi:clocks/monotonic-clock@0.3.0"

IMPORT(KEYVALUE, "open") void open(const char *, u32, void *);
IMPORT(KEYVALUE, "[method]bucket.get") void get(u32, const char *, u32, void *);
IMPORT(KEYVALUE, "[method]bucket.set") void set(u32, const char *, u32, const char *, u32, void *);
IMPORT(KEYVALUE, "[method]bucket.increment") void increment(u32, const char *, u32, u64, void *);
IMPORT(KEYVALUE, "[resource-drop]bucket") void drop_bucket(u32);
IMPORT(STORE, "open") void open_store(const char *, u32, void *);
IMPORT(STORE, "[resource-drop]bucket") void drop_store(u32);
IMPORT(ATOMICS, "[static]cas.new") void new_cas(u32, const char *, u32, void *);
IMPORT(ATOMICS, "swap") void swap(u32, const char *, u32, void *);
IMPORT("picolet:board/node-info@0.1.0", "this-node") void this_node(void *);
IMPORT("picolet:board/config@0.1.0", "get") void get_config(const char *, u32, void *);
IMPORT("picolet:board/logging@0.1.0", "log") void log_line(u32, const char *, u32, const char *, u32);
IMPORT("picolet:board/telemetry@0.1.0", "write") void write_points(const void *, u32, void *);
IMPORT(MONOTONIC, "[async-lower]wait-for") u32 wait_for(u64);
IMPORT(MONOTONIC, "now") u64 now(void);

/* The result of a call: whether it failed, and what follows. */
static struct { u8 failed; u32 at[7]; } told __attribute__((aligned(8)));

/* @param at which the error is */
static void put_failure_at(const char *what, u32 at) {
  put_text(what);
  put_text(" failed: ");
  put_number(((u8 *)(told.at + at))[0]);
  put_text("\n");
}

static void put_failure(const char *what) { put_failure_at(what, 0); }

/* 0: it could not be opened. */
static u32 opened(void) {
  open(text(2), length(2), &told);
  if (!told.failed) return told.at[0];
  put_failure("open");
  return 0;
}

static void add(void) {
  u64 began = now(), value = 0;
  u32 timer = wait_for(20000000);
  u32 bucket = opened();
  if (bucket == 0) return;
  for (u32 left = number(4); left > 0; left--) {
    increment(bucket, text(3), length(3), 1, &told);
    if (told.failed) {
      put_failure_at("increment", 1);
      return;
    }
    value = *(u64 *)(told.at + 1);
  }
  drop_bucket(bucket);
  put_number(value);
  if ((timer & 0xf) != RETURNED) {
    settled((u32)BLOCKED, timer >> 4);
    subtask_drop(timer >> 4);
  }
  put_text(now() - began >= 20000000 ? " and the timer\n" : " before the timer\n");
}

static void keep(void) {
  u32 bucket = opened();
  if (bucket == 0) return;
  set(bucket, text(3), length(3), text(4), length(4), &told);
  if (told.failed) put_failure("set");
  get(bucket, text(3), length(3), &told);
  if (told.failed) put_failure("get");
  else if (((u8 *)told.at)[0] == 1) put((const void *)told.at[1], told.at[2]);
  put_text("\n");
  drop_bucket(bucket);
}

static void swap_twice(void) {
  open_store(text(2), length(2), &told);
  u32 bucket = told.at[0], handles[2];
  for (u32 at = 0; at < 2; at++) {
    new_cas(bucket, text(3), length(3), &told);
    if (told.failed) __builtin_trap();
    handles[at] = told.at[0];
  }
  swap(handles[0], text(4), length(4), &told);
  put_text(told.failed ? "not swapped\n" : "swapped\n");
  swap(handles[1], "other", 5, &told);
  put_text(told.failed && ((u8 *)told.at)[0] == 1 ? "changed meanwhile\n" : "not told\n");
  swap(told.at[1], "last", 4, &told);
  put_text(told.failed ? "not swapped\n" : "swapped\n");
  drop_store(bucket);
}

static void all(void) {
  static struct { u32 measurement[2], tags[2], fields[2]; u64 has_time, time; } point;
  static struct { const char *name; u32 size; u64 kind; u64 value; } field = {"value", 5, 0, 7};
  this_node(&told);
  if (told.failed) put_failure("this-node");
  else put((const void *)told.at[0], told.at[1]);
  put_text("\n");
  get_config("greeting", 8, &told);
  if (told.failed) put_failure("config");
  else if (((u8 *)told.at)[0] == 1) put((const void *)told.at[1], told.at[2]);
  put_text("\n");
  log_line(3, "own", 3, "a line", 6);
  point.measurement[0] = (u32) "count", point.measurement[1] = 5;
  point.fields[0] = (u32)&field, point.fields[1] = 1;
  write_points(&point, 1, &told);
  if (told.failed) put_failure_at("telemetry", 1);
}

EXPORT("[async-lift]wasi:cli/run@0.3.0#run") u32 run(void) {
  begin();
  if (is("count")) add();
  else if (is("keep")) keep();
  else if (is("swap")) swap_twice();
  else all();
  stdout_end(out);
  task_return(0);
  return 0;
}
