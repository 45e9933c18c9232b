/**
 * An MCP2221 (Microchip DS20005565, chapter 3: I2C master and four GPIO lines behind USB HID) for the kernel's own
 * driver hid-mcp2221. On its bus is a memory of 256 bytes at 0x48, whose first written byte says where to read or
 * write. Its line 1 is wired to its line 0. Runs in a guest.
 */
import { UhidDevice } from "./uhid-device.ts";

const OUTPUT = 6;
const INPUT2 = 12;
const REPORT_BYTES = 64;
/** Sixty-four bytes in, sixty-four out, of no meaning. */
const DESCRIPTOR = "0600ff0901a101190129401500 26ff007508954081001901294091 00c0";

const MEMORY_ADDRESS = 0x48;
const STATUS = 0x10;
const WRITE = 0x90;
const WRITE_NO_STOP = 0x94;
const READ = 0x91;
const READ_AGAIN = 0x93;
const GET_DATA = 0x40;
const SET_LINES = 0x50;
const GET_LINES = 0x51;
const LINES = 4;
const NOT_ACKNOWLEDGED = 0x25;
const READ_DONE = 0x55;
const MAX_DATA = 60;

/** Plugged in as long as its process lives. */
export class UsbBridgeChip {
  readonly #device = new UhidDevice(
    { name: "MCP2221", vendor: 0x04d8, product: 0x00dd, descriptor: DESCRIPTOR },
    (type, body) => this.#heard(type, body),
  );
  readonly #memory = Buffer.alloc(256);
  #at = 0;
  #nobody = false;
  #left = 0;
  readonly #levels: number[] = [0, 0, 0, 0];
  /** 1: input. */
  readonly #directions: number[] = [1, 1, 1, 1];

  #heard(type: number, body: Buffer): void {
    if (type !== OUTPUT) return;
    const input = Buffer.alloc(2 + REPORT_BYTES);
    input.writeUInt16LE(REPORT_BYTES, 0);
    this.#answer(body.subarray(0, REPORT_BYTES)).copy(input, 2);
    this.#device.send(INPUT2, input);
  }

  #answer(asked: Buffer): Buffer {
    const answer = Buffer.alloc(REPORT_BYTES);
    const command = asked[0] ?? 0;
    answer[0] = command;
    if (command === STATUS) {
      answer[3] = asked[3] ?? 0;
      answer[20] = this.#nobody ? 0x40 : 0;
    } else if (command === WRITE || command === WRITE_NO_STOP) this.#write(asked);
    else if (command === READ || command === READ_AGAIN) {
      this.#nobody = (asked[3] ?? 0) >> 1 !== MEMORY_ADDRESS;
      this.#left = asked.readUInt16LE(1);
    } else if (command === GET_DATA) this.#give(answer);
    else if (command === SET_LINES) this.#setLines(asked, answer);
    else if (command === GET_LINES) this.#getLines(answer);
    return answer;
  }

  #write(asked: Buffer): void {
    this.#nobody = (asked[3] ?? 0) >> 1 !== MEMORY_ADDRESS;
    const [register, ...bytes] = asked.subarray(4, 4 + Math.min(asked.readUInt16LE(1), MAX_DATA));
    if (this.#nobody || register === undefined) return;
    this.#at = register;
    for (const byte of bytes) this.#memory[this.#at++ % this.#memory.length] = byte;
  }

  #give(answer: Buffer): void {
    if (this.#nobody) {
      answer[2] = NOT_ACKNOWLEDGED;
      return;
    }
    const length = Math.min(this.#left, MAX_DATA);
    this.#left -= length;
    answer[2] = READ_DONE;
    answer[3] = length;
    for (let index = 0; index < length; index += 1) answer[4 + index] = this.#memory[this.#at++ % 256] ?? 0;
  }

  /** Sets each line: whether the level changes, the level, whether the direction changes, the direction. */
  #setLines(asked: Buffer, answer: Buffer): void {
    asked.copy(answer, 2, 2);
    for (let line = 0; line < LINES; line += 1) {
      const [changesLevel, level, changesDirection, direction] = asked.subarray(2 + line * 4, 6 + line * 4);
      if (changesLevel) this.#levels[line] = level ?? 0;
      if (changesDirection) this.#directions[line] = direction ?? 0;
    }
    if (this.#directions[1] === 1) this.#levels[1] = this.#levels[0] ?? 0;
  }

  /**
   * The level in the place of the direction too: which of the two is which the kernel's driver has taken in both ways.
   */
  #getLines(answer: Buffer): void {
    for (let line = 0; line < LINES; line += 1) answer.fill(this.#levels[line] ?? 0, 2 + line * 2, 4 + line * 2);
  }
}
