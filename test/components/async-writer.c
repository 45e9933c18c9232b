/*
 * Serves wasi:http/handler of WASI 0.3 on a stack of its own, without a callback: gives its answer, and then writes the body by calls that
 * wait until it is read. As many pieces of 4 KiB as the path has letters.
 */
#define NO_RUN
#include "async-serving.h"

IMPORT(HTTP, "[stream-write-0][static]response.new") u32 write(u32, const void *, u32);
IMPORT(HTTP, "[future-write-1][static]response.new") u32 write_trailers(u32, const void *);

static char chunk[4096];

EXPORT("[async-lift-stackful]wasi:http/handler@0.3.0#handle") void handle(u32 request) {
  u32 before = used, path[3], made[2];
  get_path(request, path);
  drop_request(request);
  u64 contents = new_contents(), trailers = new_trailers();
  new_response(new_fields(), 1, (u32)contents, (u32)trailers, made);
  task_return(0, made[0], 0, 0, 0, 0, 0, 0);
  for (u32 at = 0; at < sizeof chunk; at++) ((volatile char *)chunk)[at] = 'x';
  u32 into = (u32)(contents >> 32);
  for (u32 at = 0; at < path[2]; at++)
    for (u32 done = 0; done < sizeof chunk;) {
      u32 told = write(into, chunk + done, sizeof chunk - done);
      if ((told & 0xf) != COMPLETED) __builtin_trap();
      done += told >> 4;
    }
  end_answer(into);
  u32 writer = (u32)(trailers >> 32);
  write_trailers(writer, none);
  end_trailers(writer);
  drop_answered(made[1]);
  used = before;
}
