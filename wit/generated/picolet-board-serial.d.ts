// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/serial@0.1.0 **/
/**
 * `port`: such as `/dev/ttyS0`. Raw: no byte has a meaning, nothing is echoed.
 */
export function open(port: string, options: Options): Port;
export type InputStream = import('./wasi-io-streams.js').InputStream;
export type OutputStream = import('./wasi-io-streams.js').OutputStream;
export type Error =
  | {
    /**
     * The pod names no such port.
     */
    tag: 'not-granted',
  }
  | {
    /**
     * The board has no such port: it may have been unplugged.
     */
    tag: 'no-such-port',
  }
  | {
    /**
     * Another program has it open.
     */
    tag: 'busy',
  }
  | {
    /**
     * The port has no such speed, frame or line.
     */
    tag: 'unsupported',
  }
  | {
    /**
     * Of the device; what, in words.
     */
    tag: 'io',
    val: string,
  };
/**
 * # Variants
 *
 * ## `"none"`
 *
 * ## `"even"`
 *
 * ## `"odd"`
 */
export type Parity = 'none' | 'even' | 'odd';
/**
 * # Variants
 *
 * ## `"none"`
 *
 * ## `"hardware"`
 *
 * RTS and CTS.
 * ## `"software"`
 *
 * XON and XOFF.
 */
export type FlowControl = 'none' | 'hardware' | 'software';
export interface Options {
  /**
   * Bits a second, such as 9600 or 115200.
   */
  baudRate: number,
  /**
   * 5 to 8.
   */
  dataBits: number,
  parity: Parity,
  /**
   * 1 or 2.
   */
  stopBits: number,
  flowControl: FlowControl,
}
/**
 * Lines of a modem cable, as far as the port has them.
 */
export interface ModemLines {
  /**
   * Set by us: data terminal ready.
   */
  dtr?: boolean,
  /**
   * Set by us: request to send.
   */
  rts?: boolean,
  /**
   * Set by the other end: clear to send.
   */
  cts?: boolean,
  /**
   * Set by the other end: data set ready.
   */
  dsr?: boolean,
  /**
   * Set by the other end: data carrier detect.
   */
  dcd?: boolean,
  /**
   * Set by the other end: ring.
   */
  ri?: boolean,
}

export class Port {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  /**
  * What comes in: once, the second call traps. Ends when the port is unplugged.
  */
  input(): InputStream;
  /**
  * What goes out: once, the second call traps. A flush is done when the last bit is on the line.
  */
  output(): OutputStream;
  setOptions(options: Options): void;
  modemLines(): ModemLines;
  /**
  * Of `set` only dtr and rts count; both are set as said.
  */
  setModemLines(set: ModemLines): void;
  /**
  * Holds the line at zero for a quarter to half of a second.
  */
  sendBreak(): void;
}
