/*
 * A serial port by a component of WASI 0.3: begins a timer, opens the port that its argument names, says so, waits for three bytes, writes
 * them back and says them, and then what became of the timer meanwhile.
 */
#include "async.h"

#define SERIAL "picolet:board/serial@0.1.0"
#define STREAMS "wasi:io/streams@0.2.3"

IMPORT(SERIAL, "open") void open(const char *, u32, u32, u32, u32, u32, u32, void *);
IMPORT(SERIAL, "[method]port.input") u32 input_of(u32);
IMPORT(SERIAL, "[method]port.output") u32 output_of(u32);
IMPORT(SERIAL, "[resource-drop]port") void drop_port(u32);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void read_some(u32, u64, void *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void write_all(u32, const void *, u32, void *);
IMPORT(STREAMS, "[resource-drop]input-stream") void drop_input(u32);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_output(u32);
IMPORT("wasi:clocks/monotonic-clock@0.3.0", "[async-lower]wait-for") u32 wait_for(u64);

static struct { u8 failed; u32 at[7]; } told __attribute__((aligned(8)));

EXPORT("[async-lift]wasi:cli/run@0.3.0#run") u32 run(void) {
  begin();
  u32 timer = wait_for(1000000);
  open(text(1), length(1), 9600, 8, 0, 1, 0, &told);
  if (told.failed) __builtin_trap();
  u32 port = told.at[0], input = input_of(port), output = output_of(port);
  put_text("open\n");
  for (u32 left = 3; left > 0; left -= told.at[1]) {
    read_some(input, left, &told);
    if (told.failed) __builtin_trap();
    const void *bytes = (const void *)told.at[0];
    u32 size = told.at[1];
    put(bytes, size);
    write_all(output, bytes, size, &told);
    if (told.failed) __builtin_trap();
    told.at[1] = size;
  }
  drop_input(input);
  drop_output(output);
  drop_port(port);
  if ((timer & 0xf) != RETURNED) {
    settled((u32)BLOCKED, timer >> 4);
    subtask_drop(timer >> 4);
  }
  put_text("\nand the timer\n");
  stdout_end(out);
  task_return(0);
  return 0;
}
