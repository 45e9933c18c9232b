/*
 * wasi:sockets of WASI 0.3. ADDRESS may be of IPv6, as eight groups or with `::`; `six` after all else stands for IPv6 where there is none.
 *
 *   fetch ADDRESS PORT TEXT [TIMES]   connects, sends, ends its side, says what comes and how both sides ended
 *   late ADDRESS PORT TEXT            the other way round: reads to the end first, sends then
 *   early ADDRESS PORT WAY            lets go of what it has in one order or another, says what still works
 *   again ADDRESS PORT TIMES          the same connection over and over; a dot each 500
 *   flood ADDRESS PORT TIMES          TIMES times 4 KiB, a dot each 16
 *   hold ADDRESS PORT                 reads nothing of a first connection until a second one says so; how much came then
 *   serve PORT COUNT [six]            gives COUNT connections back what each says, up to 64 at a time; a dot each 500
 *   refuse PORT [six]                 listens, and lets go of the stream of connections
 *   cancel PORT                       the same after it has waited for one and thought better of it
 *   ask ADDRESS PORT TEXT [WAY]       a datagram and the answer to it; with `connected` by connect
 *   vanish PORT COUNT [six]           takes COUNT connections only when a datagram has come, says how each ends
 *   answer PORT COUNT [six]           gives COUNT datagrams back
 *   burst ADDRESS PORT COUNT SIZE     so many datagrams at once; how many went well
 *   lookup NAME, hoard, states, options
 */
#include "async-sockets.h"

#define IPV4(octets, port) 0, port, octets[0], octets[1], octets[2], octets[3], 0, 0, 0, 0, 0, 0
#define AT(to, port) (to)->is_six, port, (to)->parts[0], (to)->parts[1], (to)->parts[2], (to)->parts[3], (to)->parts[4], \
  (to)->parts[5], (to)->parts[6], (to)->parts[7], (to)->parts[8], (to)->parts[9]

static const char *CODES[] = {"access-denied", "not-supported", "invalid-argument", "out-of-memory", "timeout",
  "invalid-state", "address-not-bindable", "address-in-use", "remote-unreachable", "connection-refused",
  "connection-broken", "connection-reset", "connection-aborted", "datagram-too-large", "other"};
static const char *NAME_CODES[] = {"access-denied", "invalid-argument", "name-unresolvable",
  "temporary-resolver-failure", "permanent-resolver-failure", "other"};

/* What the last call came to: 0 in its first byte is success, what it gives or the error code comes four bytes later. */
static u8 result[64] __attribute__((aligned(8)));
static char chunk[4096];
static const u32 ANY[4];

static u32 value(void) { return *(u32 *)(result + 4); }

static void put_line(const char *what) {
  put_text(what);
  put_text("\n");
}

/* Of a variant whose last case is `other`, with a text or none. */
static void put_code(const char *const *names, u32 other, const u8 *code) {
  put_text(names[code[0]]);
  if (code[0] == other && code[4] != 0) {
    put_text(" (");
    put((const char *)*(u32 *)(code + 8), *(u32 *)(code + 12));
    put_text(")");
  }
}

static void tell_of(const char *what, const u8 *told) {
  put_text(what);
  put_text(": ");
  if (told[0] == 0) put_text("ok");
  else put_code(CODES, 14, told + 4);
  put_text("\n");
}

static void tell(const char *what) { tell_of(what, result); }

static int well(const char *what) {
  if (result[0] == 0) return 1;
  tell(what);
  return 0;
}

static void tell_number(const char *what, u64 told) {
  put_text(what);
  put_text(" ");
  put_number(told);
  put_text("\n");
}

static int is_digit(char letter) { return letter >= '0' && letter <= '9'; }

static void octets_of(u32 word, u32 *octets) {
  const char *from = text(word), *end = from + length(word);
  for (u32 at = 0; at < 4; at++) {
    octets[at] = 0;
    for (; from < end && is_digit(*from); from++) octets[at] = octets[at] * 10 + (u32)(*from - '0');
    from++;
  }
}

struct address { u32 is_six, parts[10]; };

static u32 hexadecimal(char letter) { return (u32)(letter <= '9' ? letter - '0' : letter - 'a' + 10); }

/* With `::` or without. */
static void groups_of(const char *from, const char *end, u32 *groups) {
  u32 at = 0, behind = 8;
  for (; from < end && at < 8; from++) {
    if (*from == ':') {
      behind = at;
      continue;
    }
    for (; from < end && *from != ':'; from++) groups[at] = groups[at] * 16 + hexadecimal(*from);
    at++;
  }
  for (u32 left = at; behind < left; left--) {
    groups[8 - at + left - 1] = groups[left - 1];
    if (at < 8) groups[left - 1] = 0;
  }
}

