/*
 * Lines and buses of the board by a component of WASI 0.3: the steps of `pins.c`, but for `hold`, in the same words. Begins a timer
 * before, and says in the end what became of it.
 */
#include "async.h"

#define GPIO "picolet:board/gpio@0.1.0"
#define I2C "picolet:board/i2c@0.1.0"

typedef struct { u8 tag; union { u32 length; struct { const void *at; u32 length; } bytes; } value; } operation;

IMPORT(GPIO, "lines") void gpio_lines(u8 *);
/* bias, active-low, edges, debounce-microseconds */
IMPORT(GPIO, "open-input") void gpio_input(const char *, u32, u32, u32, u32, u32, u32, u8 *);
/* drive, bias, active-low, initial */
IMPORT(GPIO, "open-output") void gpio_output(const char *, u32, u32, u32, u32, u32, u8 *);
IMPORT(GPIO, "[method]input-line.read") void input_read(u32, u8 *);
IMPORT(GPIO, "[method]input-line.next") void input_next(u32, u32, u8 *);
IMPORT(GPIO, "[resource-drop]input-line") void input_drop(u32);
IMPORT(GPIO, "[method]output-line.read") void output_read(u32, u8 *);
IMPORT(GPIO, "[method]output-line.write") void output_write(u32, u32, u8 *);
IMPORT(GPIO, "[resource-drop]output-line") void output_drop(u32);
IMPORT(I2C, "open") void i2c_open(const char *, u32, u32, u8 *);
IMPORT(I2C, "[method]device.transaction") void i2c_transaction(u32, const operation *, u32, u8 *);
IMPORT(I2C, "[method]device.read") void i2c_read(u32, u32, u8 *);
IMPORT(I2C, "[method]device.write") void i2c_write(u32, const void *, u32, u8 *);
IMPORT(I2C, "[method]device.write-read") void i2c_write_read(u32, const void *, u32, u32, u8 *);
IMPORT(I2C, "[resource-drop]device") void i2c_drop(u32);
IMPORT("wasi:clocks/monotonic-clock@0.3.0", "[async-lower]wait-for") u32 wait_for(u64);

static const char *const GPIO_ERRORS[] = {"not-granted", "no-such-line", "busy", "unsupported", "io"};
static const char *const I2C_ERRORS[] = {"not-granted", "no-such-bus", "busy", "too-large", "bus", "arbitration-loss",
  "no-acknowledge", "overrun", "timeout", "other"};
static u8 result[64] __attribute__((aligned(8)));
static u8 buffer[8192];
static u32 output, input, device;

static u32 word(u32 offset) { return *(u32 *)(result + offset); }

static void put_line(const char *what) {
  put_text(what);
  put_text("\n");
}

/* Whether it went well; else it is said. @param in_words the case with a text */
static int well(const char *const *names, u8 in_words) {
  if (result[0] == 0) return 1;
  put_text("error ");
  put_text(names[result[4]]);
  if (result[4] == in_words) {
    put_text(": ");
    put((const void *)word(8), word(12));
  }
  if (names == I2C_ERRORS && result[4] == 6) {
    put_text(" ");
    put_number(result[8]);
  }
  put_text("\n");
  return 0;
}

static int pins(void) { return well(GPIO_ERRORS, 4); }
static int bus(void) { return well(I2C_ERRORS, 9); }

static void put_value(const char *what, u32 value) {
  put_text(what);
  put_number(value);
  put_text("\n");
}

static u32 digit(char letter) { return (u32)(letter <= '9' ? letter - '0' : letter - 'a' + 10); }

/* @returns how many */
static u32 bytes_of(u32 at) {
  u32 size = length(at) / 2;
  for (u32 each = 0; each < size; each++)
    buffer[each] = (u8)(digit(text(at)[2 * each]) << 4 | digit(text(at)[2 * each + 1]));
  return size;
}

/* Behind `0x`. */
static u32 hexadecimal(u32 at) {
  u32 value = 0;
  for (u32 each = 2; each < length(at); each++) value = value << 4 | digit(text(at)[each]);
  return value;
}

