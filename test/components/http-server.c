/*
 * Serves wasi:http/incoming-handler without a C library, each path something else:
 *   /hello              two words, with their length
 *   /echo               the request's body, piece by piece, and its trailers
 *   /count/N            N bytes of text, in pieces that wait for room
 *   /method /query      what the request says of itself
 *   /early              status 202 and nothing of the request's body read
 *   /error              an error-code instead of a response
 *   /silent             ends without a response
 *   /cut                says ten bytes, gives five, and drops the body
 *   /trap               an unreachable instruction
 *   /lose               opens the file "kept" of the first folder that it has, and traps
 *   /doze               opens that file, and sleeps for an hour
 *   /spin               never ends
 *   /calls              how often this instance was asked
 */
/* For one request; begun anew with the next, or with the next piece of a body. */
#define ARENA (1 << 19)
#include "http-serving.h"

IMPORT(TYPES, "[method]fields.append") extern void fields_append(handle, const char *, u32, const void *, u32, u8 *);
IMPORT(TYPES, "[method]incoming-request.method") extern void request_method(handle, u32 *);
IMPORT(TYPES, "[method]incoming-request.consume") extern void request_consume(handle, u32 *);
IMPORT(TYPES, "[method]incoming-body.stream") extern void in_body_stream(handle, u32 *);
IMPORT(TYPES, "[static]incoming-body.finish") extern handle in_body_finish(handle);
IMPORT(TYPES, "[method]future-trailers.subscribe") extern handle trailers_subscribe(handle);
IMPORT(TYPES, "[method]future-trailers.get") extern void trailers_get(handle, u64 *);
IMPORT(TYPES, "[resource-drop]future-trailers") extern void trailers_drop(handle);
IMPORT(TYPES, "[method]outgoing-response.set-status-code") extern u32 response_status(handle, u32);
IMPORT(TYPES, "[resource-drop]outgoing-body") extern void out_body_drop(handle);
IMPORT(STREAMS, "[method]input-stream.blocking-read") extern void read_some(handle, u64, u32 *);
IMPORT(STREAMS, "[resource-drop]input-stream") extern void input_drop(handle);
IMPORT("wasi:filesystem/preopens@0.2.3", "get-directories") extern void get_directories(u32 *);
IMPORT("wasi:filesystem/types@0.2.3", "[method]descriptor.open-at")
extern void open_at(handle, u32, const char *, u32, u32, u32, u32 *);
IMPORT("wasi:clocks/monotonic-clock@0.2.3", "subscribe-duration") extern handle subscribe_duration(u64);

/* clang makes calls of it. */
void *memset(void *to, int value, unsigned long size) {
  for (u8 *each = to; size > 0; size--) *each++ = (u8)value;
  return to;
}

static void open_kept(u32 *result) {
  /* A list of descriptors and paths. */
  get_directories(result);
  const u32 *first = (const u32 *)result[0];
  if (result[1] > 0) open_at((handle)first[0], 0, "kept", 4, 0, 1, result);
}

static u32 length_of(const char *text) {
  u32 length = 0;
  while (text[length] != 0) length++;
  return length;
}

static int starts(const char *text, u32 length, const char *with) {
  for (; *with != 0; with++, text++, length--) if (length == 0 || *text != *with) return 0;
  return 1;
}

static u32 digits(u32 number, char *text) {
  u32 length = 1;
  for (u32 rest = number; rest >= 10; rest /= 10) length++;
  for (u32 at = length; at > 0; number /= 10) text[--at] = (char)('0' + number % 10);
  return length;
}

/* @returns the body; the response is sent off. */
static handle begin(handle out, u32 status, int known, u32 length) {
  u32 result[2];
  u8 error[4];
  char text[12];
  handle fields = fields_new();
  fields_append(fields, "content-type", 12, "text/plain", 10, error);
  if (known) fields_append(fields, "content-length", 14, text, digits(length, text), error);
  handle response = response_new(fields);
  if (status != 200) response_status(response, status);
  response_body(response, result);
  respond(out, 0, (u32)response, 0, 0, 0, 0, 0, 0);
  return (handle)result[1];
}

static int put(handle stream, const void *bytes, u32 length) {
  u32 result[3];
  write_all(stream, bytes, length, result);
  return (result[0] & 0xff) == 0;
}

