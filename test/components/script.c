/*
 * Does what its arguments say, one step after the other:
 *   say TEXT | warn TEXT | write PATH TEXT | add PATH TEXT | cat PATH | env NAME | list PATH | wait PATH | watch PATH |
 *   pause MS | hold | spin | grow MIB | trap | exit CODE
 * A step that fails says so on stderr and ends it with 1. The command adapter makes 1 of every exit code but 0.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const long POLL_MS = 20;

static void pause_ms(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static void fail(const char *path) {
  fprintf(stderr, "%s: %s\n", path, strerror(errno));
  exit(1);
}

static void put(const char *path, const char *text, const char *mode) {
  FILE *file = fopen(path, mode);
  if (file == NULL || fprintf(file, "%s\n", text) < 0 || fclose(file) != 0) fail(path);
}

/* At most what fits. */
static size_t get(const char *path, char *text, size_t size) {
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  size_t length = fread(text, 1, size - 1, file);
  text[length] = '\0';
  fclose(file);
  return length;
}

static void cat(const char *path) {
  char text[4096];
  FILE *file = fopen(path, "r");
  if (file == NULL) fail(path);
  for (size_t length; (length = fread(text, 1, sizeof text, file)) > 0;) fwrite(text, 1, length, stdout);
  fclose(file);
  fflush(stdout);
}

static void list(const char *path) {
  DIR *directory = opendir(path);
  if (directory == NULL) fail(path);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) printf("%s\n", entry->d_name);
  closedir(directory);
  fflush(stdout);
}

/* Says what is in the file whenever that is something else than before. */
static void watch(const char *path) {
  static char last[4096], now[4096];
  for (;; pause_ms(POLL_MS)) {
    if (get(path, now, sizeof now) == 0 || strcmp(now, last) == 0) continue;
    strcpy(last, now);
    printf("%s: %s\n", path, now);
    fflush(stdout);
  }
}

/* Until something is in it: it is there before that. */
static void wait_for(const char *path) {
  struct stat status;
  while (stat(path, &status) != 0 || status.st_size == 0) pause_ms(POLL_MS);
}

static void grow(long mebibytes) {
  static char *volatile taken;
  for (long each = 0; each < mebibytes; each++) {
    if ((taken = malloc(1 << 20)) == NULL) fail("grow");
    memset(taken, 0xa5, 1 << 20);
  }
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *step = argv[i];
    const char *first = i + 1 < argc ? argv[i + 1] : "";
    const char *second = i + 2 < argc ? argv[i + 2] : "";
    if (strcmp(step, "hold") == 0) for (;;) sleep(3600);
    if (strcmp(step, "spin") == 0) for (volatile unsigned turns = 0;; turns++) continue;
    if (strcmp(step, "trap") == 0) __builtin_trap();
    if (strcmp(step, "write") == 0 || strcmp(step, "add") == 0) {
      put(first, second, strcmp(step, "add") == 0 ? "a" : "w");
      i += 2;
      continue;
    }
    i += 1;
    if (strcmp(step, "say") == 0) printf("%s\n", first), fflush(stdout);
    else if (strcmp(step, "warn") == 0) fprintf(stderr, "%s\n", first);
    else if (strcmp(step, "cat") == 0) cat(first);
    else if (strcmp(step, "env") == 0) printf("%s=%s\n", first, getenv(first) ? getenv(first) : "(not set)"), fflush(stdout);
    else if (strcmp(step, "list") == 0) list(first);
    else if (strcmp(step, "wait") == 0) wait_for(first);
    else if (strcmp(step, "watch") == 0) watch(first);
    else if (strcmp(step, "pause") == 0) pause_ms(atol(first));
    else if (strcmp(step, "grow") == 0) grow(atol(first));
    else if (strcmp(step, "exit") == 0) return atoi(first);
    else {
      fprintf(stderr, "script: what is \"%s\"?\n", step);
      return 1;
    }
  }
  return 0;
}
