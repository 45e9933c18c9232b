/*
 * Serves wasi:http/incoming-handler without a C library, by asking others: /AUTHORITY asks https://AUTHORITY/ and answers with the
 * status that came of it, or with `error` and the number of the error code's case.
 */
#include "http-serving.h"

IMPORT("wasi:http/outgoing-handler@0.2.3", "handle") extern void ask(handle, int, handle, u8 *);
IMPORT(TYPES, "[constructor]outgoing-request") extern handle outgoing_new(handle);
IMPORT(TYPES, "[method]outgoing-request.set-authority") extern int set_authority(handle, int, const char *, u32);
IMPORT(TYPES, "[method]future-incoming-response.subscribe") extern handle future_subscribe(handle);
IMPORT(TYPES, "[method]future-incoming-response.get") extern void future_get(handle, u8 *);
IMPORT(TYPES, "[resource-drop]future-incoming-response") extern void future_drop(handle);
IMPORT(TYPES, "[method]incoming-response.status") extern int incoming_status(handle);
IMPORT(TYPES, "[resource-drop]incoming-response") extern void incoming_drop(handle);

/* The status; less than 0: an error code, of which the first is -1. */
static int asked(const char *authority, u32 length) {
  static _Alignas(8) u8 result[64];
  handle request = outgoing_new(fields_new());
  set_authority(request, 1, authority, length);
  ask(request, 0, 0, result);
  if (result[0] != 0) return -1 - result[8];
  handle future = *(handle *)(result + 8);
  handle pollable = future_subscribe(future);
  pollable_block(pollable);
  pollable_drop(pollable);
  future_get(future, result);
  int status = -1 - result[24];
  if (result[16] == 0) {
    handle response = *(handle *)(result + 24);
    status = incoming_status(response);
    incoming_drop(response);
  }
  future_drop(future);
  return status;
}

static void say(handle out, int status) {
  u32 result[4];
  char text[16] = "error ";
  u32 length = status < 0 ? 6 : 0;
  u32 number = (u32)(status < 0 ? -1 - status : status);
  for (u32 scale = 100; scale > 0; scale /= 10) text[length++] = (char)('0' + number / scale % 10);
  handle response = response_new(fields_new());
  response_body(response, result);
  handle body = (handle)result[1];
  respond(out, 0, (u32)response, 0, 0, 0, 0, 0, 0);
  out_body_write(body, result);
  handle stream = (handle)result[1];
  write_all(stream, text, length, result);
  output_drop(stream);
  u64 finished[8];
  out_body_finish(body, 0, 0, finished);
}

EXPORT("wasi:http/incoming-handler@0.2.3#handle") void handle_request(handle request, handle out) {
  u32 path[3];
  used = 0;
  request_path(request, path);
  say(out, asked((const char *)path[1] + 1, path[2] - 1));
  request_drop(request);
}
