/*
 * What misbehaves in the tests of tight memory, disks and process tables, at a rate that the test says.
 *
 *   load hold MIB                   takes memory, touches all of it, keeps it
 *   load leak MIB_PER_SECOND [MIB]  takes ever more, or as much, and keeps it
 *   load fill FOLDER MIB_PER_SECOND [MIB]
 *   load inodes FOLDER FILES_PER_SECOND [FILES]
 *   load fork PER_SECOND [PROCESSES]
 *   load huge FOLDER MIB            takes huge pages of 2 MiB of a hugetlbfs, touches and keeps them
 *   load spin
 *
 * A rate of 0 is: as fast as it can. It says how far it has come once a second, and `held` when it has all it wants; it
 * ends by itself only where the kernel refuses it something, with the reason. Not where it is refused a process: as fork
 * bombs do, it tries again, every 100 ms.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)
#define STEPS_PER_SECOND 50

static const char *folder;

static int fail(const char *what, long at) {
  printf("cannot %s at %ld: %s\n", what, at, strerror(errno));
  fflush(stdout);
  return 1;
}

static int one_mebibyte(long number) {
  char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail("take memory", number);
  /* Each page other than all others, or a compressing swap would make nothing of them. */
  for (long page = 0; page < MIB; page += 4096)
    for (int word = 0; word < 4096; word += 64) *(long *)(memory + page + word) = (number * MIB + page + word) * 2654435761L;
  return 0;
}

static int one_mebibyte_on_disk(long number) {
  static int file = -1;
  static char block[MIB];
  char path[4096];
  snprintf(path, sizeof path, "%s/fill-%ld", folder, number / 64);
  if (number % 64 == 0) {
    if (file >= 0) close(file);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  }
  memset(block, (int)number, sizeof block);
  if (file < 0 || write(file, block, sizeof block) != sizeof block) return fail("write", number);
  return 0;
}

static int one_file(long number) {
  char path[4096];
  snprintf(path, sizeof path, "%s/file-%ld", folder, number);
  int file = open(path, O_WRONLY | O_CREAT, 0644);
  if (file < 0) return fail("make a file", number);
  close(file);
  return 0;
}

static int one_process(long number) {
  const struct timespec moment = {0, 100000000};
  pid_t pid;
  /* At a limit of processes it is the board that is to be shown to live on, with what makes them still there. */
  while ((pid = fork()) < 0 && errno == EAGAIN) nanosleep(&moment, NULL);
  if (pid < 0) return fail("fork", number);
  if (pid == 0)
    for (;;) pause();
  return 0;
}

static int one_huge_page(long number) {
  char path[4096];
  snprintf(path, sizeof path, "%s/page-%ld", folder, number);
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0) return fail("make a file", number);
  /* It goes with the process. */
  unlink(path);
  char *memory = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return fail("map a huge page", number);
  for (long page = 0; page < 2 * MIB; page += 4096) memory[page] = 1;
  return 0;
}

static void wait_until(struct timespec since, double seconds) {
  struct timespec then = since;
  then.tv_sec += (time_t)seconds;
  then.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  if (then.tv_nsec >= 1000000000) then.tv_nsec -= 1000000000, then.tv_sec++;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR) continue;
}

static int hold(void) {
  printf("held\n");
  fflush(stdout);
  for (;;) pause();
}

static int run(int (*step)(long), double rate, long limit) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  long said = 0;
  for (long number = 0; limit == 0 || number < limit; number++) {
    /* In bursts of a fiftieth of a second, or slower where the rate is. */
    long burst = rate > STEPS_PER_SECOND ? (long)(rate / STEPS_PER_SECOND) : 1;
    if (rate > 0 && number % burst == 0) wait_until(start, (double)number / rate);
    if (step(number)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - start.tv_sec > said) {
      said = now.tv_sec - start.tv_sec;
      printf("%ld\n", number + 1);
      fflush(stdout);
    }
  }
  return hold();
}

static void end(int signal) {
  (void)signal;
  _exit(0);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  const char *args[4] = {"0", "0", "0", "0"};
  for (int i = 2; i < argc && i < 6; i++) args[i - 2] = argv[i];
  folder = args[0];
  /* As the first process of a container it gets no signal that it does not ask for. */
  signal(SIGTERM, end);
  if (strcmp(what, "hold") == 0) return atol(args[0]) == 0 ? hold() : run(one_mebibyte, 0, atol(args[0]));
  if (strcmp(what, "leak") == 0) return run(one_mebibyte, atof(args[0]), atol(args[1]));
  if (strcmp(what, "fill") == 0) return run(one_mebibyte_on_disk, atof(args[1]), atol(args[2]));
  if (strcmp(what, "inodes") == 0) return run(one_file, atof(args[1]), atol(args[2]));
  if (strcmp(what, "fork") == 0) return run(one_process, atof(args[0]), atol(args[1]));
  if (strcmp(what, "huge") == 0) return run(one_huge_page, 0, atol(args[1]) / 2);
  if (strcmp(what, "spin") == 0)
    for (volatile long turns = 0;; turns++) continue;
  fprintf(stderr, "load: nothing is called %s\n", what);
  return 64;
}
