/*
 * Serves wasi:http/handler of WASI 0.3, and uses wasi:sockets while it does. By its path, whose second word is mostly a port of the loopback,
 * behind which may be what tells it from others:
 *
 *   /tcp/PORT, /tcp6/PORT   connects, sends the path, ends its side, and answers with all that comes
 *   /udp/PORT               a datagram with the path, and the one that comes back
 *   /name/NAME              how many addresses it has
 *   /keep/PORT              connects and lets go of nothing: its instance has the connection from then on
 *   /wait/PORT              connects, and waits for what never comes; with /trap/PORT it traps once something has
 *   /hear/PORT              binds a UDP socket to the port, and waits for a datagram
 *   /leave/PORT             begins to, begins to connect to it by TCP as well, and traps
 *   /fault/                 traps at once
 *   /listen/PORT            waits for a connection, and waits for that one to say something
 *
 * What fails is answered as what it was and the number of the error code.
 */
#define NO_RUN
#include "async-serving.h"
#include "async-sockets.h"

#define LOOPBACK(port) 0, port, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0
#define ANYWHERE(port) 0, port, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0

enum { EXIT };

static u8 result[64] __attribute__((aligned(8)));
static u8 heard[64] __attribute__((aligned(8)));
static char answer[65536];
static u32 size;
/* The whole path, and its second word. */
static const char *path, *word;
static u32 path_size, word_size;

static void say(const char *what, u32 bytes) {
  for (u32 at = 0; at < bytes && size < sizeof answer; at++) ((volatile char *)answer)[size++] = what[at];
}

static void say_text(const char *what) { say(what, size_of(what)); }

static void say_number(u32 value) {
  char digits[10];
  u32 at = sizeof digits;
  do digits[--at] = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  say(digits + at, sizeof digits - at);
}

static u32 value(void) { return *(u32 *)(result + 4); }

static int well(const char *what) {
  if (result[0] == 0) return 1;
  say_text(what);
  say_text(": ");
  say_number(result[4]);
  return 0;
}

static int is(const char *name) {
  u32 at = 0;
  for (; name[at] != 0; at++)
    if (at + 1 >= path_size || path[at + 1] != name[at]) return 0;
  return at + 1 < path_size && path[at + 1] == '/';
}

static u32 port_of(void) {
  u32 port = 0;
  for (u32 at = 0; at < word_size && word[at] != '/'; at++) port = port * 10 + (u32)(word[at] - '0');
  return port;
}

static struct remote {
  u32 socket;
  u8 tag, none[3];
  u16 port;
  u8 octets[26];
} remote;

static void waited(u32 told) {
  static u32 alone;
  u32 event[2];
  if ((told & 0xf) == RETURNED) return;
  if (alone == 0) alone = set_new();
  join(told >> 4, alone);
  do set_wait(alone, event);
  while (event[0] != told >> 4 || event[1] != RETURNED);
  join(told >> 4, 0);
  subtask_drop(told >> 4);
}

/* 0: it has said why. */
static u32 connected(u32 family) {
  tcp_create(family, result);
  if (!well("create")) return 0;
  u32 socket = value();
  remote.socket = socket;
  remote.tag = (u8)family;
  remote.port = (u16)port_of();
  remote.octets[0] = family == 0 ? 127 : 0;
  remote.octets[3] = family == 0;
  remote.octets[20] = (u8)family;
  u32 told = tcp_connect(&remote, result);
  if (is("leave")) __builtin_trap();
  waited(told);
  if (well("connect")) return socket;
  tcp_drop(socket);
  return 0;
}

static void write_path(u32 into) {
  for (u32 at = 0; at < path_size;) {
    u32 told = settled(begin_write(into, path + at, path_size - at), into);
    if ((told & 0xf) != COMPLETED) return;
    at += told >> 4;
  }
}

static void over_tcp(u32 family) {
  static char piece[4096];
  u32 socket = connected(family), ends[2];
  if (socket == 0) return;
  u64 sent = new_sent();
  u32 into = (u32)(sent >> 32), future = tcp_send(socket, (u32)sent);
  tcp_receive(socket, ends);
  write_path(into);
  if (is("keep")) {
    say_text("kept");
    return;
  }
  if (is("wait") || is("trap")) {
    settled(begin_read(ends[0], piece, 1), ends[0]);
    __builtin_trap();
  }
  end_write(into);
  for (u32 told = COMPLETED; (told & 0xf) == COMPLETED;) {
    told = settled(begin_read(ends[0], piece, sizeof piece), ends[0]);
    say(piece, told >> 4);
  }
  end_read(ends[0]);
  drop_sent(future);
  drop_received(ends[1]);
  tcp_drop(socket);
}

static void over_udp(void) {
  udp_create(0, result);
  if (!well("create")) return;
  u32 socket = value();
  if (is("hear") || is("leave")) {
    udp_bind(socket, ANYWHERE(port_of()), result);
    if (!well("bind")) return;
  } else udp_send(socket, path, path_size, 1, LOOPBACK(port_of()), result);
  if (well("send")) {
    u32 told = begin_udp_receive(socket, heard);
    if (is("leave")) connected(0);
    waited(told);
    for (u32 at = 0; at < sizeof heard; at++) ((volatile u8 *)result)[at] = heard[at];
    if (well("receive")) say((const char *)value(), *(u32 *)(result + 8));
  }
  udp_drop(socket);
}

static void listening(void) {
  static char piece;
  tcp_create(0, result);
  if (!well("create")) return;
  u32 socket = value(), took, ends[2];
  tcp_bind(socket, ANYWHERE(port_of()), result);
  if (!well("bind")) return;
  tcp_listen(socket, result);
  if (!well("listen")) return;
  u32 stream = value();
  settled(begin_accept(stream, &took, 1), stream);
  tcp_receive(took, ends);
  settled(begin_read(ends[0], &piece, 1), ends[0]);
}

static void resolved(void) {
  resolve(word, word_size, result);
  if (well("lookup")) say_number(*(u32 *)(result + 8));
}

static void respond(void) {
  u32 made[2];
  u64 contents = new_contents(), trailers = new_trailers();
  new_response(new_fields(), 1, (u32)contents, (u32)trailers, made);
  task_return(0, made[0], 0, 0, 0, 0, 0, 0);
  u32 into = (u32)(contents >> 32), writer = (u32)(trailers >> 32);
  for (u32 at = 0; at < size;) {
    u32 told = settled(begin_answer(into, answer + at, size - at), into);
    if ((told & 0xf) != COMPLETED) break;
    at += told >> 4;
  }
  end_answer(into);
  settled(begin_trailers(writer, none), writer);
  end_trailers(writer);
  drop_answered(made[1]);
}

EXPORT("[async-lift]wasi:http/handler@0.3.0#handle") u32 handle(u32 request) {
  u32 before = used, told[3];
  get_path(request, told);
  drop_request(request);
  path = (const char *)told[1];
  path_size = told[2];
  word = path + 1;
  while (word < path + path_size && *word++ != '/') {}
  word_size = (u32)(path + path_size - word);
  size = 0;
  if (is("fault")) __builtin_trap();
  if (is("udp") || is("hear") || is("leave")) over_udp();
  else if (is("listen")) listening();
  else if (is("name")) resolved();
  else over_tcp(is("tcp6"));
  respond();
  used = before;
  return EXIT;
}

EXPORT("[callback][async-lift]wasi:http/handler@0.3.0#handle") u32 called(u32 event, u32 waitable, u32 payload) {
  (void)event;
  (void)waitable;
  (void)payload;
  __builtin_trap();
}
