/*
 * Runs commands for the test that drives this guest, several at a time, over one virtio serial port: what
 * test/support/guest/guest-channel.ts is the other end of. It has to answer while the guest is out of memory, so it takes all
 * memory it needs at the start, keeps it, and starts commands without a copy of itself.
 *
 * A frame, little-endian: command's number (4 bytes), kind (1), length (4), so many bytes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As many as the other end has under way at a time. */
#define MAX_COMMANDS 32
/* The other end sends no longer frame. */
#define MAX_FRAME (64 * 1024)
#define HEADER 9

struct command {
  uint32_t number;
  pid_t pid;
  int in, out, err; /* -1: closed */
  uint32_t pending, sent; /* of what waits for the command to read it */
  char input[MAX_FRAME];
};

static struct command commands[MAX_COMMANDS];
static char frame[HEADER + MAX_FRAME + 1];
static uint32_t filled;
static int port;
extern char **environ;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void pause_a_moment(void) {
  struct timespec moment = {0, 20000000};
  nanosleep(&moment, NULL);
}

static void write_port(const char *data, size_t length) {
  while (length > 0) {
    ssize_t n = write(port, data, length);
    if (n > 0) data += n, length -= n;
    else if (errno == EAGAIN) pause_a_moment();
    else if (errno != EINTR) fail("cannot write to the port");
  }
}

static void tell(uint32_t number, char kind, const char *data, uint32_t length) {
  char header[HEADER];
  memcpy(header, &number, 4);
  header[4] = kind;
  memcpy(header + 5, &length, 4);
  write_port(header, HEADER);
  write_port(data, length);
}

static void close_end(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static struct command *find(uint32_t number) {
  for (int i = 0; i < MAX_COMMANDS; i++)
    if (commands[i].pid > 0 && commands[i].number == number) return &commands[i];
  return NULL;
}

static void cannot_start(uint32_t number, int problem) {
  int32_t status = 127 << 8;
  const char *text = strerror(problem);
  tell(number, 'E', text, strlen(text));
  tell(number, 'X', (char *)&status, 4);
}

static void start(uint32_t number, char *line) {
  struct command *free_one = NULL;
  for (int i = 0; i < MAX_COMMANDS; i++)
    if (commands[i].pid == 0) free_one = &commands[i];
  int in[2], out[2], err[2];
  if (free_one == NULL) return cannot_start(number, EAGAIN);
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) fail("cannot make a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  char *arguments[] = {"sh", "-c", line, NULL};
  pid_t pid;
  int problem = posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(in[0]), close(out[1]), close(err[1]);
  if (problem != 0) {
    close(in[1]), close(out[0]), close(err[0]);
    return cannot_start(number, problem);
  }
  fcntl(in[1], F_SETFL, O_NONBLOCK), fcntl(out[0], F_SETFL, O_NONBLOCK), fcntl(err[0], F_SETFL, O_NONBLOCK);
  free_one->number = number, free_one->pid = pid;
  free_one->in = in[1], free_one->out = out[0], free_one->err = err[0];
  free_one->pending = free_one->sent = 0;
}

/* What was given is read: the other end may send more. */
static void accept_more(struct command *command) {
  command->pending = command->sent = 0;
  tell(command->number, 'A', "", 0);
}

static void feed(struct command *command) {
  while (command->sent < command->pending) {
    ssize_t n = write(command->in, command->input + command->sent, command->pending - command->sent);
    if (n > 0) command->sent += n;
    else if (errno == EAGAIN) return;
    else if (errno != EINTR) {
      close_end(&command->in);
      break;
    }
  }
  accept_more(command);
}

static void take_input(struct command *command, const char *data, uint32_t length) {
  if (length == 0) close_end(&command->in);
  if (command->in < 0) return accept_more(command);
  memcpy(command->input, data, length);
  command->pending = length, command->sent = 0;
  feed(command);
}

static void obey(uint32_t number, char kind, char *data, uint32_t length) {
  data[length] = 0;
  struct command *command = find(number);
  if (kind == 'R') start(number, data);
  else if (command == NULL) return;
  else if (kind == 'I') take_input(command, data, length);
  else if (kind == 'K') kill(-command->pid, SIGKILL);
}

static void read_port(void) {
  ssize_t n = read(port, frame + filled, HEADER + MAX_FRAME - filled);
  if (n <= 0) return pause_a_moment(); /* Nobody at the other end. */
  filled += n;
  for (;;) {
    uint32_t number, length;
    memcpy(&number, frame, 4);
    memcpy(&length, frame + 5, 4);
    if (filled < HEADER || filled < HEADER + length) return;
    char after = frame[HEADER + length];
    obey(number, frame[4], frame + HEADER, length);
    frame[HEADER + length] = after;
    filled -= HEADER + length;
    memmove(frame, frame + HEADER + length, filled);
  }
}

/* Returns whether there may be more at once. */
static int pass_on(struct command *command, int *fd, char kind) {
  static char buffer[16 * 1024];
  if (*fd < 0) return 0;
  ssize_t n = read(*fd, buffer, sizeof buffer);
  if (n > 0) tell(command->number, kind, buffer, n);
  else if (n == 0) close_end(fd);
  return n > 0;
}

/* A command has ended when its process has, though children of it may hold its output open. */
static void reap(int signals) {
  struct signalfd_siginfo info;
  (void)!read(signals, &info, sizeof info);
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (int i = 0; i < MAX_COMMANDS; i++) {
      struct command *command = &commands[i];
      if (command->pid != pid) continue;
      while (pass_on(command, &command->out, 'O')) continue;
      while (pass_on(command, &command->err, 'E')) continue;
      close_end(&command->in), close_end(&command->out), close_end(&command->err);
      int32_t told = status;
      command->pid = 0;
      tell(command->number, 'X', (char *)&told, 4);
    }
  }
}

