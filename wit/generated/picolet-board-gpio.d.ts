// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/gpio@0.1.0 **/
/**
 * The lines that the pod names and the board has.
 */
export function lines(): Array<LineInfo>;
/**
 * `line`: an id or a name, as in `line-info`.
 */
export function openInput(line: string, options: InputOptions): InputLine;
export function openOutput(line: string, options: OutputOptions): OutputLine;
export type Pollable = import('./wasi-io-poll.js').Pollable;
export type Error =
  | {
    /**
     * The pod names no such line.
     */
    tag: 'not-granted',
  }
  | {
    /**
     * The board has no such chip or line.
     */
    tag: 'no-such-line',
  }
  | {
    /**
     * Another program has it open.
     */
    tag: 'busy',
  }
  | {
    /**
     * The chip cannot do it: a bias, a drive, a debounce time, edges.
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
export interface LineInfo {
  /**
   * Path of the chip and number of the line: `/dev/gpiochip0:17`.
   */
  id: string,
  /**
   * The line's own name, such as `GPIO17`; may be empty.
   */
  name: string,
  /**
   * The program that has it open, as the kernel reports it. `none`: it is free.
   */
  consumer?: string,
}
/**
 * # Variants
 *
 * ## `"as-is"`
 *
 * ## `"disabled"`
 *
 * ## `"pull-up"`
 *
 * ## `"pull-down"`
 */
export type Bias = 'as-is' | 'disabled' | 'pull-up' | 'pull-down';
/**
 * # Variants
 *
 * ## `"push-pull"`
 *
 * ## `"open-drain"`
 *
 * ## `"open-source"`
 */
export type Drive = 'push-pull' | 'open-drain' | 'open-source';
export interface Edges {
  rising?: boolean,
  falling?: boolean,
}
export interface InputOptions {
  bias: Bias,
  /**
   * The electrical level is the opposite of the level that is reported.
   */
  activeLow: boolean,
  /**
   * The edges that `next` returns; none: no events.
   */
  edges: Edges,
  /**
   * Edges that are closer to each other are bounces, and not reported. `none`: no such time.
   */
  debounceMicroseconds?: number,
}
export interface OutputOptions {
  drive: Drive,
  bias: Bias,
  activeLow: boolean,
  /**
   * The level that it has from the moment of being opened.
   */
  initial: boolean,
}
/**
 * # Variants
 *
 * ## `"rising"`
 *
 * ## `"falling"`
 */
export type Edge = 'rising' | 'falling';
export interface EdgeEvent {
  edge: Edge,
  /**
   * When it was, on the clock of `wasi:clocks/monotonic-clock`, nanoseconds.
   */
  timestamp: bigint,
  /**
   * Counts from 1 for this line; a gap says how many were lost because they were not fetched in time.
   */
  sequence: number,
}

export class InputLine {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  /**
  * True: active.
  */
  read(): boolean;
  /**
  * The edges since the last call, oldest first, `max` of them and 64 at the most; none if there were none.
  */
  next(max: number): Array<EdgeEvent>;
  /**
  * Ready when `next` has something to tell, or fails.
  */
  subscribe(): Pollable;
}

export class OutputLine {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  /**
  * What it was last set to, or with an open drive what the line really has.
  */
  read(): boolean;
  write(level: boolean): void;
}