/* As they are in memory behind `none` of a socket. */
static struct address address_of(u32 word) {
  struct address to;
  const char *from = text(word), *end = from + length(word);
  to.is_six = 0;
  for (u32 at = 0; at < 10; at++) ((volatile u32 *)to.parts)[at] = 0;
  for (const char *each = from; each < end; each++) to.is_six |= *each == ':';
  if (to.is_six) groups_of(from, end, to.parts + 1);
  else octets_of(word, to.parts);
  return to;
}

/* Anywhere, by the family that the last word tells of. */
static struct address anywhere(void) {
  struct address all;
  all.is_six = (u32)is_at(count - 1, "six");
  for (u32 at = 0; at < 10; at++) ((volatile u32 *)all.parts)[at] = 0;
  return all;
}

static void put_octets(u8 *octets, const struct address *to) {
  if (to->is_six == 0) {
    for (u32 at = 0; at < 4; at++) octets[at] = (u8)to->parts[at];
    return;
  }
  for (u32 at = 0; at < 8; at++) *(u16 *)(octets + 6 + 2 * at) = (u16)to->parts[at + 1];
}

static struct address address_in(const u8 *told) {
  struct address from;
  from.is_six = told[0];
  for (u32 at = 0; at < 10; at++) ((volatile u32 *)from.parts)[at] = 0;
  if (from.is_six) {
    for (u32 at = 0; at < 8; at++) ((volatile u32 *)from.parts)[at + 1] = *(const u16 *)(told + 12 + 2 * at);
    return from;
  }
  for (u32 at = 0; at < 4; at++) ((volatile u32 *)from.parts)[at] = told[6 + at];
  return from;
}

static u32 waited(u32 status, u8 *told) {
  static u32 alone;
  u32 event[2];
  if ((status & 0xf) == RETURNED) return told[0];
  if (alone == 0) alone = set_new();
  join(status >> 4, alone);
  do set_wait(alone, event);
  while (event[0] != status >> 4 || event[1] != RETURNED);
  join(status >> 4, 0);
  subtask_drop(status >> 4);
  return told[0];
}

struct remote {
  u32 socket;
  u8 tag, none[3];
  u16 port;
  u8 octets[26];
};

static int connected(u32 socket, u32 word) {
  static struct remote to;
  struct address address = address_of(word);
  to.socket = socket;
  to.tag = (u8)address.is_six;
  to.port = (u16)number(word + 1);
  put_octets(to.octets, &address);
  return waited(tcp_connect(&to, result), result) == 0;
}

/* 0: it has said why. */
static u32 opened(void) {
  tcp_create(address_of(2).is_six, result);
  if (!well("create")) return 0;
  u32 socket = value();
  if (connected(socket, 2)) return socket;
  tell("connect");
  tcp_drop(socket);
  return 0;
}

/* 0: nobody reads any more. */
static int write_all(u32 into, const void *what, u32 size) {
  for (u32 at = 0; at < size;) {
    u32 told = settled(begin_write(into, (const u8 *)what + at, size - at), into);
    if ((told & 0xf) != COMPLETED) return 0;
    at += told >> 4;
  }
  return 1;
}

/* To its end. */
static u32 read_all(u32 from, int says) {
  for (u32 sum = 0;;) {
    u32 told = settled(begin_read(from, chunk, sizeof chunk), from);
    if (says) put(chunk, told >> 4);
    sum += told >> 4;
    if ((told & 0xf) != COMPLETED) return sum;
  }
}

static void tell_sent(u32 future) {
  settled(begin_sent(future, result), future);
  drop_sent(future);
  tell("sent");
}

static void tell_received(u32 future) {
  settled(begin_received(future, result), future);
  drop_received(future);
  tell("received");
}

static void fetch(int late) {
  u32 socket = opened(), ends[2], times = count > 5 ? number(5) : 1;
  if (socket == 0) return;
  u64 sent = new_sent();
  u32 into = (u32)(sent >> 32), future = tcp_send(socket, (u32)sent);
  tcp_receive(socket, ends);
  if (late) {
    read_all(ends[0], 1);
    put_text("\n");
  }
  for (; times > 0 && write_all(into, text(4), length(4)); times--) {}
  end_write(into);
  if (!late) {
    read_all(ends[0], 1);
    put_text("\n");
  }
  end_read(ends[0]);
  tell_sent(future);
  tell_received(ends[1]);
  tcp_drop(socket);
}

