/* Uses wasi:keyvalue 0.2.0-draft2, wasi:config and wasi:logging, by hand-written bindings, and says what came of it. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define STORE "wasi:keyvalue/store@0.2.0-draft2"
#define BATCH "wasi:keyvalue/batch@0.2.0-draft2"

typedef struct { const char *at; uint32_t length; } text;
typedef struct { text key; text value; } pair;

IMPORT(STORE, "open") void store_open(const char *, uint32_t, void *);
IMPORT(STORE, "[method]bucket.set") void bucket_set(int32_t, const char *, uint32_t, const char *, uint32_t, void *);
IMPORT(STORE, "[method]bucket.list-keys") void bucket_list(int32_t, int32_t, const char *, uint32_t, void *);
IMPORT(BATCH, "get-many") void get_many(int32_t, const text *, uint32_t, void *);
IMPORT(BATCH, "delete-many") void delete_many(int32_t, const text *, uint32_t, void *);
IMPORT("wasi:config/store@0.2.0-rc.1", "get-all") void config_all(void *);
IMPORT("wasi:logging/logging@0.1.0-draft", "log") void log_line(int32_t, const char *, uint32_t, const char *, uint32_t);

static union { uint8_t bytes[64]; uint32_t words[16]; int64_t longs[8]; } out;

static void open_bucket(const char *name) { store_open(name, strlen(name), &out); }

int main(void) {
  open_bucket("none-such");
  printf("result %u case %u\n", out.bytes[0], out.bytes[4]);
  open_bucket("b");
  int32_t bucket = (int32_t)out.words[1];
  bucket_set(bucket, "k", 1, "mine", 4, &out);
  bucket_set(bucket, "n", 1, "-5", 2, &out);
  bucket_set(bucket, "", 0, "x", 1, &out);
  printf("result %u case %u %.*s\n", out.bytes[0], out.bytes[4], (int)out.words[3], (const char *)(uintptr_t)out.words[2]);
  text keys[3] = {{"k", 1}, {"x", 1}, {"n", 1}};
  get_many(bucket, keys, 3, &out);
  /* Options of a key and a value. */
  const uint32_t *found = (const uint32_t *)(uintptr_t)out.words[1];
  for (uint32_t i = 0; i < out.words[2]; i += 1, found += 5) {
    if ((found[0] & 0xff) == 0) printf("nothing ");
    else printf("%.*s=%.*s ", (int)found[2], (const char *)(uintptr_t)found[1], (int)found[4], (const char *)(uintptr_t)found[3]);
  }
  printf("\n");
  delete_many(bucket, keys, 2, &out);
  bucket_list(bucket, 0, NULL, 0, &out);
  printf("%u keys, cursor %u\n", out.words[2], out.bytes[12]);
  config_all(&out);
  const text *settings = (const text *)(uintptr_t)out.words[1];
  for (uint32_t i = 0; i < out.words[2] * 2; i += 2) {
    printf("%.*s=%.*s ", (int)settings[i].length, settings[i].at, (int)settings[i + 1].length, settings[i + 1].at);
  }
  printf("\n");
  fflush(stdout);
  log_line(1, "main", 4, "hidden", 6);
  log_line(3, "main", 4, "two\nlines", 9);
  return 0;
}
