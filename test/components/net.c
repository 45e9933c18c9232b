/*
 * The network as a component sees it, by wasi:sockets called by hand, one thing after the other:
 *   lookup NAME | connect ADDRESS PORT | fetch NAME PORT TEXT | echo PORT COUNT | ask ADDRESS PORT TEXT | hoard
 * Each step prints one line: what came of it, or the error code of the interface. ADDRESS is of IPv4.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define VERSION "@0.2.3"
#define TCP "wasi:sockets/tcp" VERSION
#define UDP "wasi:sockets/udp" VERSION
#define NAMES "wasi:sockets/ip-name-lookup" VERSION
#define STREAMS "wasi:io/streams" VERSION
#define POLL "wasi:io/poll" VERSION

typedef int32_t handle;
/* An ip-socket-address as parameters: which of the two, port, and for IPv4 four octets. */
#define ADDRESS int, int, int, int, int, int, int, int, int, int, int, int
#define IPV4(octets, port) 0, port, octets[0], octets[1], octets[2], octets[3], 0, 0, 0, 0, 0, 0

IMPORT("wasi:sockets/instance-network" VERSION, "instance-network") handle instance_network(void);
IMPORT(NAMES, "resolve-addresses") void resolve_addresses(handle, const char *, size_t, uint8_t *);
IMPORT(NAMES, "[method]resolve-address-stream.resolve-next-address") void next_address(handle, uint8_t *);
IMPORT(NAMES, "[method]resolve-address-stream.subscribe") handle lookup_subscribe(handle);
IMPORT("wasi:sockets/tcp-create-socket" VERSION, "create-tcp-socket") void create_tcp(int, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.start-bind") void tcp_start_bind(handle, handle, ADDRESS, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.finish-bind") void tcp_finish_bind(handle, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.start-connect") void tcp_start_connect(handle, handle, ADDRESS, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.finish-connect") void tcp_finish_connect(handle, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.start-listen") void tcp_start_listen(handle, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.finish-listen") void tcp_finish_listen(handle, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.accept") void tcp_accept(handle, uint8_t *);
IMPORT(TCP, "[method]tcp-socket.subscribe") handle tcp_subscribe(handle);
IMPORT(TCP, "[resource-drop]tcp-socket") void tcp_drop(handle);
IMPORT("wasi:sockets/udp-create-socket" VERSION, "create-udp-socket") void create_udp(int, uint8_t *);
IMPORT(UDP, "[method]udp-socket.start-bind") void udp_start_bind(handle, handle, ADDRESS, uint8_t *);
IMPORT(UDP, "[method]udp-socket.finish-bind") void udp_finish_bind(handle, uint8_t *);
IMPORT(UDP, "[method]udp-socket.subscribe") handle udp_subscribe(handle);
IMPORT(UDP, "[method]udp-socket.stream") void udp_stream(handle, int, ADDRESS, uint8_t *);
IMPORT(UDP, "[method]outgoing-datagram-stream.check-send") void udp_check_send(handle, uint8_t *);
IMPORT(UDP, "[method]outgoing-datagram-stream.send") void udp_send(handle, const void *, size_t, uint8_t *);
IMPORT(UDP, "[method]incoming-datagram-stream.receive") void udp_receive(handle, uint64_t, uint8_t *);
IMPORT(UDP, "[method]incoming-datagram-stream.subscribe") handle udp_incoming(handle);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void write_all(handle, const void *, size_t, uint8_t *);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void read_some(handle, uint64_t, uint8_t *);
IMPORT(STREAMS, "[resource-drop]input-stream") void input_drop(handle);
IMPORT(STREAMS, "[resource-drop]output-stream") void output_drop(handle);
IMPORT(POLL, "[method]pollable.block") void pollable_block(handle);
IMPORT(POLL, "[resource-drop]pollable") void pollable_drop(handle);

static const char *CODES[] = {"unknown", "access-denied", "not-supported", "invalid-argument", "out-of-memory", "timeout",
  "concurrency-conflict", "not-in-progress", "would-block", "invalid-state", "new-socket-limit", "address-not-bindable",
  "address-in-use", "remote-unreachable", "connection-refused", "connection-reset", "connection-aborted",
  "datagram-too-large", "name-unresolvable", "temporary-resolver-failure", "permanent-resolver-failure"};

/* What the last call came to: 0 in its first byte is success. */
static _Alignas(8) uint8_t result[64];
static handle network;

static handle handle_at(int offset) { return *(handle *)(result + offset); }

/* Whether it went well; the code's offset depends on what success would be. */
static int well(const char *what, int code_at) {
  if (result[0] == 0) return 1;
  printf("%s: %s\n", what, CODES[result[code_at]]);
  return 0;
}

static void wait_for(handle pollable) {
  pollable_block(pollable);
  pollable_drop(pollable);
}

static int parse(const char *text, int *octets) {
  return sscanf(text, "%d.%d.%d.%d", octets, octets + 1, octets + 2, octets + 3) == 4;
}

/* The first address of IPv4. */
static int lookup(const char *name, int *octets) {
  resolve_addresses(network, name, strlen(name), result);
  if (!well("lookup", 4)) return 0;
  handle stream = handle_at(4);
  wait_for(lookup_subscribe(stream));
  for (;;) {
    next_address(stream, result);
    if (!well("lookup", 2)) return 0;
    if (result[2] == 0) return printf("lookup: nothing\n"), 0;
    if (result[4] != 0) continue;
    for (int i = 0; i < 4; i++) octets[i] = result[6 + i];
    return 1;
  }
}

static handle tcp_connect(const int *octets, int port, handle *input, handle *output) {
  create_tcp(0, result);
  if (!well("create", 4)) return 0;
  handle socket = handle_at(4);
  tcp_start_connect(socket, network, IPV4(octets, port), result);
  if (!well("connect", 1)) return 0;
  wait_for(tcp_subscribe(socket));
  tcp_finish_connect(socket, result);
  if (!well("connect", 4)) return 0;
  *input = handle_at(4);
  *output = handle_at(8);
  return socket;
}

static void fetch(const char *name, int port, const char *text) {
  int octets[4];
  handle input, output;
  if ((!parse(name, octets) && !lookup(name, octets)) || !tcp_connect(octets, port, &input, &output)) return;
  write_all(output, text, strlen(text), result);
  output_drop(output);
  printf("got: ");
  for (;;) {
    read_some(input, 65536, result);
    if (result[0] != 0) break;
    fwrite((void *)handle_at(4), 1, (size_t)handle_at(8), stdout);
    free((void *)handle_at(4));
  }
  printf("\n");
}

/* Takes so many connections, one after the other, and gives back what each says. */
static void echo(int port, int count) {
  int any[4] = {0, 0, 0, 0};
  create_tcp(0, result);
  if (!well("create", 4)) return;
  handle socket = handle_at(4);
  tcp_start_bind(socket, network, IPV4(any, port), result);
  if (!well("bind", 1)) return;
  tcp_finish_bind(socket, result);
  if (!well("bind", 1)) return;
  tcp_start_listen(socket, result);
  if (!well("listen", 1)) return;
  tcp_finish_listen(socket, result);
  printf("listening\n");
  fflush(stdout);
  for (int i = 0; i < count; i++) {
    wait_for(tcp_subscribe(socket));
    tcp_accept(socket, result);
    if (!well("accept", 4)) return;
    handle client = handle_at(4), input = handle_at(8), output = handle_at(12);
    for (;;) {
      read_some(input, 4096, result);
      if (result[0] != 0) break;
      void *bytes = (void *)handle_at(4);
      write_all(output, bytes, (size_t)handle_at(8), result);
      free(bytes);
      if (result[0] != 0) break;
    }
    input_drop(input);
    output_drop(output);
    tcp_drop(client);
  }
  printf("echoed %d\n", count);
}

/* One datagram, and the answer to it. */
static void ask(const int *octets, int port, const char *text) {
  int any[4] = {0, 0, 0, 0};
  create_udp(0, result);
  if (!well("create", 4)) return;
  handle socket = handle_at(4);
  udp_start_bind(socket, network, IPV4(any, 0), result);
  if (!well("bind", 1)) return;
  wait_for(udp_subscribe(socket));
  udp_finish_bind(socket, result);
  udp_stream(socket, 1, IPV4(octets, port), result);
  if (!well("stream", 4)) return;
  handle incoming = handle_at(4), outgoing = handle_at(8);
  struct { const char *data; size_t length; uint8_t is_set; uint8_t rest[35]; } datagram = {text, strlen(text), 0, {0}};
  udp_check_send(outgoing, result);
  udp_send(outgoing, &datagram, 1, result);
  if (!well("send", 8)) return;
  wait_for(udp_incoming(incoming));
  udp_receive(incoming, 1, result);
  if (!well("receive", 4)) return;
  struct { char *data; size_t length; } *answer = (void *)handle_at(4);
  printf("answer: %.*s\n", (int)answer->length, answer->data);
}

static void hoard(void) {
  for (int count = 0;; count++) {
    create_tcp(0, result);
    if (result[0] == 0) continue;
    printf("%d sockets, then %s\n", count, CODES[result[4]]);
    return;
  }
}

int main(int argc, char **argv) {
  network = instance_network();
  for (int i = 1; i < argc;) {
    const char *step = argv[i];
    const char **given = (const char **)argv + i + 1;
    int octets[4];
    handle input, output;
    if (strcmp(step, "lookup") == 0) {
      if (lookup(given[0], octets)) printf("%d.%d.%d.%d\n", octets[0], octets[1], octets[2], octets[3]);
      i += 2;
    } else if (strcmp(step, "connect") == 0 && parse(given[0], octets)) {
      if (tcp_connect(octets, atoi(given[1]), &input, &output)) printf("connected\n");
      i += 3;
    } else if (strcmp(step, "fetch") == 0) {
      fetch(given[0], atoi(given[1]), given[2]);
      i += 4;
    } else if (strcmp(step, "echo") == 0) {
      echo(atoi(given[0]), atoi(given[1]));
      i += 3;
    } else if (strcmp(step, "ask") == 0 && parse(given[0], octets)) {
      ask(octets, atoi(given[1]), given[2]);
      i += 4;
    } else if (strcmp(step, "hoard") == 0) {
      hoard();
      i += 1;
    } else {
      fprintf(stderr, "net: what is \"%s\"?\n", step);
      return 1;
    }
    fflush(stdout);
  }
  return 0;
}
