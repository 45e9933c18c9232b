/* Uses a volume as a program does, and tries to get out of it. Prints one line for each step; wrong ones begin with FAIL. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int failures;

static void expect(int holds, const char *what) {
  if (holds) {
    printf("ok %s\n", what);
  } else {
    printf("FAIL %s: %s\n", what, strerror(errno));
    failures++;
  }
}

static void refused(int result, int with, const char *what) {
  if (result < 0 && (with == 0 || errno == with)) {
    printf("ok refused %s\n", what);
  } else {
    printf("FAIL not refused as it should be: %s: %s\n", what, result < 0 ? strerror(errno) : "it worked");
    failures++;
  }
}

static int write_file(const char *path, const char *text, int flags) {
  int fd = open(path, flags, 0644);
  if (fd < 0) return -1;
  ssize_t written = write(fd, text, strlen(text));
  close(fd);
  return written == (ssize_t)strlen(text) ? 0 : -1;
}

static int holds(const char *path, const char *text) {
  char buffer[256] = {0};
  int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  ssize_t n = read(fd, buffer, sizeof buffer - 1);
  close(fd);
  return n == (ssize_t)strlen(text) && strcmp(buffer, text) == 0;
}

static int count_entries(const char *path) {
  DIR *directory = opendir(path);
  int count = 0;
  if (directory == NULL) return -1;
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) count++;
  }
  closedir(directory);
  return count;
}

/* /data is a folder that may be written. */
static void use_volume(void) {
  struct stat status;
  char link_text[64] = {0};
  expect(write_file("/data/a", "hello", O_CREAT | O_EXCL | O_WRONLY) == 0, "create");
  expect(holds("/data/a", "hello"), "read back");
  refused(write_file("/data/a", "x", O_CREAT | O_EXCL | O_WRONLY), EEXIST, "exclusive create of a file that is there");
  expect(write_file("/data/a", " world", O_WRONLY | O_APPEND) == 0 && holds("/data/a", "hello world"), "append");
  expect(write_file("/data/a", "new", O_WRONLY | O_TRUNC) == 0 && holds("/data/a", "new"), "truncate on open");
  expect(stat("/data/a", &status) == 0 && status.st_size == 3 && S_ISREG(status.st_mode), "stat");
  expect(truncate("/data/a", 1) == 0 && holds("/data/a", "n"), "truncate");
  expect(mkdir("/data/sub", 0755) == 0, "mkdir");
  refused(mkdir("/data/sub", 0755), EEXIST, "mkdir of one that is there");
  expect(rename("/data/a", "/data/sub/b") == 0 && holds("/data/sub/b", "n"), "rename");
  expect(link("/data/sub/b", "/data/sub/c") == 0 && stat("/data/sub/c", &status) == 0 && status.st_nlink == 2, "link");
  expect(count_entries("/data/sub") == 2, "list");
  expect(holds("/data/sub/../sub/./b", "n"), "dots inside the volume");
  refused(rmdir("/data/sub"), ENOTEMPTY, "rmdir of a folder with files");
  refused(unlink("/data/sub"), 0, "unlink of a folder");
  refused(open("/data/nothing", O_RDONLY), ENOENT, "open of nothing");
  refused(open("/data/sub/b/x", O_RDONLY), ENOTDIR, "a file as a folder");
  refused(open("/data/sub/b", O_RDONLY | O_DIRECTORY), ENOTDIR, "O_DIRECTORY of a file");
  struct timespec times[2] = {{1000000000, 0}, {1000000001, 0}};
  expect(utimensat(AT_FDCWD, "/data/sub/b", times, 0) == 0 && stat("/data/sub/b", &status) == 0 &&
             status.st_mtim.tv_sec == 1000000001,
         "set times");
  int fd = open("/data/sub/b", O_RDWR);
  expect(fd >= 0 && pwrite(fd, "xyz", 3, 4) == 3 && fsync(fd) == 0 && fstat(fd, &status) == 0 && status.st_size == 7,
         "pwrite, fsync, fstat");
  close(fd);
  /* The test made this link to sub/b. */
  expect(readlink("/data/inner-link", link_text, sizeof link_text - 1) > 0 && strcmp(link_text, "sub/b") == 0, "readlink");
  expect(open("/data/inner-link", O_RDONLY) >= 0, "a link inside the volume is followed");
  refused(open("/data/inner-link", O_RDONLY | O_NOFOLLOW), ELOOP, "O_NOFOLLOW of a link");
  expect(unlink("/data/sub/b") == 0 && unlink("/data/sub/c") == 0 && rmdir("/data/sub") == 0, "unlink and rmdir");
}