static void early(void) {
  u32 socket = opened(), ends[2];
  if (socket == 0) return;
  if (is_at(4, "socket")) {
    tcp_drop(socket);
    put_line("dropped");
    return;
  }
  u64 sent = new_sent();
  u32 into = (u32)(sent >> 32), future = tcp_send(socket, (u32)sent);
  tcp_receive(socket, ends);
  if (is_at(4, "handle")) {
    tcp_drop(socket);
    write_all(into, "after the handle", 16);
    end_write(into);
    read_all(ends[0], 1);
    put_text("\n");
    end_read(ends[0]);
    tell_sent(future);
    tell_received(ends[1]);
    return;
  }
  if (is_at(4, "reader")) {
    settled(begin_read(ends[0], chunk, 1), ends[0]);
    end_read(ends[0]);
    tell_received(ends[1]);
    write_all(into, "after the reader", 16);
    end_write(into);
    tell_sent(future);
  } else if (is_at(4, "futures")) {
    drop_sent(future);
    drop_received(ends[1]);
    write_all(into, "after the futures", 17);
    end_write(into);
    read_all(ends[0], 1);
    put_text("\n");
    end_read(ends[0]);
  } else if (is_at(4, "twice")) {
    u64 second = new_sent();
    u32 again[2];
    end_write((u32)(second >> 32));
    tell_sent(tcp_send(socket, (u32)second));
    tcp_receive(socket, again);
    put_number(read_all(again[0], 1));
    put_text("\n");
    end_read(again[0]);
    tell_received(again[1]);
    end_write(into);
    end_read(ends[0]);
    drop_sent(future);
    drop_received(ends[1]);
  } else {
    end_write(into);
    end_read(ends[0]);
    drop_sent(future);
    drop_received(ends[1]);
  }
  tcp_drop(socket);
}

static void again(void) {
  for (u32 times = number(4); times > 0; times--) {
    u32 before = used, socket = opened(), ends[2];
    if (socket == 0) return;
    u64 sent = new_sent();
    u32 into = (u32)(sent >> 32), future = tcp_send(socket, (u32)sent);
    tcp_receive(socket, ends);
    if (!write_all(into, "x", 1)) __builtin_trap();
    end_write(into);
    if (read_all(ends[0], 0) != 1) __builtin_trap();
    end_read(ends[0]);
    settled(begin_sent(future, result), future);
    drop_sent(future);
    if (result[0] != 0) __builtin_trap();
    settled(begin_received(ends[1], result), ends[1]);
    drop_received(ends[1]);
    if (result[0] != 0) __builtin_trap();
    tcp_drop(socket);
    used = before;
    if (times % 500 == 1) put_text(".\n");
  }
  put_line("ok");
}

static void flood(void) {
  u32 socket = opened();
  if (socket == 0) return;
  u64 sent = new_sent();
  u32 into = (u32)(sent >> 32), future = tcp_send(socket, (u32)sent), times = 0;
  for (u32 at = 0; at < sizeof chunk; at++) ((volatile char *)chunk)[at] = 'x';
  for (; times < number(4) && write_all(into, chunk, sizeof chunk); times++) {
    if (times % 16 == 0) put_text(".");
  }
  end_write(into);
  put_number(times);
  put_text("\n");
  tell_sent(future);
  tcp_drop(socket);
}

static void hold(void) {
  u32 first = opened(), second = opened(), ends[2], word[2];
  if (first == 0 || second == 0) return;
  tcp_receive(first, ends);
  tcp_receive(second, word);
  put_line("holds");
  settled(begin_read(word[0], chunk, 1), word[0]);
  put_number(read_all(ends[0], 0));
  put_text("\n");
  tell_received(ends[1]);
}

enum { FREE, READING, WRITING };
enum { CLIENTS = 64, PIECE = 1024 };
static struct client {
  u32 socket, in, received, out, sent, state, at, size;
  int is_last, keeps, waits;
} clients[CLIENTS];
static char pieces[CLIENTS][PIECE];
static u32 events;
static u32 ended;

static void gone(struct client *client) {
  end_write(client->out);
  end_read(client->in);
  drop_sent(client->sent);
  drop_received(client->received);
  if (client->keeps) tcp_drop(client->socket);
  client->state = FREE;
  if (++ended % 500 == 0) put_text(".\n");
}

