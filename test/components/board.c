/*
 * Uses what the board gives, by hand-written bindings of wit/board. Does what its arguments say, one step after the other,
 * and says on stdout what came of each, `error TAG` where it was refused:
 *   open BUCKET | set KEY TEXT | fill KEY BYTES | get KEY | delete KEY | exists KEY | list | add KEY DELTA |
 *   swap KEY OLD NEW (`-` for no value) | many KEY VALUE KEY VALUE | load KEY N | config KEY | log LEVEL CONTEXT MESSAGE |
 *   node | pod | long BYTES | hold |
 *   until KEY (is in the bucket) | changed KEY VALUE (the configuration is something else)
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define KV "picolet:board/keyvalue@0.1.0"

typedef struct { const char *at; uint32_t length; } text;
typedef struct { text key; text value; } pair;

IMPORT(KV, "open") void kv_open(const char *, uint32_t, void *);
IMPORT(KV, "[method]bucket.get") void kv_get(int32_t, const char *, uint32_t, void *);
IMPORT(KV, "[method]bucket.set") void kv_set(int32_t, const char *, uint32_t, const void *, uint32_t, void *);
IMPORT(KV, "[method]bucket.delete") void kv_delete(int32_t, const char *, uint32_t, void *);
IMPORT(KV, "[method]bucket.exists") void kv_exists(int32_t, const char *, uint32_t, void *);
IMPORT(KV, "[method]bucket.list-keys") void kv_list(int32_t, int32_t, const char *, uint32_t, void *);
IMPORT(KV, "[method]bucket.increment") void kv_add(int32_t, const char *, uint32_t, int64_t, void *);
IMPORT(KV, "[method]bucket.swap")
void kv_swap(int32_t, const char *, uint32_t, int32_t, const char *, uint32_t, const char *, uint32_t, void *);
IMPORT(KV, "[method]bucket.set-many") void kv_set_many(int32_t, const pair *, uint32_t, void *);
IMPORT(KV, "[method]bucket.get-many") void kv_get_many(int32_t, const text *, uint32_t, void *);
IMPORT("picolet:board/config@0.1.0", "get") void config_get(const char *, uint32_t, void *);
IMPORT("picolet:board/logging@0.1.0", "log")
void logging_log(int32_t, const char *, uint32_t, const char *, uint32_t);
IMPORT("picolet:board/node-info@0.1.0", "this-node") void info_node(void *);
IMPORT("picolet:board/node-info@0.1.0", "this-pod") void info_pod(void *);

static const char *const KV_ERRORS[] = {
  "no-such-bucket", "bad-key", "too-large", "quota-exceeded", "not-a-number", "unavailable", "storage"};
static const char *const HUB[] = {"standalone", "disconnected", "connected"};

static int32_t bucket;
/* What a call returns: a result's case first, its payload at 4, or at 8 where it has 64 bits. */
static union { uint8_t bytes[64]; uint32_t words[16]; int64_t longs[8]; } out;

/* Whether it was refused; then it is said. @param at of the error's case */
static int refused(const char *const *names, int at) {
  if (out.bytes[0] == 0) return 0;
  printf("error %s", names[out.bytes[at]]);
  if (names == KV_ERRORS && out.bytes[at] == 6) {
    printf(": %.*s", (int)out.words[at / 4 + 2], (const char *)(uintptr_t)out.words[at / 4 + 1]);
  }
  printf("\n");
  return 1;
}

static void say(uint32_t at, uint32_t length) { printf("%.*s\n", (int)length, (const char *)(uintptr_t)at); }

