/*
 * Tries to get out of /data, in which "moving" is a folder at times and a link to a folder outside at others:
 *   race TURNS   everything a program can do to a path, through that folder; prints what it reached inside
 *   own-links    links that it makes itself, and turns about
 *   special      what is no file: fifo, socket
 *   deep         names and paths longer than any
 * Lines that begin with FAIL say what got through.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failures;

static void expect(int holds, const char *what) {
  printf("%s %s: %s\n", holds ? "ok" : "FAIL", what, holds ? "as it should be" : strerror(errno));
  if (!holds) failures++;
}

static int reads(const char *path, const char *text) {
  char buffer[64] = {0};
  int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  ssize_t length = read(fd, buffer, sizeof buffer - 1);
  close(fd);
  return length == (ssize_t)strlen(text) && strcmp(buffer, text) == 0;
}

static void race(long turns) {
  long inside = 0, outside = 0;
  for (long i = 0; i < turns; i++) {
    struct stat status;
    inside += reads("/data/moving/file", "inside");
    outside += reads("/data/moving/file", "outside") + reads("/data/moving/../../outside/file", "outside");
    int fd = open("/data/moving/made", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd >= 0) close(fd);
    if (stat("/data/moving/secret", &status) == 0) outside++;
    mkdir("/data/moving/made-folder", 0755);
    symlink("file", "/data/moving/made-link");
    link("/data/moving/file", "/data/moving/made-name");
    link("/data/moving/secret", "/data/stolen");
    rename("/data/moving/secret", "/data/stolen");
    rename("/data/moving/made", "/data/moving/made-too");
    struct timespec times[2] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, "/data/moving/secret", times, 0);
    unlink("/data/moving/secret");
    unlink("/data/moving/made-too");
    unlink("/data/moving/made-name");
    unlink("/data/moving/made-link");
    rmdir("/data/moving/made-folder");
    DIR *folder = opendir("/data/moving");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
      if (strcmp(entry->d_name, "secret") == 0) outside++;
    if (folder != NULL) closedir(folder);
  }
  printf("inside %ld, outside %ld\n", inside, outside);
}

static void own_links(void) {
  expect(symlink("/etc/passwd", "/data/absolute") < 0, "an absolute link");
  expect(symlink("../../outside", "/data/up") == 0, "a link out may lie about");
  expect(!reads("/data/up/file", "outside"), "but leads nowhere");
  expect(open("/data/up/new", O_CREAT | O_WRONLY, 0644) < 0, "to make anything through it");
  mkdir("/data/a", 0755);
  mkdir("/data/a/b", 0755);
  expect(symlink("../up", "/data/a/b/via") == 0 && !reads("/data/a/b/via/file", "outside"), "a link to a link out");
  /* What led about inside leads out after the folder it lies in has moved up. */
  expect(symlink("../../outside", "/data/a/b/turned") == 0 && rename("/data/a/b", "/data/b") == 0, "a link moves up");
  expect(!reads("/data/b/turned/file", "outside"), "and leads nowhere");
  expect(!reads("/data/b/../../outside/file", "outside"), "dots behind a folder that moved");
  expect(unlink("/data/up") == 0, "the link itself can be taken away");
}

static void special(void) {
  for (int i = 0; i < 2; i++) {
    const char *path = i == 0 ? "/data/fifo" : "/data/socket";
    expect(open(path, O_RDONLY) < 0 && errno == EPERM, "opened to read");
    expect(open(path, O_WRONLY) < 0 && errno == EPERM, "opened to write");
    expect(open(path, O_RDWR | O_CREAT | O_TRUNC, 0644) < 0 && errno == EPERM, "opened to make");
  }
  expect(open("/dev/null", O_RDONLY) < 0, "the node's devices");
  expect(open("/proc/self/fd/0", O_RDONLY) < 0, "/proc");
  expect(open("/data/../../../proc/self/root/etc/passwd", O_RDONLY) < 0, "/proc by dots");
}

static void deep(void) {
  static char path[70000] = "/data";
  for (size_t end = strlen(path); end + 2 < sizeof path; end += 2) strcpy(path + end, "/d");
  expect(open(path, O_RDONLY) < 0 && errno == ENAMETOOLONG, "a path of 70,000 bytes");
  memset(path + 6, 'n', 300);
  path[306] = '\0';
  expect(open(path, O_CREAT | O_WRONLY, 0644) < 0 && errno == ENAMETOOLONG, "a name of 300 bytes");
  int depth = 0;
  for (strcpy(path, "/data"); depth < 1500 && mkdir(strcat(path, "/d"), 0755) == 0; depth++) continue;
  expect(depth > 100 && depth < 1500, "folders in folders end somewhere");
  expect(errno == ENAMETOOLONG, "with a name that is too long");
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "race") == 0) race(atol(argv[2]));
  else if (strcmp(what, "own-links") == 0) own_links();
  else if (strcmp(what, "special") == 0) special();
  else if (strcmp(what, "deep") == 0) deep();
  else return 1;
  return failures == 0 ? 0 : 1;
}
