/*
 * The program that holds a sandbox's namespaces: it waits, uses almost no memory, and takes the end of its orphans.
 * As the first process of its namespace it gets only signals that it asks for: one that ended only by SIGKILL would hold
 * up every shutdown of the board until systemd loses patience.
 */
#if defined(__x86_64__)
enum { SIGNAL_MASK = 14, WAIT_SIGNAL = 128, WAIT_CHILD = 61, EXIT = 231 };
static long call(long number, long a, long b, long c, long d) {
  long result;
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
enum { SIGNAL_MASK = 135, WAIT_SIGNAL = 137, WAIT_CHILD = 260, EXIT = 94 };
static long call(long number, long a, long b, long c, long d) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
}
#endif

enum { BLOCK = 0, NO_WAIT = 1, SET_BYTES = 8, INTERRUPT = 2, TERMINATE = 15, CHILD = 17 };

void _start(void) {
  unsigned long set = 1ul << (INTERRUPT - 1) | 1ul << (TERMINATE - 1) | 1ul << (CHILD - 1);
  call(SIGNAL_MASK, BLOCK, (long)&set, 0, SET_BYTES);
  for (;;) {
    long got = call(WAIT_SIGNAL, (long)&set, 0, 0, SET_BYTES);
    if (got == INTERRUPT || got == TERMINATE) call(EXIT, 0, 0, 0, 0);
    while (got == CHILD && call(WAIT_CHILD, -1, 0, NO_WAIT, 0) > 0) continue;
  }
}
