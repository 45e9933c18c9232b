/** A USB HID device for the kernel's own drivers, by /dev/uhid (Documentation/hid/uhid.rst). Runs in a guest. */
import { constants, openSync, read, writeSync } from "node:fs";

const CREATE2 = 11;
/** struct uhid_event: the type, and struct uhid_create2_req, the largest of its parts. */
const EVENT_BYTES = 4 + 4376;
const BUS_USB = 3;
/** In struct uhid_create2_req: after the name, the physical path and the unique name. */
const NUMBERS_AT = 4 + 128 + 64 + 64;

export interface UhidInit {
  readonly name: string;
  readonly vendor: number;
  readonly product: number;
  /** Its report descriptor, hexadecimal. */
  readonly descriptor: string;
}

/** Plugged in as long as its process lives. */
export class UhidDevice {
  readonly #fd = openSync("/dev/uhid", constants.O_RDWR);
  readonly #heard: (type: number, body: Buffer) => void;

  /** @param heard gets each event of the kernel, without its type */
  constructor({ name, vendor, product, descriptor }: UhidInit, heard: (type: number, body: Buffer) => void) {
    this.#heard = heard;
    const bytes = Buffer.from(descriptor.replaceAll(" ", ""), "hex");
    const event = Buffer.alloc(EVENT_BYTES);
    event.writeUInt32LE(CREATE2, 0);
    event.write(name, 4);
    event.writeUInt16LE(bytes.length, NUMBERS_AT);
    event.writeUInt16LE(BUS_USB, NUMBERS_AT + 2);
    event.writeUInt32LE(vendor, NUMBERS_AT + 4);
    event.writeUInt32LE(product, NUMBERS_AT + 8);
    bytes.copy(event, NUMBERS_AT + 20);
    writeSync(this.#fd, event);
    this.#listen();
  }

  send(type: number, body: Uint8Array): void {
    const event = Buffer.alloc(EVENT_BYTES);
    event.writeUInt32LE(type, 0);
    event.set(body, 4);
    writeSync(this.#fd, event);
  }

  #listen(): void {
    const event = Buffer.alloc(EVENT_BYTES);
    read(this.#fd, event, 0, EVENT_BYTES, null, (error) => {
      if (error !== null) throw error;
      this.#heard(event.readUInt32LE(0), event.subarray(4));
      this.#listen();
    });
  }
}
