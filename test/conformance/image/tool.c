/*
 * What the containers of the conformance tests run where a shell is not enough. One static program, linked against the
 * C library alone:
 *
 *   argv ARG...                prints its arguments on one line and ends
 *   http PORT [SECONDS]        an HTTP server that prints every request; /healthz answers 500 once SECONDS have passed
 *   udp PORT                   sends back what it gets, after the host's name
 *   ask-udp HOST PORT TEXT     prints the answer, trying again as packets may get lost
 *   grpc PORT SECONDS          a gRPC health server: SERVING until SECONDS have passed (-1: for ever)
 *   privileges                 prints the effective user and whether new privileges are barred
 *   allocate MIB               takes so much memory, and waits
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* A request of a test is a line and a few headers; what is longer is cut off and answered all the same. */
enum { MAX_REQUEST = 8192, BACKLOG = 64 };

static time_t started_at;

static void end(int signal_number) {
  (void)signal_number;
  _exit(0);
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int listen_on(int type, int port) {
  struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
  struct sockaddr_in older = {.sin_family = AF_INET, .sin_port = htons(port)};
  int one = 1, zero = 0;
  int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
      close(fd);
      fd = -1;
    }
  }
  if (fd < 0) {
    fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&older, sizeof older) != 0) fail("bind");
  }
  if (type == SOCK_STREAM && listen(fd, BACKLOG) != 0) fail("listen");
  return fd;
}

static int is_over(long seconds) { return seconds >= 0 && time(NULL) - started_at >= seconds; }

static void answer(int fd, int status, const char *header, const char *body) {
  dprintf(fd, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status,
          status == 200 ? "OK" : "Other", header, strlen(body), body);
}

static void serve_request(int fd, const char *peer, long healthy_seconds) {
  char request[MAX_REQUEST + 1], host[256] = "", header[MAX_REQUEST];
  size_t length = 0;
  while (length < MAX_REQUEST) {
    ssize_t count = read(fd, request + length, MAX_REQUEST - length);
    if (count <= 0) break;
    length += count;
    request[length] = 0;
    if (strstr(request, "\r\n\r\n") != NULL) break;
  }
  request[length] = 0;
  char *target = strchr(request, ' ');
  if (target == NULL) return;
  target += 1;
  size_t target_length = strcspn(target, " \r\n");
  char path[MAX_REQUEST];
  memcpy(path, target, target_length);
  path[target_length] = 0;
  printf("request from %s: %.*s\n", peer, (int)strcspn(request, "\r\n"), request);
  for (char *line = strstr(request, "\r\n"); line != NULL && strlen(line) > 4; line = strstr(line + 2, "\r\n"))
    printf("header %.*s\n", (int)strcspn(line + 2, "\r\n"), line + 2);
  char *value = strchr(path, '=');
  if (strncmp(path, "/healthz", 8) == 0) answer(fd, is_over(healthy_seconds) ? 500 : 200, "", "ok");
  else if (strncmp(path, "/hostname", 9) == 0) {
    gethostname(host, sizeof host - 1);
    answer(fd, 200, "", host);
  } else if (strncmp(path, "/echo", 5) == 0) answer(fd, 200, "", value == NULL ? "" : value + 1);
  else if (strncmp(path, "/headers", 8) == 0) answer(fd, 200, "", request);
  else if (strncmp(path, "/clientip", 9) == 0) answer(fd, 200, "", peer);
  else if (strncmp(path, "/redirect", 9) == 0) {
    snprintf(header, sizeof header, "Location: %s\r\n", value == NULL ? "/" : value + 1);
    answer(fd, 302, header, "");
  } else answer(fd, 404, "", "nothing is here");
}

static void serve_http(int port, long healthy_seconds) {
  int server = listen_on(SOCK_STREAM, port);
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int fd = accept(server, (struct sockaddr *)&address, &size);
    if (fd < 0) continue;
    char peer[NI_MAXHOST] = "";
    getnameinfo((struct sockaddr *)&address, size, peer, sizeof peer, NULL, 0, NI_NUMERICHOST);
    if (fork() == 0) {
      serve_request(fd, strncmp(peer, "::ffff:", 7) == 0 ? peer + 7 : peer, healthy_seconds);
      exit(0);
    }
    close(fd);
  }
}

static void serve_udp(int port) {
  int fd = listen_on(SOCK_DGRAM, port);
  for (;;) {
    char text[MAX_REQUEST], reply[MAX_REQUEST + 300], host[256] = "";
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    ssize_t count = recvfrom(fd, text, sizeof text - 1, 0, (struct sockaddr *)&address, &size);
    if (count < 0) continue;
    text[count] = 0;
    gethostname(host, sizeof host - 1);
    int length = snprintf(reply, sizeof reply, "%s got %s", host, text);
    sendto(fd, reply, length, 0, (struct sockaddr *)&address, size);
    printf("datagram: %s\n", text);
  }
}

