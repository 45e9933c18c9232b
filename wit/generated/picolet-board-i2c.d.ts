// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/i2c@0.1.0 **/
/**
 * `bus`: such as `/dev/i2c-1`. `address`: 7 bits; 10-bit addresses have the bit 0x8000 set.
 */
export function open(bus: string, address: number): Device;
/**
 * # Variants
 *
 * ## `"address"`
 *
 * The device did not answer to its address: it may be missing.
 * ## `"data"`
 *
 * It did not take a byte.
 * ## `"unknown"`
 */
export type NoAcknowledgeSource = 'address' | 'data' | 'unknown';
export type Error =
  | {
    /**
     * The pod names no such bus with this address.
     */
    tag: 'not-granted',
  }
  | {
    /**
     * The board has no such bus.
     */
    tag: 'no-such-bus',
  }
  | {
    /**
     * Another program uses the address.
     */
    tag: 'busy',
  }
  | {
    /**
     * An operation of more than 8,192 bytes, or more than 42 operations.
     */
    tag: 'too-large',
  }
  | {
    /**
     * The bus: a start or stop where none may be.
     */
    tag: 'bus',
  }
  | {
    tag: 'arbitration-loss',
  }
  | {
    tag: 'no-acknowledge',
    val: NoAcknowledgeSource,
  }
  | {
    tag: 'overrun',
  }
  | {
    /**
     * The bus did not become free in time.
     */
    tag: 'timeout',
  }
  | {
    /**
     * What else, in words.
     */
    tag: 'other',
    val: string,
  };
export type Operation =
  | {
    /**
     * Bytes to read.
     */
    tag: 'read',
    val: number,
  }
  | {
    tag: 'write',
    val: Uint8Array,
  };

export class Device {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  /**
  * All in one transfer: a start before each operation, one stop at the end. Returns what each `read` read, in their
  * order. 42 operations at the most.
  */
  transaction(operations: Array<Operation>): Array<Uint8Array>;
  read(length: number): Uint8Array;
  write(data: Uint8Array): void;
  /**
  * A `write` and a `read` in one transfer, as registers are read.
  */
  writeRead(data: Uint8Array, length: number): Uint8Array;
}
