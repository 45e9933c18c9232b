/*
 * WASI 0.3 by hand, without a C library: what components of it have in common. All that waits is called as if it did not:
 * the host sets the stack aside. With NO_RUN for those that are no programs, with
 * CALLED_BACK for those that have a callback of their own.
 */
#pragma once
#define ARENA 262144
#include "canonical.h"

IMPORT("$root", "[waitable-set-new]") u32 set_new(void);
IMPORT("$root", "[waitable-set-wait]") u32 set_wait(u32 set, u32 *event);
IMPORT("$root", "[waitable-join]") void join(u32 waitable, u32 set);
IMPORT("$root", "[subtask-drop]") void subtask_drop(u32);
#ifndef NO_RUN
IMPORT("wasi:cli/environment@0.3.0", "get-arguments") void get_arguments(u32 *);
IMPORT("wasi:cli/stdout@0.3.0", "write-via-stream") u32 stdout_write(u32);
IMPORT("wasi:cli/stdout@0.3.0", "[stream-new-0]write-via-stream") u64 stdout_new(void);
/* One function of it, for wit-component makes one of two where a program has it both waiting and not. */
IMPORT("wasi:cli/stdout@0.3.0", "[async-lower][stream-write-0]write-via-stream") u32 begin_put(u32, const void *, u32);
IMPORT("wasi:cli/stdout@0.3.0", "[stream-drop-writable-0]write-via-stream") void stdout_end(u32);
IMPORT("[export]wasi:cli/run@0.3.0", "[task-return]run") void task_return(u32);
#endif

enum { BLOCKED = -1, SUBTASK = 1, RETURNED = 2 };
/* In the low bits of what a copy of a stream tells; the rest is how many. */
enum { COMPLETED, DROPPED, CANCELLED };

/* What a copy that was begun has come to, waited for. One at a time. */
static u32 settled(u32 told, u32 waitable) {
  static u32 alone;
  u32 event[2];
  if (told != (u32)BLOCKED) return told;
  if (alone == 0) alone = set_new();
  join(waitable, alone);
  set_wait(alone, event);
  join(waitable, 0);
  return event[1];
}

static u32 size_of(const char *what) {
  u32 size = 0;
  while (what[size] != 0) size++;
  return size;
}

#ifndef NO_RUN
static const u32 *words;
static u32 count;
static u32 out;

static const char *text(u32 at) { return at < count ? (const char *)words[2 * at] : ""; }
static u32 length(u32 at) { return at < count ? words[2 * at + 1] : 0; }

static int is_at(u32 word, const char *name) {
  u32 at = 0;
  for (; at < length(word) && name[at] == text(word)[at]; at++) {}
  return at == length(word) && name[at] == 0;
}
static int is(const char *name) { return is_at(1, name); }

static u32 number(u32 at) {
  u32 value = 0;
  for (u32 digit = 0; digit < length(at); digit++) value = value * 10 + (u32)(text(at)[digit] - '0');
  return value;
}

/* Waits for the whole of it. */
static void put(const void *what, u32 size) {
  for (u32 at = 0; at < size;) {
    u32 told = settled(begin_put(out, (const u8 *)what + at, size - at), out);
    if ((told & 0xf) != COMPLETED) return;
    at += told >> 4;
  }
}

static void put_text(const char *what) { put(what, size_of(what)); }

static void put_number(u64 value) {
  char digits[20];
  u32 at = sizeof digits;
  do digits[--at] = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  put(digits + at, sizeof digits - at);
}

/* The future that tells how the output has ended. */
static u32 begin(void) {
  u32 list[2];
  get_arguments(list);
  words = (const u32 *)list[0];
  count = list[1];
  u64 ends = stdout_new();
  out = (u32)(ends >> 32);
  return stdout_write((u32)ends);
}

#ifndef CALLED_BACK
EXPORT("[callback][async-lift]wasi:cli/run@0.3.0#run") u32 called(u32 event, u32 waitable, u32 payload) {
  (void)event;
  (void)waitable;
  (void)payload;
  __builtin_trap();
}
#endif
#endif
