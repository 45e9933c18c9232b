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

/*
 * In place of the start file. With that of Debian the linker puts constructors before and destructors behind every function
 * that is exported: each `cabi_realloc` would flush stdout, in the middle of a call of the host.
 */
void __wasm_call_ctors(void);
void __wasm_call_dtors(void);
int __main_void(void);
_Noreturn void __wasi_proc_exit(unsigned code);

void _start(void) {
  __wasm_call_ctors();
  int code = __main_void();
  __wasm_call_dtors();
  if (code != 0) __wasi_proc_exit(code);
}