/* What a step of a client's has come to. */
static void stepped(struct client *client, u32 told) {
  if (client->state == READING) {
    client->is_last = (told & 0xf) != COMPLETED;
    client->at = 0;
    client->size = told >> 4;
    client->state = WRITING;
  } else if ((told & 0xf) != COMPLETED) {
    client->is_last = 1;
    client->at = client->size;
  } else client->at += told >> 4;
}

static void advance(struct client *client) {
  for (;;) {
    if (client->state == FREE || client->waits) return;
    if (client->state == WRITING && client->at == client->size) {
      if (client->is_last) {
        gone(client);
        return;
      }
      client->state = READING;
    }
    char *piece = pieces[client - clients];
    u32 waitable = client->state == READING ? client->in : client->out;
    u32 told = client->state == READING ? begin_read(waitable, piece, PIECE)
                                        : begin_write(waitable, piece + client->at, client->size - client->at);
    if (told == (u32)BLOCKED) {
      client->waits = 1;
      join(waitable, events);
      return;
    }
    stepped(client, told);
  }
}

static void accepted(u32 socket, u32 keeps) {
  u32 at = 0, ends[2];
  while (clients[at].state != FREE) at++;
  struct client *client = &clients[at];
  u64 sent = new_sent();
  tcp_receive(socket, ends);
  *client = (struct client){.socket = socket, .in = ends[0], .received = ends[1], .out = (u32)(sent >> 32),
    .sent = tcp_send(socket, (u32)sent), .state = READING, .keeps = (int)keeps};
  if (!keeps) tcp_drop(socket);
  advance(client);
}

static u32 listening(u32 word) {
  struct address all = anywhere();
  tcp_create(all.is_six, result);
  if (!well("create")) return 0;
  u32 socket = value();
  tcp_bind(socket, AT(&all, number(word)), result);
  if (!well("bind")) return 0;
  tcp_listen(socket, result);
  if (!well("listen")) return 0;
  u32 stream = value();
  tcp_local(socket, result);
  put_text(tcp_is_listening(socket) ? "listening " : "idle ");
  put_number(*(u16 *)(result + 8));
  put_text("\n");
  return stream;
}

static void serve(void) {
  u32 stream = listening(2), begun = 0, total = number(3), live = 0, took[2], waits = 0, event[2];
  if (stream == 0) return;
  events = set_new();
  for (u32 told = 0; ended < total;) {
    live = begun - ended;
    while (!waits && begun < total && live + 2 <= CLIENTS) {
      told = begin_accept(stream, took, 2);
      if (told == (u32)BLOCKED) {
        waits = 1;
        join(stream, events);
        break;
      }
      for (u32 at = 0; at < told >> 4; at++) accepted(took[at], begun++ % 2);
      live = begun - ended;
    }
    if (ended >= total) break;
    set_wait(events, event);
    join(event[0], 0);
    if (waits && event[0] == stream) {
      waits = 0;
      for (u32 at = 0; at < event[1] >> 4; at++) accepted(took[at], begun++ % 2);
      if ((event[1] & 0xf) != COMPLETED) break;
    } else {
      for (u32 at = 0; at < CLIENTS; at++) {
        struct client *client = &clients[at];
        if (client->state == FREE || event[0] != (client->state == READING ? client->in : client->out)) continue;
        client->waits = 0;
        stepped(client, event[1]);
        advance(client);
        break;
      }
    }
  }
  end_accept(stream);
  put_text("served ");
  put_number(ended);
  put_text("\n");
}

/* For datagrams on the same port. 0: it has said why. */
static u32 told_socket(void) {
  struct address all = anywhere();
  udp_create(all.is_six, result);
  if (!well("create")) return 0;
  u32 socket = value();
  udp_bind(socket, AT(&all, number(2)), result);
  return well("bind") ? socket : 0;
}

/* Waits for one. */
static void told_by(u32 socket) {
  udp_receive(socket, result);
  tell("told");
}

static void refuse(int cancels) {
  u32 stream = listening(2), took;
  if (stream == 0) return;
  u32 socket = told_socket();
  if (socket == 0) return;
  if (cancels) {
    if (begin_accept(stream, &took, 1) != (u32)BLOCKED) __builtin_trap();
    tell_number("cancelled", cancel_accept(stream) & 0xf);
    told_by(socket);
  }
  end_accept(stream);
  put_line("refuses");
  told_by(socket);
}