/* The test has put links into /data that lead out: up, absolute, through one another, in a loop. */
static void escape(void) {
  refused(open("/data/../outside", O_RDONLY), 0, "dots out of the volume");
  refused(open("/data/up-link", O_RDONLY), 0, "a relative link out");
  refused(open("/data/absolute-link", O_RDONLY), 0, "an absolute link");
  refused(open("/data/folder-link/secret", O_RDONLY), 0, "a link to a folder outside, in the middle");
  refused(open("/data/chain-link", O_RDONLY), 0, "a link to a link out");
  refused(open("/data/loop-link", O_RDONLY), ELOOP, "a loop of links");
  refused(write_file("/data/dangling-link", "x", O_CREAT | O_WRONLY), 0, "create through a link out");
  refused(rename("/data/a-file", "/data/folder-link/moved"), 0, "rename out");
  refused(rename("/data/folder-link/secret", "/data/stolen"), 0, "rename in");
  refused(link("/data/folder-link/secret", "/data/stolen"), 0, "link in");
  refused(mkdir("/data/folder-link/made", 0755), 0, "mkdir outside");
  refused(unlink("/data/folder-link/secret"), 0, "unlink outside");
  refused(open("/etc/passwd", O_RDONLY), 0, "the host's files");
  refused(open("/proc/self/environ", O_RDONLY), 0, "/proc");
  refused(symlink("/etc/passwd", "/data/new-link"), 0, "an absolute link is made");
  expect(holds("/data/a-file", "mine"), "what is inside is reached");
}

/* /config is a folder that may only be read, with "setting" in it; /etc/app/one-file is a single file; /data can be written. */
static void read_only(void) {
  expect(holds("/config/setting", "on"), "read");
  refused(open("/config/setting", O_WRONLY), EROFS, "write");
  refused(open("/config/setting", O_RDWR), EROFS, "read and write");
  refused(open("/config/setting", O_RDONLY | O_TRUNC), EROFS, "truncate on open");
  refused(open("/config/new", O_CREAT | O_WRONLY, 0644), EROFS, "create");
  refused(open("/config/nothing", O_WRONLY), ENOENT, "write of nothing");
  refused(unlink("/config/setting"), EROFS, "unlink");
  refused(mkdir("/config/made", 0755), EROFS, "mkdir");
  refused(rename("/config/setting", "/config/other"), EROFS, "rename");
  refused(link("/config/setting", "/data/setting"), EXDEV, "a link into a folder that may be written");
  refused(rename("/config/setting", "/data/setting"), EXDEV, "rename into a folder that may be written");
  refused(truncate("/config/setting", 0), EROFS, "truncate");
  expect(holds("/etc/app/one-file", "alone"), "a single mounted file");
  expect(count_entries("/etc/app") == 1, "the folder that it makes holds nothing else");
  expect(write_file("/etc/app/one-file", "other", O_WRONLY | O_TRUNC) == 0, "a single file is written");
  refused(unlink("/etc/app/one-file"), 0, "unlink of a mounted file");
  refused(open("/etc/app/new", O_CREAT | O_WRONLY, 0644), EROFS, "create beside a mounted file");
  expect(holds("/data/nested", "hides"), "a file mounted into a mounted folder");
  expect(count_entries("/data") == 2, "and it is listed once");
}

/* Reads through a folder that somebody outside keeps replacing by a link out; anything but the inside is an escape. */
static void race(const char *turns) {
  long tries = atol(turns), inside = 0;
  for (long i = 0; i < tries; i++) {
    char text[16] = {0};
    int fd = open("/data/moving/file", O_RDONLY);
    if (fd < 0) continue;
    if (read(fd, text, sizeof text - 1) > 0 && strcmp(text, "inside") != 0) {
      printf("FAIL read \"%s\" from outside\n", text);
      failures++;
    } else {
      inside++;
    }
    close(fd);
  }
  printf("ok inside %ld times\n", inside);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "use") == 0) use_volume();
  else if (strcmp(what, "escape") == 0) escape();
  else if (strcmp(what, "read-only") == 0) read_only();
  else if (strcmp(what, "race") == 0) race(argv[2]);
  else expect(0, "a known argument");
  return failures == 0 ? 0 : 1;
}
