/*
 * Asks by wasi:http of WASI 0.3: METHOD AUTHORITY PATH [BODY [TIMES]]. A body is sent TIMES times, with the trailer `x-sum`. Says the
 * status, the header field `x-told`, the response's body, and how both transmissions ended; or `error` and the code's number.
 */
#include "async.h"

#define TYPES "wasi:http/types@0.3.0"

IMPORT(TYPES, "[constructor]fields") u32 new_fields(void);
IMPORT(TYPES, "[method]fields.append") void append(u32, const char *, u32, const char *, u32, u8 *);
IMPORT(TYPES, "[method]fields.get") void get(u32, const char *, u32, u32 *);
IMPORT(TYPES, "[resource-drop]fields") void drop_fields(u32);
/* headers, option<stream>, future, option<request-options>, result pointer */
IMPORT(TYPES, "[static]request.new") void new_request(u32, u32, u32, u32, u32, u32, u32 *);
IMPORT(TYPES, "[stream-new-0][static]request.new") u64 new_contents(void);
IMPORT(TYPES, "[async-lower][stream-write-0][static]request.new") u32 begin_write(u32, const void *, u32);
IMPORT(TYPES, "[stream-drop-writable-0][static]request.new") void end_write(u32);
IMPORT(TYPES, "[future-new-1][static]request.new") u64 new_trailers(void);
IMPORT(TYPES, "[async-lower][future-write-1][static]request.new") u32 begin_trailers(u32, const void *);
IMPORT(TYPES, "[future-drop-writable-1][static]request.new") void end_trailers(u32);
IMPORT(TYPES, "[async-lower][future-read-2][static]request.new") u32 begin_sent(u32, u8 *);
IMPORT(TYPES, "[method]request.set-method") u32 set_method(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]request.set-scheme") u32 set_scheme(u32, u32, u32, const char *, u32);
IMPORT(TYPES, "[method]request.set-authority") u32 set_authority(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]request.set-path-with-query") u32 set_path(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]response.get-status-code") u32 get_status(u32);
IMPORT(TYPES, "[method]response.get-headers") u32 get_headers(u32);
IMPORT(TYPES, "[static]response.consume-body") void consume_body(u32, u32, u32 *);
IMPORT(TYPES, "[future-new-0][static]response.consume-body") u64 new_outcome(void);
IMPORT(TYPES, "[async-lower][future-write-0][static]response.consume-body") u32 begin_outcome(u32, const void *);
IMPORT(TYPES, "[future-drop-writable-0][static]response.consume-body") void end_outcome(u32);
IMPORT(TYPES, "[async-lower][stream-read-1][static]response.consume-body") u32 begin_read(u32, void *, u32);
IMPORT(TYPES, "[stream-drop-readable-1][static]response.consume-body") void end_read(u32);
IMPORT(TYPES, "[async-lower][future-read-2][static]response.consume-body") u32 begin_read_trailers(u32, u8 *);
IMPORT("wasi:http/client@0.3.0", "[async-lower]send") u32 send(u32, u8 *);

static u8 result[64] __attribute__((aligned(8)));
static u8 sent[64] __attribute__((aligned(8)));
static u8 got[64] __attribute__((aligned(8)));
static u8 given[64] __attribute__((aligned(8)));
static u8 fine[64] __attribute__((aligned(8)));
static char chunk[4096];

/* `ok`, or the number of the error code, which lies behind eight bytes. */
static void tell(const char *what, const u8 *told) {
  put_text(what);
  if (told[0] == 0) put_text(" ok");
  else {
    put_text(" error ");
    put_number(told[8]);
  }
  put_text("\n");
}

static u32 method(void) {
  static const char *names[] = {"GET", "HEAD", "POST", "PUT", "DELETE", 0};
  for (u32 at = 0; names[at] != 0; at++) {
    if (is(names[at])) return at;
  }
  return 9;
}

EXPORT("[async-lift]wasi:cli/run@0.3.0#run") u32 run(void) {
  begin();
  u32 headers = new_fields(), times = count > 5 ? number(5) : 1, made[2], body[2];
  append(headers, "x-asked", 7, "yes", 3, result);
  u64 contents = count > 4 ? new_contents() : 0, trailers = new_trailers();
  new_request(headers, count > 4, (u32)contents, (u32)trailers, 0, 0, made);
  u32 refused = set_method(made[0], method(), text(1), length(1)) | set_scheme(made[0], 1, 0, "", 0) |
                set_authority(made[0], 1, text(2), length(2)) | set_path(made[0], 1, text(3), length(3));
  if (refused) {
    put_text("refused\n");
    stdout_end(out);
    task_return(0);
    return 0;
  }
  u32 asked = send(made[0], result);
  if (contents != 0) {
    u32 into = (u32)(contents >> 32);
    for (; times > 0; times--) {
      u32 told = COMPLETED;
      for (u32 at = 0; at < length(4) && (told & 0xf) == COMPLETED; at += told >> 4) {
        told = settled(begin_write(into, text(4) + at, length(4) - at), into);
      }
      if ((told & 0xf) != COMPLETED) break;
    }
    end_write(into);
  }
  /* ok(some(fields)), or ok(none) */
  if (contents != 0) {
    u32 fields = new_fields();
    append(fields, "x-sum", 5, "42", 2, got);
    given[8] = 1;
    *(u32 *)(given + 12) = fields;
  }
  u32 writer = (u32)(trailers >> 32);
  settled(begin_trailers(writer, given), writer);
  end_trailers(writer);
  if ((asked & 0xf) != RETURNED) {
    u32 event[2], set = set_new();
    join(asked >> 4, set);
    while (1) {
      set_wait(set, event);
      if ((event[1] & 0xf) == RETURNED) break;
    }
    join(asked >> 4, 0);
    subtask_drop(asked >> 4);
  }
  if (result[0] == 0) {
    u32 response = *(u32 *)(result + 8), list[2];
    put_number(get_status(response));
    u32 fields = get_headers(response);
    get(fields, "x-told", 6, list);
    for (u32 at = 0; at < list[1]; at++) {
      put_text(" ");
      put((const char *)((u32 *)list[0])[2 * at], ((u32 *)list[0])[2 * at + 1]);
    }
    put_text("\n");
    drop_fields(fields);
    u64 outcome = new_outcome();
    consume_body(response, (u32)outcome, body);
    for (u32 told = COMPLETED; (told & 0xf) == COMPLETED;) {
      told = settled(begin_read(body[0], chunk, sizeof chunk), body[0]);
      put(chunk, told >> 4);
    }
    put_text("\n");
    end_read(body[0]);
    settled(begin_read_trailers(body[1], got), body[1]);
    tell("received", got);
    u32 done = (u32)(outcome >> 32);
    settled(begin_outcome(done, fine), done);
    end_outcome(done);
  } else tell("answer", result);
  settled(begin_sent(made[1], sent), made[1]);
  tell("sent", sent);
  stdout_end(out);
  task_return(0);
  return 0;
}