static void vanish(void) {
  u32 stream = listening(2), took, ends[2];
  if (stream == 0) return;
  u32 socket = told_socket();
  if (socket == 0) return;
  told_by(socket);
  for (u32 left = number(3); left > 0; left--) {
    settled(begin_accept(stream, &took, 1), stream);
    tcp_receive(took, ends);
    put_number(read_all(ends[0], 0));
    put_text(" ");
    end_read(ends[0]);
    tell_received(ends[1]);
    tcp_drop(took);
  }
  end_accept(stream);
}

static void ask(void) {
  struct address to = address_of(2);
  udp_create(to.is_six, result);
  if (!well("create")) return;
  u32 socket = value(), alone = is_at(5, "connected");
  if (alone) {
    udp_connect(socket, AT(&to, number(3)), result);
    if (!well("connect")) return;
    udp_send(socket, text(4), length(4), 0, IPV4(ANY, 0), result);
  } else udp_send(socket, text(4), length(4), 1, AT(&to, number(3)), result);
  if (!well("send")) return;
  udp_receive(socket, result);
  if (!well("receive")) return;
  put_text("answer: ");
  put((const char *)value(), *(u32 *)(result + 8));
  put_text(" from ");
  put_number(*(u16 *)(result + 16));
  put_text("\n");
  if (!alone) return;
  udp_disconnect(socket, result);
  tell("disconnect");
  udp_disconnect(socket, result);
  tell("disconnect");
}

static void answer(void) {
  struct address all = anywhere();
  udp_create(all.is_six, result);
  if (!well("create")) return;
  u32 socket = value();
  udp_bind(socket, AT(&all, number(2)), result);
  if (!well("bind")) return;
  udp_local(socket, result);
  put_text("bound ");
  put_number(*(u16 *)(result + 8));
  put_text("\n");
  for (u32 left = number(3); left > 0; left--) {
    u32 before = used;
    udp_receive(socket, result);
    if (!well("receive")) return;
    struct address from = address_in(result + 12);
    udp_send(socket, (const void *)value(), *(u32 *)(result + 8), 1, AT(&from, *(u16 *)(result + 16)), result);
    if (!well("send")) return;
    used = before;
    if (left % 500 == 1) put_text(".\n");
  }
  put_line("answered");
}

static void burst(void) {
  static char large[70000];
  static struct {
    u32 socket;
    const void *data;
    u32 size;
    u8 is_given, none[3];
    u8 tag, more[3];
    u16 port;
    u8 octets[26];
  } message;
  static u8 results[256][32];
  static u32 calls[256];
  u32 fine = 0, first = 0;
  struct address to = address_of(2);
  udp_create(to.is_six, result);
  if (!well("create")) return;
  message.socket = value();
  message.data = large;
  message.size = number(5);
  message.is_given = 1;
  message.port = (u16)number(3);
  message.tag = (u8)to.is_six;
  put_octets(message.octets, &to);
  for (u32 at = 0; at < number(4); at++) calls[at] = begin_udp_send(&message, results[at]);
  for (u32 at = 0; at < number(4); at++) {
    if (waited(calls[at], results[at]) == 0) fine++;
    else if (first++ == 0) tell_of("send", results[at]);
  }
  put_number(fine);
  put_text(" sent\n");
}

static void lookup(void) {
  resolve(text(2), length(2), result);
  if (result[0] != 0) {
    put_text("lookup: ");
    put_code(NAME_CODES, 5, result + 4);
    put_text("\n");
    return;
  }
  /* Of 18 bytes: which it is, then from the second on. */
  const u8 *list = (const u8 *)value();
  for (u32 left = *(u32 *)(result + 8); left > 0; left--, list += 18) {
    for (u32 at = 0; at < (list[0] == 0 ? 4 : 8); at++) {
      if (at > 0) put_text(list[0] == 0 ? "." : ":");
      put_number(list[0] == 0 ? list[2 + at] : ((const u16 *)(list + 2))[at]);
    }
    put_text("\n");
  }
}

static void hoard(void) {
  for (u32 made = 0;; made++) {
    if (made % 2) tcp_create(0, result);
    else udp_create(0, result);
    if (result[0] == 0) continue;
    put_number(made);
    tell(" sockets");
    return;
  }
}

