/**
 * A CP2112 (Silicon Labs AN495: eight GPIO lines and an SMBus behind USB HID) for the kernel's own driver hid-cp2112,
 * which has interrupts for its lines. Its line 1 is wired to its line 0; nothing is on its bus. Runs in a guest.
 */
import { UhidDevice } from "./uhid-device.ts";

const GET_REPORT = 9;
const GET_REPORT_REPLY = 10;
const SET_REPORT = 13;
const SET_REPORT_REPLY = 14;
const EIO = 5;

/** One report in and one out, of no meaning. */
const DESCRIPTOR = "0600ff 0901 a101 1500 26ff00 7508 953f 8516 0901 8102 8514 0901 9102 c0";
/** Feature reports, with their bytes after the number. */
const LINE_DIRECTIONS = 0x02;
const GET_LEVELS = 0x03;
const SET_LEVELS = 0x04;
const REPORT_BYTES: Readonly<Record<number, number>> = {
  [LINE_DIRECTIONS]: 4,
  [GET_LEVELS]: 1,
  // Version, SMBus configuration, lock byte, USB configuration.
  5: 2,
  6: 13,
  32: 1,
  33: 9,
};

/** Plugged in as long as its process lives. */
export class UsbLineChip {
  /** A bit for each line; 1: output. */
  #outputs = 0;
  #levels = 0;
  readonly #device = new UhidDevice(
    { name: "CP2112", vendor: 0x10c4, product: 0xea90, descriptor: DESCRIPTOR },
    (type, body) => this.#heard(type, body),
  );

  /** Bodies begin with the request's number, which the reply repeats. */
  #heard(type: number, body: Buffer): void {
    const reply = Buffer.alloc(8 + 64);
    body.copy(reply, 0, 0, 4);
    const report = body[4] ?? 0;
    if (type === GET_REPORT) {
      const length = REPORT_BYTES[report];
      if (length === undefined) reply.writeUInt16LE(EIO, 4);
      else {
        reply.writeUInt16LE(1 + length, 6);
        reply[8] = report;
        if (report === LINE_DIRECTIONS) reply[9] = this.#outputs;
        if (report === GET_LEVELS) reply[9] = this.#wired();
      }
      this.#device.send(GET_REPORT_REPLY, reply);
    } else if (type === SET_REPORT) {
      const [, first = 0, second = 0] = body.subarray(8);
      if (report === LINE_DIRECTIONS) this.#outputs = first;
      if (report === SET_LEVELS) this.#levels = (this.#levels & ~second) | (first & second);
      this.#device.send(SET_REPORT_REPLY, reply);
    }
  }

  #wired(): number {
    const level = this.#levels & 1;
    return (this.#outputs & 2) === 0 ? (this.#levels & ~2) | (level << 1) : this.#levels;
  }
}
