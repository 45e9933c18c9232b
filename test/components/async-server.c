/*
 * Serves wasi:http/handler of WASI 0.3. By its path: `/echo` gives the body back as it comes, `/trap` traps, `/fail` answers with an error
 * code, `/long` writes 4 KiB as many times as the request's header field `x-times` says, `/stuck` never answers; all else is a greeting.
 * The trailer `x-sum` follows the body. By when it gives its answer: `/after` before it writes the body, without returning to the host in
 * between, `/begun` after it has begun to write, `/callback` when it is called back after
 * that; `/late` traps once it has answered and written; `/before` waits for the body to be read first, which nobody can do.
 */
#define NO_RUN
#include "async-serving.h"

IMPORT(HTTP, "[method]fields.append") void append(u32, const char *, u32, const char *, u32, u8 *);
IMPORT(HTTP, "[method]fields.get") void get(u32, const char *, u32, u32 *);
IMPORT(HTTP, "[resource-drop]fields") void drop_fields(u32);
IMPORT(HTTP, "[method]request.get-headers") u32 get_headers(u32);
IMPORT(HTTP, "[static]request.consume-body") void consume_body(u32, u32, u32 *);
IMPORT(HTTP, "[future-new-0][static]request.consume-body") u64 new_outcome(void);
IMPORT(HTTP, "[async-lower][future-write-0][static]request.consume-body") u32 begin_outcome(u32, const void *);
IMPORT(HTTP, "[future-drop-writable-0][static]request.consume-body") void end_outcome(u32);
IMPORT(HTTP, "[async-lower][stream-read-1][static]request.consume-body") u32 begin_read(u32, void *, u32);
IMPORT(HTTP, "[stream-drop-readable-1][static]request.consume-body") void end_read(u32);
IMPORT(HTTP, "[future-drop-readable-2][static]request.consume-body") void drop_trailers(u32);
IMPORT(HTTP, "[method]response.set-status-code") u32 set_status(u32, u32);

static u8 result[64] __attribute__((aligned(8)));
static u8 given[64] __attribute__((aligned(8)));
static const u8 fine[64] __attribute__((aligned(8)));
static char chunk[4096];
static const u32 *path;
/* Of the one request that is served at a time. */
static u32 before, times, made[2], body[2], told_path[3];
static u64 contents, trailers, outcome;
static int echoes, is_long;
/* What the callback is for; the set that it waits for. */
static u32 stage, set;

enum { EXIT, YIELD, WAIT };
/* The body as a whole, the answer, one piece and the rest. */
enum { BODY, ANSWER, PIECE };

static int is_path(const char *name) {
  u32 at = 0;
  for (; at < path[2] && name[at] == ((const char *)path[1])[at]; at++) {}
  return at == path[2] && name[at] == 0;
}

static u32 times_of(u32 request) {
  u32 list[2], value = 0, fields = get_headers(request);
  get(fields, "x-times", 7, list);
  drop_fields(fields);
  if (list[1] == 0) return 1;
  const u32 *text = (const u32 *)list[0];
  for (u32 at = 0; at < text[1]; at++) value = value * 10 + (u32)(((const char *)text[0])[at] - '0');
  return value;
}

/* 0: nobody reads any more. */
static int write_all(u32 into, const void *what, u32 size) {
  for (u32 at = 0; at < size;) {
    u32 told = settled(begin_answer(into, (const u8 *)what + at, size - at), into);
    if ((told & 0xf) != COMPLETED) return 0;
    at += told >> 4;
  }
  return 1;
}

/* What comes after the response's head. */
static void write_body(void) {
  u32 into = (u32)(contents >> 32);
  if (echoes) {
    for (u32 told = COMPLETED; (told & 0xf) == COMPLETED;) {
      told = settled(begin_read(body[0], chunk, sizeof chunk), body[0]);
      if (!write_all(into, chunk, told >> 4)) break;
    }
  } else if (is_long) {
    for (u32 at = 0; at < sizeof chunk; at++) ((volatile char *)chunk)[at] = 'x';
    for (; times > 0 && write_all(into, chunk, sizeof chunk); times--) {}
  } else write_all(into, "hello by 0.3\n", 13);
  if (is_path("/late")) __builtin_trap();
  end_read(body[0]);
  drop_trailers(body[1]);
  u32 done = (u32)(outcome >> 32);
  settled(begin_outcome(done, fine), done);
  end_outcome(done);
  end_answer(into);
  u32 fields = new_fields();
  append(fields, "x-sum", 5, "42", 2, result);
  given[8] = 1;
  *(u32 *)(given + 12) = fields;
  u32 writer = (u32)(trailers >> 32);
  settled(begin_trailers(writer, given), writer);
  end_trailers(writer);
  drop_answered(made[1]);
  used = before;
}

EXPORT("[async-lift]wasi:http/handler@0.3.0#handle") u32 handle(u32 request) {
  before = used;
  get_path(request, told_path);
  path = told_path;
  if (is_path("/trap")) __builtin_trap();
  if (is_path("/fail")) {
    /* HTTP-response-timeout */
    task_return(1, 33, 0, 0, 0, 0, 0, 0);
    return 0;
  }
  if (is_path("/stuck")) return WAIT | set_new() << 4;
  u32 headers = new_fields();
  times = times_of(request);
  append(headers, "x-by", 4, "async", 5, result);
  contents = new_contents();
  trailers = new_trailers();
  new_response(headers, 1, (u32)contents, (u32)trailers, made);
  set_status(made[0], is_path("/echo") ? 200 : 201);
  outcome = new_outcome();
  echoes = is_path("/echo");
  is_long = is_path("/long");
  consume_body(request, (u32)outcome, body);
  stage = BODY;
  if (is_path("/before")) write_all((u32)(contents >> 32), "hello by 0.3\n", 13);
  if (is_path("/begun") || is_path("/callback")) {
    stage = is_path("/begun") ? PIECE : ANSWER;
    if (begin_answer((u32)(contents >> 32), "begun\n", 6) != (u32)BLOCKED) __builtin_trap();
    if (set == 0) set = set_new();
    join((u32)(contents >> 32), set);
    times = 2;
    if (stage == ANSWER) return YIELD;
  }
  task_return(0, made[0], 0, 0, 0, 0, 0, 0);
  if (stage == PIECE) return WAIT | set << 4;
  if (!is_path("/after")) return YIELD;
  write_body();
  return EXIT;
}

EXPORT("[callback][async-lift]wasi:http/handler@0.3.0#handle") u32 called(u32 event, u32 waitable, u32 payload) {
  (void)event;
  (void)waitable;
  u32 into = (u32)(contents >> 32);
  if (stage == ANSWER) {
    task_return(0, made[0], 0, 0, 0, 0, 0, 0);
    stage = PIECE;
    return WAIT | set << 4;
  }
  if (stage == PIECE && (payload & 0xf) == COMPLETED && times-- > 0) {
    u32 told = begin_answer(into, "more\n", 5);
    if (told == (u32)BLOCKED) return WAIT | set << 4;
  }
  if (stage == PIECE) join(into, 0);
  write_body();
  return EXIT;
}