static void states(void) {
  u32 local[4] = {127, 0, 0, 1}, many[4] = {224, 0, 0, 1}, ends[2];
  tcp_create(0, result);
  if (!well("create")) return;
  u32 socket = value();
  tcp_local(socket, result), tell("local");
  tcp_remote(socket, result), tell("remote");
  tcp_bind(socket, IPV4(many, 0), result), tell("bind to many");
  tcp_bind(socket, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, result), tell("bind to the other family");
  u64 sent = new_sent();
  end_write((u32)(sent >> 32));
  tell_sent(tcp_send(socket, (u32)sent));
  tcp_receive(socket, ends);
  put_number(read_all(ends[0], 0));
  put_text("\n");
  end_read(ends[0]);
  tell_received(ends[1]);
  tcp_bind(socket, IPV4(local, 0), result), tell("bind");
  tcp_bind(socket, IPV4(local, 0), result), tell("bind again");
  tcp_local(socket, result), tell("local");
  connected(socket, 2), tell("connect to nobody");
  tcp_listen(socket, result), tell("listen");
  connected(socket, 2), tell("connect again");
  tcp_drop(socket);
  udp_create(0, result);
  socket = value();
  udp_local(socket, result), tell("UDP local");
  udp_remote(socket, result), tell("UDP remote");
  udp_receive(socket, result), tell("UDP receive");
  udp_disconnect(socket, result), tell("UDP disconnect");
  udp_send(socket, "x", 1, 0, IPV4(ANY, 0), result), tell("UDP send to nobody");
  udp_send(socket, "x", 1, 1, IPV4(local, 0), result), tell("UDP send to no port");
  udp_connect(socket, IPV4(ANY, 1), result), tell("UDP connect to nobody");
  udp_bind(socket, IPV4(local, 0), result), tell("UDP bind");
  udp_bind(socket, IPV4(local, 0), result), tell("UDP bind again");
  udp_drop(socket);
}

static void options(void) {
  u64 *wide = (u64 *)result;
  tcp_create(1, result);
  u32 socket = value();
  tell_number("family", tcp_family(socket));
  tcp_set_backlog(socket, 0, result), tell("backlog 0");
  tcp_set_backlog(socket, 5, result), tell("backlog");
  tcp_set_keep_alive(socket, 1, result), tell("keep alive");
  tcp_keep_alive(socket, result), tell_number("keep alive", result[4]);
  tcp_set_idle_time(socket, 0, result), tell("idle 0");
  tcp_set_idle_time(socket, 5000000000, result), tcp_idle_time(socket, wide), tell_number("idle", wide[1]);
  tcp_set_interval(socket, 5000000000, result), tcp_interval(socket, wide), tell_number("interval", wide[1]);
  tcp_set_count(socket, 0, result), tell("count 0");
  tcp_set_count(socket, 5, result), tcp_count(socket, result), tell_number("count", value());
  tcp_set_hops(socket, 0, result), tell("hops 0");
  tcp_set_hops(socket, 5, result), tell("hops 5");
  tcp_hops(socket, result), tell_number("hops", result[4]);
  tcp_set_receive_size(socket, 1, result), tcp_receive_size(socket, wide), tell_number("receive", wide[1]);
  tcp_set_send_size(socket, 1000000, result), tcp_send_size(socket, wide), tell_number("send", wide[1]);
  tcp_set_send_size(socket, 0, result), tell("send 0");
  udp_create(1, result);
  socket = value();
  tell_number("UDP family", udp_family(socket));
  udp_set_hops(socket, 0, result), tell("UDP hops 0");
  udp_set_hops(socket, 9, result), udp_hops(socket, result), tell_number("UDP hops", result[4]);
  udp_set_receive_size(socket, 5000, result), udp_receive_size(socket, wide), tell_number("UDP receive", wide[1]);
  udp_set_send_size(socket, 9000, result), udp_send_size(socket, wide), tell_number("UDP send", wide[1]);
}

EXPORT("[async-lift]wasi:cli/run@0.3.0#run") u32 run(void) {
  begin();
  if (is("fetch")) fetch(0);
  else if (is("late")) fetch(1);
  else if (is("early")) early();
  else if (is("again")) again();
  else if (is("flood")) flood();
  else if (is("hold")) hold();
  else if (is("serve")) serve();
  else if (is("refuse")) refuse(0);
  else if (is("cancel")) refuse(1);
  else if (is("vanish")) vanish();
  else if (is("ask")) ask();
  else if (is("answer")) answer();
  else if (is("burst")) burst();
  else if (is("lookup")) lookup();
  else if (is("hoard")) hoard();
  else if (is("states")) states();
  else if (is("options")) options();
  else __builtin_trap();
  stdout_end(out);
  task_return(0);
  return 0;
}
