/*
 * Waits, or only asks for the time, as often as its first argument says: "wait" COUNT | "ask" COUNT. Without a C library, so
 * that nothing but these calls is in it.
 */
#include "canonical.h"

typedef int handle;

IMPORT("wasi:cli/environment@0.2.3", "get-arguments") extern void arguments(u32 *);
IMPORT("wasi:clocks/monotonic-clock@0.2.3", "now") extern u64 now(void);
IMPORT("wasi:clocks/monotonic-clock@0.2.3", "subscribe-duration") extern handle subscribe(u64);
IMPORT("wasi:io/poll@0.2.3", "[method]pollable.block") extern void block(handle);
IMPORT("wasi:io/poll@0.2.3", "[resource-drop]pollable") extern void drop(handle);

EXPORT("wasi:cli/run@0.2.3#run") u32 run(void) {
  u32 list[2];
  arguments(list);
  if (list[1] != 3) return 1;
  /* Each argument: where it is, how long it is; the first is the program's name. */
  const u32 *const words = (const u32 *)list[0];
  const char *what = (const char *)words[2];
  const char *number = (const char *)words[4];
  u32 count = 0;
  for (u32 at = 0; at < words[5]; at++) count = count * 10 + (u32)(number[at] - '0');
  for (; count > 0; count--) {
    if (what[0] == 'a') {
      now();
      continue;
    }
    handle pollable = subscribe(1000);
    block(pollable);
    drop(pollable);
  }
  return 0;
}
