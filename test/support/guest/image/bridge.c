/* Joins its standard input and output with a unix socket of the guest: `bridge PATH`. Ends when the socket's other end does. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int copy(int from, int to) {
  static char buffer[16 * 1024];
  ssize_t n = read(from, buffer, sizeof buffer);
  for (ssize_t done = 0, m; done < n; done += m)
    if ((m = write(to, buffer + done, n - done)) <= 0) return 0;
  return n > 0;
}

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return 64;
  strcpy(address.sun_path, argv[1]);
  int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(peer, (struct sockaddr *)&address, sizeof address) != 0) {
    perror(argv[1]);
    return 1;
  }
  struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {peer, POLLIN, 0}};
  while (poll(fds, 2, -1) > 0) {
    if (fds[1].revents && !copy(peer, STDOUT_FILENO)) return 0;
    if (fds[0].revents && !copy(STDIN_FILENO, peer)) {
      shutdown(peer, SHUT_WR);
      fds[0].fd = -1;
    }
  }
  return 0;
}