static void put_bytes(void) {
  if (!bus()) return;
  put_text("bytes ");
  for (u32 at = 0; at < word(8); at++) {
    u8 byte = ((const u8 *)word(4))[at];
    put(&"0123456789abcdef"[byte >> 4], 1);
    put(&"0123456789abcdef"[byte & 0xf], 1);
  }
  put_text("\n");
}

static void put_lines(void) {
  gpio_lines(result);
  if (!pins()) return;
  const u32 *info = (const u32 *)word(4);
  u32 left = word(8);
  put_text("lines");
  /* id, name, and an optional consumer */
  for (; left > 0; left--, info += 7) {
    put_text(" ");
    put((const void *)info[0], info[1]);
    if (((const u8 *)info)[16] == 0) continue;
    put_text("=");
    put((const void *)info[5], info[6]);
  }
  put_text("\n");
}

static void too_large(void) {
  static operation many[43];
  for (u32 at = 0; at < 43; at++) many[at].value.length = 1;
  i2c_transaction(device, many, 43, result);
  bus();
  i2c_read(device, 0xffffffff, result);
  bus();
  i2c_write(device, buffer, 8193, result);
  bus();
}

static void drop_all(void) {
  if (output) output_drop(output);
  if (input) input_drop(input);
  if (device) i2c_drop(device);
  output = input = device = 0;
  put_line("dropped");
}

/* @returns the last of its words */
static u32 line_step(u32 at) {
  if (is_at(at, "output")) {
    gpio_output(text(at + 1), length(at + 1), 0, 0, 0, number(at + 2), result);
    if (pins()) output = word(4), put_line("output");
    return at + 2;
  }
  if (is_at(at, "set")) {
    output_write(output, number(at + 1), result);
    if (pins()) put_line("set");
    return at + 1;
  }
  if (is_at(at, "input")) {
    gpio_input(text(at + 1), length(at + 1), 0, 0, 0, 0, 0, result);
    if (pins()) input = word(4), put_line("input");
    return at + 1;
  }
  if (is_at(at, "edges")) {
    gpio_input(text(at + 1), length(at + 1), 0, 0, 3, 0, 0, result);
    if (pins()) put_line("waits for edges");
    return at + 1;
  }
  if (is_at(at, "level")) {
    output_read(output, result);
    if (pins()) put_value("level ", result[4]);
  } else if (is_at(at, "read")) {
    input_read(input, result);
    if (pins()) put_value("read ", result[4]);
  } else if (is_at(at, "next")) {
    input_next(input, 100, result);
    if (pins()) put_value("edges ", word(8));
  } else if (is_at(at, "lines")) put_lines();
  else __builtin_trap();
  return at;
}

static u32 step(u32 at) {
  if (is_at(at, "bus")) {
    i2c_open(text(at + 1), length(at + 1), hexadecimal(at + 2), result);
    if (bus()) device = word(4), put_line("bus");
    return at + 2;
  }
  if (is_at(at, "put")) {
    i2c_write(device, buffer, bytes_of(at + 1), result);
    if (bus()) put_line("put");
    return at + 1;
  }
  if (is_at(at, "get")) {
    i2c_read(device, number(at + 1), result);
    put_bytes();
    return at + 1;
  }
  if (is_at(at, "ask")) {
    i2c_write_read(device, buffer, bytes_of(at + 1), number(at + 2), result);
    put_bytes();
    return at + 2;
  }
  if (is_at(at, "huge")) too_large();
  else if (is_at(at, "drop")) drop_all();
  else return line_step(at);
  return at;
}

EXPORT("[async-lift]wasi:cli/run@0.3.0#run") u32 run(void) {
  begin();
  u32 timer = wait_for(1000000);
  for (u32 at = 1; at < count; at++) at = step(at);
  if ((timer & 0xf) != RETURNED) {
    settled((u32)BLOCKED, timer >> 4);
    subtask_drop(timer >> 4);
  }
  put_line("and the timer");
  stdout_end(out);
  task_return(0);
  return 0;
}
