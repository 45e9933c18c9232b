/*
 * WASI 0.3 by hand, without a C library: its first argument says what it does.
 *
 *   say TEXT...    each on a line, a millisecond apart, asynchronously; then the run ends well
 *   after TEXT...  returns at once, and then does the same
 *   fail, trap     says so, then does
 *   exit N         says so, then leaves with the code
 *   sleep          says so, then waits for an hour
 *   stuck          says so, closes its output, then waits for what never comes
 *   flood N        N times 64 KiB of lines
 *   grow           how many pages of memory it got
 *   about          what its host tells of time, chance, input and itself
 */
#define CALLED_BACK
#include "async.h"

#define STDOUT "wasi:cli/stdout@0.3.0"
#define STDIN "wasi:cli/stdin@0.3.0"
#define MONOTONIC "wasi:clocks/monotonic-clock@0.3.0"

IMPORT("wasi:cli/exit@0.3.0", "exit-with-code") void exit_with_code(u32);
IMPORT(MONOTONIC, "[async-lower]wait-for") u32 wait_for(u64);
IMPORT(MONOTONIC, "wait-until") void wait_until(u64);
IMPORT(MONOTONIC, "now") u64 now(void);
IMPORT("wasi:clocks/system-clock@0.3.0", "now") void system_now(u64 *);
IMPORT("wasi:random/random@0.3.0", "get-random-u64") u64 random_u64(void);
IMPORT(STDIN, "read-via-stream") void read_via_stream(u32 *);
IMPORT(STDIN, "[stream-read-0]read-via-stream") u32 stream_read(u32, void *, u32);
IMPORT(STDOUT, "[async-lower][future-read-1]write-via-stream") u32 future_read(u32, void *);
IMPORT(STDOUT, "[future-drop-readable-1]write-via-stream") void drop_future(u32);

enum { EXIT, YIELD, WAIT };

static u8 chunk[65536];
static u32 set, done, step, word, has_returned;
static u8 result[2];

static void about(void) {
  u32 input[2];
  u64 clock[2];
  u8 byte;
  read_via_stream(input);
  put_text("input ");
  put_number(stream_read(input[0], &byte, 1));
  u64 before = now();
  wait_until(before + 2000000);
  put_text(now() - before >= 2000000 ? " waited" : " hurried");
  system_now(clock);
  put_text(clock[0] > 1700000000 ? " now" : " then");
  put_text(random_u64() != random_u64() ? " random" : " same");
  put_text("\n");
}

static void flood(u32 times) {
  for (u32 at = 0; at < sizeof chunk; at++) chunk[at] = at % 64 == 63 ? '\n' : 'x';
  for (; times > 0; times--) put(chunk, sizeof chunk);
}

static u32 wait(u32 waitable) {
  join(waitable, set);
  return WAIT | set << 4;
}

/* Each line is a wait and two writes. */
static u32 say(void) {
  for (;;) {
    if (word == count) {
      stdout_end(out);
      step = 3;
      return future_read(done, result) == (u32)BLOCKED ? wait(done) : YIELD;
    }
    if (step == 0) {
      step = 1;
      u32 state = wait_for(1000000);
      if ((state & 0xf) != RETURNED) return wait(state >> 4);
    }
    if (step == 1) {
      step = 2;
      if (begin_put(out, text(word), length(word)) == (u32)BLOCKED) return wait(out);
    }
    step = 0;
    word++;
    if (begin_put(out, "\n", 1) == (u32)BLOCKED) return wait(out);
  }
}

static u32 leave(u32 outcome) {
  if (!has_returned) task_return(outcome);
  return EXIT;
}

EXPORT("[async-lift]wasi:cli/run@0.3.0#run") u32 run(void) {
  done = begin();
  if (count < 2) return leave(1);
  set = set_new();
  word = 2;
  if (is("say")) return say();
  if (is("after")) {
    task_return(0);
    has_returned = 1;
    return say();
  }
  if (is("about")) about();
  else if (is("flood")) flood(number(2));
  else if (is("grow")) {
    u32 pages = 0;
    while (__builtin_wasm_memory_grow(0, 1) != (unsigned long)-1) pages++;
    put_number(pages);
    put_text(" pages\n");
  } else {
    put(text(1), length(1));
    put_text("\n");
    if (is("exit")) exit_with_code(number(2));
    if (is("trap")) __builtin_trap();
    if (is("sleep")) wait_until(now() + 3600000000000);
    if (is("stuck")) {
      stdout_end(out);
      return WAIT | set << 4;
    }
    if (is("fail")) return leave(1);
  }
  stdout_end(out);
  return leave(0);
}

EXPORT("[callback][async-lift]wasi:cli/run@0.3.0#run") u32 called(u32 event, u32 waitable, u32 payload) {
  (void)payload;
  if (event != 0) join(waitable, 0);
  if (event == SUBTASK) subtask_drop(waitable);
  if (step < 3) return say();
  drop_future(done);
  return leave(result[0]);
}