static int open_port(void) {
  for (int tries = 500; tries > 0; tries--) {
    DIR *ports = opendir("/sys/class/virtio-ports");
    for (struct dirent *each; ports != NULL && (each = readdir(ports)) != NULL;) {
      char path[300], name[64] = "";
      snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", each->d_name);
      int fd = open(path, O_RDONLY | O_CLOEXEC);
      if (fd >= 0) (void)!read(fd, name, sizeof name - 1), close(fd);
      snprintf(path, sizeof path, "/dev/%s", each->d_name);
      if (strncmp(name, "courier", 7) == 0 && (fd = open(path, O_RDWR | O_CLOEXEC)) >= 0) {
        closedir(ports);
        return fd;
      }
    }
    if (ports != NULL) closedir(ports);
    pause_a_moment();
  }
  fail("cannot find the port");
  return -1;
}

int main(void) {
  port = open_port();
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  signal(SIGPIPE, SIG_IGN);
  int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) fail("cannot keep memory");
  tell(0, 'H', "", 0);
  for (;;) {
    struct pollfd fds[2 + 3 * MAX_COMMANDS] = {{port, POLLIN, 0}, {signals, POLLIN, 0}};
    for (int i = 0; i < MAX_COMMANDS; i++) {
      struct command *command = &commands[i];
      int used = command->pid > 0;
      fds[2 + 3 * i] = (struct pollfd){used && command->sent < command->pending ? command->in : -1, POLLOUT, 0};
      fds[3 + 3 * i] = (struct pollfd){used ? command->out : -1, POLLIN, 0};
      fds[4 + 3 * i] = (struct pollfd){used ? command->err : -1, POLLIN, 0};
    }
    if (poll(fds, sizeof fds / sizeof *fds, -1) < 0) continue;
    for (int i = 0; i < MAX_COMMANDS; i++) {
      if (fds[2 + 3 * i].revents) feed(&commands[i]);
      if (fds[3 + 3 * i].revents) pass_on(&commands[i], &commands[i].out, 'O');
      if (fds[4 + 3 * i].revents) pass_on(&commands[i], &commands[i].err, 'E');
    }
    if (fds[1].revents) reap(signals);
    if (fds[0].revents) read_port();
  }
}
