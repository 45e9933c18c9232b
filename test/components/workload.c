/* What the tests run as components. The first argument names what to do; anything unknown is a mistake of the test. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int sleep_forever(void) {
  for (;;) sleep(3600);
}

static int count_forever(void) {
  struct timespec tenth = {0, 100000000};
  for (int line = 0;; line++) {
    printf("line %d\n", line);
    fflush(stdout);
    nanosleep(&tenth, NULL);
  }
}

/* Arguments in pairs: "stdout" or "stderr", and a line. */
static int print_lines(int argc, char **argv) {
  for (int i = 0; i + 1 < argc; i += 2) {
    FILE *stream = strcmp(argv[i], "stderr") == 0 ? stderr : stdout;
    fprintf(stream, "%s\n", argv[i + 1]);
    fflush(stream);
  }
  return 0;
}

static int print_environment(int argc, char **argv) {
  for (char **each = environ; argc == 0 && *each != NULL; each++) puts(*each);
  for (int i = 0; i < argc; i++) {
    const char *value = getenv(argv[i]);
    puts(value == NULL ? "(not set)" : value);
  }
  return 0;
}

static int print_arguments(int argc, char **argv) {
  for (int i = 0; i < argc; i++) puts(argv[i]);
  return 0;
}

static int print_file(const char *path) {
  char buffer[4096];
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return 1;
  }
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) fwrite(buffer, 1, n, stdout);
  fclose(file);
  return 0;
}

/* Takes memory until there is no more, touching all of it, and says after each piece how much there was. */
static int allocate(void) {
  /* Without it the compiler sees that nobody reads the memory, and takes none. */
  static char *volatile taken;
  for (int mebibytes = 1; (taken = malloc(1 << 20)) != NULL; mebibytes++) {
    memset(taken, 0xa5, 1 << 20);
    printf("%d MiB\n", mebibytes);
    fflush(stdout);
  }
  return 0;
}

static int spin(void) {
  for (volatile unsigned turns = 0;; turns++) {
  }
}

/* As many lines as it is told, as fast as it can; for ever with none. */
static int flood(const char *count) {
  long lines = count == NULL ? 0 : atol(count);
  for (long line = 0; lines == 0 || line < lines; line++) printf("flood %ld of a line that says nothing\n", line);
  return 0;
}

/* A pollable each turn; says how many turns it made, and stays, so that a test can see what is left of them. */
static int churn(const char *count) {
  struct timespec moment = {0, 1};
  long turns = atol(count);
  for (long turn = 0; turn < turns; turn++) nanosleep(&moment, NULL);
  printf("%ld turns\n", turns);
  fflush(stdout);
  return sleep_forever();
}

/* A piece of a line, and then silence. */
static int prompt(void) {
  printf("no newline yet");
  fflush(stdout);
  return sleep_forever();
}

static int overflow(volatile char *above) {
  volatile char here[1024];
  here[0] = above == NULL ? 0 : above[0];
  return overflow(here) + here[0];
}

/** Of what lies beyond the end of its memory. */
static int write_beyond(void) { return (int)write(1, (const void *)-16L, 4096); }

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  const char *first = argc > 2 ? argv[2] : NULL;
  if (strcmp(what, "exit") == 0) return atoi(first);
  if (strcmp(what, "sleep") == 0) return sleep_forever();
  if (strcmp(what, "count") == 0) return count_forever();
  if (strcmp(what, "print") == 0) return print_lines(argc - 2, argv + 2);
  if (strcmp(what, "env") == 0) return print_environment(argc - 2, argv + 2);
  if (strcmp(what, "args") == 0) return print_arguments(argc, argv);
  if (strcmp(what, "cat") == 0) return print_file(first);
  if (strcmp(what, "allocate") == 0) return allocate();
  if (strcmp(what, "spin") == 0) return spin();
  if (strcmp(what, "flood") == 0) return flood(first);
  if (strcmp(what, "churn") == 0) return churn(first);
  if (strcmp(what, "prompt") == 0) return prompt();
  if (strcmp(what, "trap") == 0) __builtin_trap();
  if (strcmp(what, "overflow") == 0) return overflow(NULL);
  if (strcmp(what, "beyond") == 0) return write_beyond();
  fprintf(stderr, "workload: what is \"%s\"?\n", what);
  return 64;
}
