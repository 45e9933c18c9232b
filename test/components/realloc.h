/*
 * Included before every program here. The command adapter takes its memory from the program's `cabi_realloc` where there
 * is one, else from `memory.grow`; Debian's wasi-libc of 2022 then counts that page to its own heap and writes over it.
 */
#include <stdlib.h>

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, size_t old_size, size_t alignment, size_t size) {
  (void)old_size;
  (void)alignment;
  void *block = realloc(old, size);
  if (block == NULL && size > 0) __builtin_trap();
  return block;
}