static int ask_udp(const char *host, const char *port, const char *text) {
  struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST}, *found;
  if (getaddrinfo(host, port, &hints, &found) != 0) return 1;
  int fd = socket(found->ai_family, SOCK_DGRAM, 0);
  struct timeval patience = {.tv_sec = 1};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) fail("connect");
  for (int tries = 0; tries < 10; tries += 1) {
    char reply[MAX_REQUEST];
    if (send(fd, text, strlen(text), 0) < 0) {
      sleep(1);
      continue;
    }
    ssize_t count = recv(fd, reply, sizeof reply - 1, 0);
    if (count < 0) continue;
    printf("%.*s\n", (int)count, reply);
    return 0;
  }
  fprintf(stderr, "no answer from %s port %s\n", host, port);
  return 1;
}

static int read_all(int fd, unsigned char *into, size_t length) {
  for (size_t have = 0; have < length;) {
    ssize_t count = read(fd, into + have, length - have);
    if (count <= 0) return 0;
    have += count;
  }
  return 1;
}

static void send_frame(int fd, int type, int flags, unsigned stream, const void *payload, size_t length) {
  unsigned char frame[256] = {length >> 16, length >> 8, length, type, flags, stream >> 24, stream >> 16, stream >> 8, stream};
  memcpy(frame + 9, payload, length);
  if (write(fd, frame, 9 + length) < 0) exit(0);
}

/* HTTP/2 (RFC 9113) as far as a call with one short message needs it; header blocks are HPACK literals that index nothing. */
static void serve_grpc_connection(int fd, long healthy_seconds) {
  static const unsigned char headers[] = "\x88\x00\x0c" "content-type" "\x10" "application/grpc";
  static const unsigned char trailers[] = "\x00\x0b" "grpc-status" "\x01" "0";
  unsigned char preface[24], head[9], payload[16384];
  if (!read_all(fd, preface, sizeof preface)) return;
  send_frame(fd, 4, 0, 0, "", 0);
  while (read_all(fd, head, sizeof head)) {
    size_t length = head[0] << 16 | head[1] << 8 | head[2];
    int type = head[3], flags = head[4];
    unsigned stream = (head[5] & 0x7f) << 24 | head[6] << 16 | head[7] << 8 | head[8];
    if (length > sizeof payload || !read_all(fd, payload, length)) return;
    if (type == 4 && !(flags & 1)) send_frame(fd, 4, 1, 0, "", 0);
    if (type == 6 && !(flags & 1)) send_frame(fd, 6, 1, 0, payload, length);
    if ((type == 0 || type == 1) && (flags & 1)) {
      unsigned char message[] = {0, 0, 0, 0, 2, 8, is_over(healthy_seconds) ? 2 : 1};
      send_frame(fd, 1, 4, stream, headers, sizeof headers - 1);
      send_frame(fd, 0, 0, stream, message, sizeof message);
      send_frame(fd, 1, 5, stream, trailers, sizeof trailers - 1);
      printf("health asked, serving: %d\n", message[6] == 1);
    }
  }
}

static void serve_grpc(int port, long healthy_seconds) {
  int server = listen_on(SOCK_STREAM, port);
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    int fd = accept(server, NULL, NULL);
    if (fd < 0) continue;
    if (fork() == 0) {
      serve_grpc_connection(fd, healthy_seconds);
      exit(0);
    }
    close(fd);
  }
}

static void allocate(size_t mebibytes) {
  printf("taking %zu MiB\n", mebibytes);
  volatile char *memory = malloc(mebibytes << 20);
  if (memory == NULL) fail("malloc");
  for (size_t at = 0; at < mebibytes << 20; at += 4096) memory[at] = 1;
  printf("took %zu MiB\n", mebibytes);
  for (;;) pause();
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  started_at = time(NULL);
  signal(SIGTERM, end);
  signal(SIGINT, end);
  const char *command = count > 1 ? words[1] : "";
  if (strcmp(command, "argv") == 0) {
    for (int index = 2; index < count; index += 1) printf("%s%s", words[index], index + 1 < count ? " " : "");
    printf("\n");
  } else if (strcmp(command, "http") == 0 && count > 2) serve_http(atoi(words[2]), count > 3 ? atol(words[3]) : -1);
  else if (strcmp(command, "udp") == 0 && count > 2) serve_udp(atoi(words[2]));
  else if (strcmp(command, "ask-udp") == 0 && count > 4) return ask_udp(words[2], words[3], words[4]);
  else if (strcmp(command, "grpc") == 0 && count > 3) serve_grpc(atoi(words[2]), atol(words[3]));
  else if (strcmp(command, "privileges") == 0)
    printf("uid %d, effective %d, no new privileges %d\n", getuid(), geteuid(), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  else if (strcmp(command, "allocate") == 0 && count > 2) allocate(atol(words[2]));
  else {
    fprintf(stderr, "unknown command\n");
    return 64;
  }
  return 0;
}
