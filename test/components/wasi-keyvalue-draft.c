/* Uses the first draft of wasi:keyvalue, whose cursor is a number: sets 300 keys and lists them. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define STORE "wasi:keyvalue/store@0.2.0-draft"

IMPORT(STORE, "open") void store_open(const char *, uint32_t, void *);
IMPORT(STORE, "[method]bucket.set") void bucket_set(int32_t, const char *, uint32_t, const char *, uint32_t, void *);
IMPORT(STORE, "[method]bucket.list-keys") void bucket_list(int32_t, int32_t, int64_t, void *);
IMPORT("wasi:keyvalue/atomics@0.2.0-draft", "increment") void increment(int32_t, const char *, uint32_t, int64_t, void *);

static union { uint8_t bytes[64]; uint32_t words[16]; int64_t longs[8]; } out;

int main(void) {
  store_open("b", 1, &out);
  int32_t bucket = (int32_t)out.words[1];
  for (int i = 0; i < 300; i += 1) {
    char key[16];
    bucket_set(bucket, key, (uint32_t)snprintf(key, sizeof key, "key-%d", i), "v", 1, &out);
    if (out.bytes[0] != 0) return 1;
  }
  uint32_t keys = 0, pages = 0;
  int64_t cursor = 0;
  for (int more = 0;;) {
    bucket_list(bucket, more, cursor, &out);
    if (out.bytes[0] != 0) return 1;
    keys += out.words[3];
    pages += 1;
    more = out.bytes[16];
    cursor = out.longs[3];
    if (!more) break;
  }
  printf("%u keys on %u pages\n", keys, pages);
  increment(bucket, "n", 1, 7, &out);
  printf("%" PRId64 "\n", out.longs[1]);
  return 0;
}
