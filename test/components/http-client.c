/*
 * Asks by wasi:http/outgoing-handler, one request after the other: METHOD SCHEME AUTHORITY PATH BODY ("-": none; "=N": N
 * bytes). Each prints one line: the status and the body, its length where it is long, or the error code of the interface.
 * CONNECT_MS and FIRST_BYTE_MS of its environment are the limits of its patience.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define TYPES "wasi:http/types@0.2.3"
#define STREAMS "wasi:io/streams@0.2.3"
#define POLL "wasi:io/poll@0.2.3"

typedef int32_t handle;

IMPORT("wasi:http/outgoing-handler@0.2.3", "handle") void ask(handle, int, handle, uint8_t *);
IMPORT(TYPES, "[constructor]fields") handle fields_new(void);
IMPORT(TYPES, "[method]fields.append") void fields_append(handle, const char *, size_t, const void *, size_t, uint8_t *);
IMPORT(TYPES, "[constructor]outgoing-request") handle request_new(handle);
IMPORT(TYPES, "[method]outgoing-request.set-method") int set_method(handle, int, const char *, size_t);
IMPORT(TYPES, "[method]outgoing-request.set-scheme") int set_scheme(handle, int, int, const char *, size_t);
IMPORT(TYPES, "[method]outgoing-request.set-authority") int set_authority(handle, int, const char *, size_t);
IMPORT(TYPES, "[method]outgoing-request.set-path-with-query") int set_path(handle, int, const char *, size_t);
IMPORT(TYPES, "[method]outgoing-request.body") void request_body(handle, uint8_t *);
IMPORT(TYPES, "[method]outgoing-body.write") void body_write(handle, uint8_t *);
IMPORT(TYPES, "[static]outgoing-body.finish") void body_finish(handle, int, handle, uint8_t *);
IMPORT(TYPES, "[method]future-incoming-response.subscribe") handle future_subscribe(handle);
IMPORT(TYPES, "[method]future-incoming-response.get") void future_get(handle, uint8_t *);
IMPORT(TYPES, "[resource-drop]future-incoming-response") void future_drop(handle);
IMPORT(TYPES, "[constructor]request-options") handle options_new(void);
IMPORT(TYPES, "[method]request-options.set-connect-timeout") int set_connect(handle, int, uint64_t);
IMPORT(TYPES, "[method]request-options.set-first-byte-timeout") int set_first_byte(handle, int, uint64_t);
IMPORT(TYPES, "[method]incoming-response.status") int response_status(handle);
IMPORT(TYPES, "[method]incoming-response.consume") void response_consume(handle, uint8_t *);
IMPORT(TYPES, "[resource-drop]incoming-response") void response_drop(handle);
IMPORT(TYPES, "[method]incoming-body.stream") void incoming_stream(handle, uint8_t *);
IMPORT(TYPES, "[resource-drop]incoming-body") void incoming_drop(handle);
IMPORT(TYPES, "http-error-code") void http_error_code(handle, uint8_t *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void write_all(handle, const void *, size_t, uint8_t *);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void read_some(handle, uint64_t, uint8_t *);
IMPORT(STREAMS, "[resource-drop]input-stream") void input_drop(handle);
IMPORT(STREAMS, "[resource-drop]output-stream") void output_drop(handle);
IMPORT(POLL, "[method]pollable.block") void pollable_block(handle);
IMPORT(POLL, "[resource-drop]pollable") void pollable_drop(handle);

static const char *const CODES[] = {"DNS-timeout", "DNS-error", "destination-not-found", "destination-unavailable",
  "destination-IP-prohibited", "destination-IP-unroutable", "connection-refused", "connection-terminated",
  "connection-timeout", "connection-read-timeout", "connection-write-timeout", "connection-limit-reached",
  "TLS-protocol-error", "TLS-certificate-error", "TLS-alert-received", "HTTP-request-denied",
  "HTTP-request-length-required", "HTTP-request-body-size", "HTTP-request-method-invalid", "HTTP-request-URI-invalid",
  "HTTP-request-URI-too-long", "HTTP-request-header-section-size", "HTTP-request-header-size",
  "HTTP-request-trailer-section-size", "HTTP-request-trailer-size", "HTTP-response-incomplete",
  "HTTP-response-header-section-size", "HTTP-response-header-size", "HTTP-response-body-size",
  "HTTP-response-trailer-section-size", "HTTP-response-trailer-size", "HTTP-response-transfer-coding",
  "HTTP-response-content-coding", "HTTP-response-timeout", "HTTP-upgrade-failed", "HTTP-protocol-error", "loop-detected",
  "configuration-error", "internal-error"};

static _Alignas(8) uint8_t result[64];

static handle handle_at(int offset) {
  handle found;
  memcpy(&found, result + offset, sizeof found);
  return found;
}

/* 64 KiB at a time. */
static void send_body(handle body, const char *text) {
  static char piece[65536];
  long left = text[0] == '=' ? atol(text + 1) : (long)strlen(text);
  int is_text = text[0] != '=';
  memset(piece, 'b', sizeof piece);
  body_write(body, result);
  handle stream = handle_at(4);
  while (left > 0) {
    long length = left < (long)sizeof piece ? left : (long)sizeof piece;
    write_all(stream, is_text ? text : piece, (size_t)length, result);
    if (result[0] != 0) break;
    left -= length;
  }
  output_drop(stream);
  body_finish(body, 0, 0, result);
}