static void list(void) {
  const char *cursor = NULL;
  uint32_t cursor_length = 0, pages = 0, keys = 0;
  do {
    kv_list(bucket, cursor != NULL, cursor, cursor_length, &out);
    if (refused(KV_ERRORS, 4)) return;
    const text *found = (const text *)(uintptr_t)out.words[1];
    for (uint32_t i = 0; i < out.words[2]; i += 1) {
      keys += 1;
      if (keys <= 3) printf("%.*s ", (int)found[i].length, found[i].at);
    }
    pages += 1;
    cursor = out.bytes[12] ? (const char *)(uintptr_t)out.words[4] : NULL;
    cursor_length = out.words[5];
  } while (cursor != NULL);
  printf("%u keys on %u pages\n", keys, pages);
}

static void node(void) {
  static const char *const errors[] = {"unavailable"};
  info_node(&out);
  if (refused(errors, 4)) return;
  printf("%.*s labels %u pressure %u clock %u hub %s\n", (int)out.words[2], (const char *)(uintptr_t)out.words[1],
         out.words[4], out.bytes[20], out.bytes[21], HUB[out.bytes[22]]);
}

static void pause_ms(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* N values of 100 bytes in a row, then N reads, with the time that they took. */
static void load(const char *key, int count) {
  char value[100];
  memset(value, 'x', sizeof value);
  struct timespec a, b, c;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < count; i += 1) {
    value[0] = (char)i;
    kv_set(bucket, key, strlen(key), value, sizeof value, &out);
    if (refused(KV_ERRORS, 4)) return;
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  for (int i = 0; i < count; i += 1) {
    kv_get(bucket, key, strlen(key), &out);
    if (refused(KV_ERRORS, 4)) return;
    free((void *)(uintptr_t)out.words[2]);
  }
  clock_gettime(CLOCK_MONOTONIC, &c);
  double writes = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
  double reads = (double)(c.tv_sec - b.tv_sec) + (double)(c.tv_nsec - b.tv_nsec) / 1e9;
  printf("load %d writes %.3f s reads %.3f s\n", count, writes, reads);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  for (int i = 1; i < argc; i += 1) {
    const char *step = argv[i];
#define NEXT (argv[i += 1])
    if (strcmp(step, "open") == 0) {
      const char *name = NEXT;
      kv_open(name, strlen(name), &out);
      if (refused(KV_ERRORS, 4)) continue;
      bucket = (int32_t)out.words[1];
      printf("open\n");
    } else if (strcmp(step, "set") == 0) {
      const char *key = NEXT, *value = NEXT;
      kv_set(bucket, key, strlen(key), value, strlen(value), &out);
      if (!refused(KV_ERRORS, 4)) printf("set %s\n", key);
    } else if (strcmp(step, "fill") == 0) {
      const char *key = NEXT;
      uint32_t length = (uint32_t)strtoul(NEXT, NULL, 10);
      void *value = calloc(1, length);
      kv_set(bucket, key, strlen(key), value, length, &out);
      free(value);
      if (!refused(KV_ERRORS, 4)) printf("filled %s\n", key);
    } else if (strcmp(step, "long") == 0) {
      uint32_t length = (uint32_t)strtoul(NEXT, NULL, 10);
      char *key = malloc(length);
      memset(key, 'k', length);
      kv_set(bucket, key, length, "v", 1, &out);
      free(key);
      if (!refused(KV_ERRORS, 4)) printf("set a long key\n");
    } else if (strcmp(step, "get") == 0) {
      const char *key = NEXT;
      kv_get(bucket, key, strlen(key), &out);
      if (refused(KV_ERRORS, 4)) continue;
      if (out.bytes[4] == 0) printf("nothing\n");
      else say(out.words[2], out.words[3] > 60 ? 60 : out.words[3]);
    } else if (strcmp(step, "delete") == 0) {
      const char *key = NEXT;
      kv_delete(bucket, key, strlen(key), &out);
      if (!refused(KV_ERRORS, 4)) printf("deleted %s\n", key);
    } else if (strcmp(step, "exists") == 0) {
      const char *key = NEXT;
      kv_exists(bucket, key, strlen(key), &out);
      if (!refused(KV_ERRORS, 4)) printf("exists %u\n", out.bytes[4]);
    } else if (strcmp(step, "list") == 0) list();
    else if (strcmp(step, "add") == 0) {
      const char *key = NEXT;
      kv_add(bucket, key, strlen(key), strtoll(NEXT, NULL, 10), &out);
      if (!refused(KV_ERRORS, 8)) printf("%" PRId64 "\n", out.longs[1]);
    } else if (strcmp(step, "swap") == 0) {
      const char *key = NEXT, *old = NEXT, *value = NEXT;
      kv_swap(bucket, key, strlen(key), strcmp(old, "-") != 0, old, strlen(old), value, strlen(value), &out);
      if (refused(KV_ERRORS, 4)) continue;
      if (out.bytes[4] == 0) printf("swapped\n");
      else if (out.bytes[8] == 0) printf("holds nothing\n");
      else printf("holds %.*s\n", (int)out.words[4], (const char *)(uintptr_t)out.words[3]);
    } else if (strcmp(step, "many") == 0) {
      pair pairs[2];
      text keys[3];
      for (int n = 0; n < 2; n += 1) {
        const char *key = NEXT, *value = NEXT;
        pairs[n] = (pair){{key, strlen(key)}, {value, strlen(value)}};
        keys[n * 2] = pairs[n].key;
      }
      keys[1] = (text){"none-such", 9};
      kv_set_many(bucket, pairs, 2, &out);
      if (refused(KV_ERRORS, 4)) continue;
      kv_get_many(bucket, keys, 3, &out);
      if (refused(KV_ERRORS, 4)) continue;
      /* Options of lists: a case, then where it is and how long. */
      const uint32_t *found = (const uint32_t *)(uintptr_t)out.words[1];
      for (uint32_t n = 0; n < out.words[2]; n += 1, found += 3) {
        if ((found[0] & 0xff) == 0) printf("nothing ");
        else printf("%.*s ", (int)found[2], (const char *)(uintptr_t)found[1]);
      }
      printf("\n");
    } else if (strcmp(step, "load") == 0) {
      const char *key = NEXT;
      load(key, atoi(NEXT));
    } else if (strcmp(step, "config") == 0) {
      static const char *const errors[] = {"io", "unfit"};
      const char *key = NEXT;
      config_get(key, strlen(key), &out);
      if (refused(errors, 4)) continue;
      if (out.bytes[4] == 0) printf("nothing\n");
      else say(out.words[2], out.words[3]);
    } else if (strcmp(step, "log") == 0) {
      int32_t level = atoi(NEXT);
      const char *context = NEXT, *message = NEXT;
      logging_log(level, context, strlen(context), message, strlen(message));
    } else if (strcmp(step, "node") == 0) node();
    else if (strcmp(step, "pod") == 0) {
      info_pod(&out);
      for (int n = 0; n < 4; n += 1) printf("%.*s ", (int)out.words[n * 2 + 1], (const char *)(uintptr_t)out.words[n * 2]);
      printf("\n");
    } else if (strcmp(step, "until") == 0) {
      const char *key = NEXT;
      do {
        pause_ms(20);
        kv_exists(bucket, key, strlen(key), &out);
        if (refused(KV_ERRORS, 4)) break;
      } while (out.bytes[4] == 0);
    } else if (strcmp(step, "changed") == 0) {
      const char *key = NEXT, *value = NEXT;
      do {
        pause_ms(20);
        config_get(key, strlen(key), &out);
      } while (out.bytes[0] != 0 || out.bytes[4] == 0 ||
               (out.words[3] == strlen(value) && memcmp((void *)(uintptr_t)out.words[2], value, out.words[3]) == 0));
      say(out.words[2], out.words[3]);
    } else if (strcmp(step, "hold") == 0) {
      fflush(stdout);
      for (;;) pause_ms(1000000);
    } else {
      fprintf(stderr, "there is no step %s\n", step);
      return 1;
    }
    fflush(stdout);
  }
  return 0;
}
