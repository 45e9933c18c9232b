/*
 * Preloaded into Chromium: no netlink sockets. Chromium then follows no changes of network interfaces. With them it ends
 * each connection that it is making (net::ERR_NETWORK_CHANGED) when any interface of the machine comes or goes, also
 * those to the loopback address, and pods of other tests make and remove interfaces all the time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol) {
  if (domain == AF_NETLINK) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  int (*next)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
  return next(domain, type, protocol);
}