static void print_body(handle response) {
  char text[128];
  size_t kept = 0, total = 0;
  const char *end = "";
  response_consume(response, result);
  handle body = handle_at(4);
  incoming_stream(body, result);
  handle stream = handle_at(4);
  for (;;) {
    read_some(stream, 65536, result);
    if (result[0] != 0) {
      /* stream-error: last-operation-failed holds an error */
      if (result[4] == 0) {
        http_error_code(handle_at(8), result);
        end = result[0] == 1 ? CODES[result[8]] : "no http error";
      }
      break;
    }
    void *bytes = (void *)handle_at(4);
    size_t length = (size_t)handle_at(8);
    size_t more = length < sizeof text - 1 - kept ? length : sizeof text - 1 - kept;
    memcpy(text + kept, bytes, more);
    kept += more;
    total += length;
    free(bytes);
  }
  text[kept] = '\0';
  if (total > 100) printf("%zu bytes%s%s\n", total, *end ? " " : "", end);
  else printf("%s%s%s\n", text, *end ? " " : "", end);
  input_drop(stream);
  incoming_drop(body);
}

/* A duration of wasi:clocks is nanoseconds. */
static uint64_t milliseconds(const char *name, long otherwise) {
  const char *text = getenv(name);
  return (uint64_t)(text == NULL ? otherwise : atol(text)) * 1000000ull;
}

/* The error code of `result`, with what a TLS alert says. */
static void print_error(int at) {
  printf("%s", CODES[result[at]]);
  if (result[at] == 14) {
    if (result[at + 8]) printf(" %d", result[at + 9]);
    if (result[at + 12]) printf(" %.*s", (int)handle_at(at + 20), (const char *)handle_at(at + 16));
  }
  printf("\n");
}

static void fetch(char **argument) {
  static const char *const METHODS[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};
  const char *method = argument[0], *scheme = argument[1], *authority = argument[2], *path = argument[3], *body = argument[4];
  int which = 0;
  while (which < 9 && strcmp(METHODS[which], method) != 0) which++;
  handle headers = fields_new();
  fields_append(headers, "x-asked-by", 10, "component", 9, result);
  handle request = request_new(headers);
  int bad = set_method(request, which, method, strlen(method));
  bad |= set_scheme(request, 1, strcmp(scheme, "http") == 0 ? 0 : strcmp(scheme, "https") == 0 ? 1 : 2, scheme, strlen(scheme));
  bad |= set_authority(request, 1, authority, strlen(authority));
  bad |= set_path(request, 1, path, strlen(path));
  if (bad) {
    printf("refused before it was sent\n");
    return;
  }
  handle outgoing = 0;
  if (strcmp(body, "-") != 0) {
    request_body(request, result);
    outgoing = handle_at(4);
  }
  handle options = options_new();
  set_connect(options, 1, milliseconds("CONNECT_MS", 30000));
  set_first_byte(options, 1, milliseconds("FIRST_BYTE_MS", 500));
  ask(request, 1, options, result);
  if (result[0] != 0) {
    printf("%s\n", CODES[result[8]]);
    return;
  }
  handle future = handle_at(8);
  if (outgoing != 0) send_body(outgoing, body);
  handle pollable = future_subscribe(future);
  pollable_block(pollable);
  pollable_drop(pollable);
  future_get(future, result);
  if (result[16] != 0) print_error(24);
  else {
    handle response = handle_at(24);
    printf("%d ", response_status(response));
    print_body(response);
    response_drop(response);
  }
  future_drop(future);
}

int main(int argc, char **argv) {
  for (int each = 1; each + 4 < argc; each += 5) {
    fetch(argv + each);
    fflush(stdout);
  }
  return 0;
}