static handle writer(handle body) {
  u32 result[2];
  out_body_write(body, result);
  return (handle)result[1];
}

static void finish(handle body, u32 has_trailers, handle trailers) {
  u64 result[8];
  out_body_finish(body, has_trailers, trailers, result);
}

static void say(handle out, u32 status, const char *text, u32 length) {
  handle body = begin(out, status, 1, length);
  handle stream = writer(body);
  put(stream, text, length);
  output_drop(stream);
  finish(body, 0, 0);
}

static void echo(handle request, handle out) {
  u32 result[4];
  u64 trailers[8];
  request_consume(request, result);
  handle incoming = (handle)result[1];
  in_body_stream(incoming, result);
  handle input = (handle)result[1];
  handle body = begin(out, 200, 0, 0);
  handle output = writer(body);
  for (;;) {
    used = 0;
    read_some(input, 65536, result);
    if ((result[0] & 0xff) != 0 || !put(output, (void *)result[1], result[2])) break;
  }
  input_drop(input);
  output_drop(output);
  handle future = in_body_finish(incoming);
  handle pollable = trailers_subscribe(future);
  pollable_block(pollable);
  pollable_drop(pollable);
  trailers_get(future, trailers);
  const u8 *got = (const u8 *)trailers;
  /* option at 0, result at 8, result at 16, option at 24, its handle at 28 */
  u32 has = got[0] == 1 && got[8] == 0 && got[16] == 0 && got[24] == 1;
  finish(body, has, has ? *(const handle *)(got + 28) : 0);
  trailers_drop(future);
}

static void count(handle out, u32 length) {
  static char text[65536];
  for (u32 each = 0; each < sizeof text; each++) text[each] = (char)('a' + each % 26);
  handle body = begin(out, 200, 1, length);
  handle stream = writer(body);
  for (u32 left = length; left > 0;) {
    u32 piece = left < sizeof text ? left : (u32)sizeof text;
    if (!put(stream, text, piece)) break;
    left -= piece;
  }
  output_drop(stream);
  finish(body, 0, 0);
}

static u32 calls;

EXPORT("wasi:http/incoming-handler@0.2.3#handle") void handle_request(handle request, handle out) {
  static const char *const METHODS[] = {"get", "head", "post", "put", "delete", "connect", "options", "trace", "patch"};
  u32 result[4];
  char text[12];
  used = 0;
  calls++;
  request_path(request, result);
  const char *path = (const char *)result[1];
  u32 length = result[2];
  if (starts(path, length, "/echo")) {
    echo(request, out);
  } else if (starts(path, length, "/count/")) {
    u32 wanted = 0;
    for (u32 at = 7; at < length; at++) wanted = wanted * 10 + (u32)(path[at] - '0');
    count(out, wanted);
  } else if (starts(path, length, "/method")) {
    request_method(request, result);
    u32 which = result[0] & 0xff;
    if (which < 9) say(out, 200, METHODS[which], length_of(METHODS[which]));
    else say(out, 200, (const char *)result[1], result[2]);
  } else if (starts(path, length, "/query")) {
    say(out, 200, path, length);
  } else if (starts(path, length, "/early")) {
    say(out, 202, "no", 2);
  } else if (starts(path, length, "/error")) {
    /* HTTP-request-denied */
    respond(out, 1, 15, 0, 0, 0, 0, 0, 0);
  } else if (starts(path, length, "/silent")) {
  } else if (starts(path, length, "/cut")) {
    handle body = begin(out, 200, 1, 10);
    handle stream = writer(body);
    put(stream, "short", 5);
    output_drop(stream);
    out_body_drop(body);
  } else if (starts(path, length, "/trap")) {
    __builtin_trap();
  } else if (starts(path, length, "/lose")) {
    open_kept(result);
    __builtin_trap();
  } else if (starts(path, length, "/doze")) {
    open_kept(result);
    pollable_block(subscribe_duration(3600000000000));
  } else if (starts(path, length, "/spin")) {
    for (volatile u32 turns = 0;; turns++) continue;
  } else if (starts(path, length, "/calls")) {
    say(out, 200, text, digits(calls, text));
  } else {
    say(out, 200, "hello world", 11);
  }
  request_drop(request);
}
