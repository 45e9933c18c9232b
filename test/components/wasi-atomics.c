/*
 * Uses wasi:keyvalue/atomics 0.2.0-draft2, by hand-written bindings: one command each argument, and one line for each.
 *   new KEY  current  swap VALUE  drop  get KEY  set KEY VALUE  delete KEY  add KEY DELTA: on the one handle that it has
 *   size KEY BYTES: new and swap of a value of this size
 *   count KEY TIMES: adds one so often by handles, as often as it takes
 *   hoard KEY: opens handles until it cannot
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define STORE "wasi:keyvalue/store@0.2.0-draft2"
#define ATOMICS "wasi:keyvalue/atomics@0.2.0-draft2"

IMPORT(STORE, "open") void store_open(const char *, size_t, void *);
IMPORT(STORE, "[method]bucket.get") void bucket_get(int32_t, const char *, size_t, void *);
IMPORT(STORE, "[method]bucket.set") void bucket_set(int32_t, const char *, size_t, const char *, size_t, void *);
IMPORT(STORE, "[method]bucket.delete") void bucket_delete(int32_t, const char *, size_t, void *);
IMPORT(ATOMICS, "[static]cas.new") void cas_new(int32_t, const char *, size_t, void *);
IMPORT(ATOMICS, "[method]cas.current") void cas_current(int32_t, void *);
IMPORT(ATOMICS, "[resource-drop]cas") void cas_drop(int32_t);
IMPORT(ATOMICS, "swap") void cas_swap(int32_t, const void *, size_t, void *);
IMPORT(ATOMICS, "increment") void increment(int32_t, const char *, size_t, int64_t, void *);

static union { uint8_t bytes[64]; uint32_t words[16]; int64_t longs[8]; } out;
static int32_t bucket, cas;

/* An error of the store, whose case and text stand here. */
static void print_error(int at) {
  static const char *const ERRORS[] = {"no-such-store", "access-denied", "other"};
  printf("%s", ERRORS[out.bytes[at]]);
  if (out.bytes[at] == 2) printf(": %.*s", (int)out.words[at / 4 + 2], (const char *)(uintptr_t)out.words[at / 4 + 1]);
  printf("\n");
}

/* Of a result whose ok is nothing. */
static void print_done(void) {
  if (out.bytes[0] == 0) printf("ok\n");
  else print_error(4);
}

/* Of a result whose ok is an option of bytes. */
static void print_value(void) {
  if (out.bytes[0] != 0) print_error(4);
  else if (out.bytes[4] == 0) printf("nothing\n");
  else printf("%.*s\n", (int)out.words[3], (const char *)(uintptr_t)out.words[2]);
}

/* A failed swap gives another handle for the same key. */
static int swapped(const void *value, size_t length) {
  cas_swap(cas, value, length, &out);
  if (out.bytes[0] != 0 && out.bytes[4] == 1) cas = (int32_t)out.words[2];
  return out.bytes[0] == 0;
}

static void print_swapped(const void *value, size_t length) {
  if (swapped(value, length)) printf("swapped\n");
  else if (out.bytes[4] == 1) printf("cas-failed\n");
  else print_error(8);
}

static void open_handle(const char *key) {
  cas_new(bucket, key, strlen(key), &out);
  cas = (int32_t)out.words[1];
}

static void count(const char *key, long times) {
  long failures = 0;
  open_handle(key);
  for (long done = 0; done < times;) {
    char text[24];
    cas_current(cas, &out);
    if (out.bytes[0] != 0) {
      print_error(4);
      return;
    }
    long value = 0;
    if (out.bytes[4] == 1) {
      snprintf(text, sizeof text, "%.*s", (int)out.words[3], (const char *)(uintptr_t)out.words[2]);
      free((void *)(uintptr_t)out.words[2]);
      value = atol(text);
    }
    if (swapped(text, (size_t)snprintf(text, sizeof text, "%ld", value + 1))) {
      done += 1;
      open_handle(key);
    } else if (out.bytes[4] != 1) {
      print_error(8);
      return;
    } else failures += 1;
  }
  printf("counted %ld, failed %s\n", times, failures > 0 ? "meanwhile" : "never");
}

int main(int argc, char **argv) {
  store_open("b", 1, &out);
  if (out.bytes[0] != 0) {
    print_error(4);
    return 0;
  }
  bucket = (int32_t)out.words[1];
  for (int at = 1; at < argc; at += 1) {
    const char *command = argv[at];
    const char *key = at + 1 < argc ? argv[at + 1] : "", *value = at + 2 < argc ? argv[at + 2] : "";
    if (strcmp(command, "current") == 0) {
      cas_current(cas, &out);
      print_value();
    } else if (strcmp(command, "drop") == 0) {
      cas_drop(cas);
      printf("dropped\n");
    } else if (strcmp(command, "swap") == 0) {
      print_swapped(key, strlen(key));
      at += 1;
    } else if (strcmp(command, "new") == 0) {
      open_handle(key);
      print_done();
      at += 1;
    } else if (strcmp(command, "get") == 0) {
      bucket_get(bucket, key, strlen(key), &out);
      print_value();
      at += 1;
    } else if (strcmp(command, "delete") == 0) {
      bucket_delete(bucket, key, strlen(key), &out);
      print_done();
      at += 1;
    } else if (strcmp(command, "hoard") == 0) {
      for (;;) open_handle(key);
    } else {
      if (strcmp(command, "set") == 0) {
        bucket_set(bucket, key, strlen(key), value, strlen(value), &out);
        print_done();
      } else if (strcmp(command, "add") == 0) {
        increment(bucket, key, strlen(key), atoll(value), &out);
        if (out.bytes[0] == 0) printf("%" PRId64 "\n", out.longs[1]);
        else print_error(8);
      } else if (strcmp(command, "size") == 0) {
        void *large = calloc(1, (size_t)atol(value));
        open_handle(key);
        print_swapped(large, (size_t)atol(value));
        free(large);
      } else count(key, atol(value));
      at += 2;
    }
    fflush(stdout);
  }
  return 0;
}
