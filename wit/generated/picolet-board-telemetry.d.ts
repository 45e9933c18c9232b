// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/telemetry@0.1.0 **/
/**
 * All of them or none.
 */
export function write(points: Array<Point>): void;
export function emit(event: Event): void;
export type Value =
  | {
    tag: 'integer',
    val: bigint,
  }
  | {
    /**
     * Neither infinite nor not-a-number.
     */
    tag: 'floating',
    val: number,
  }
  | {
    tag: 'boolean',
    val: boolean,
  }
  | {
    tag: 'text',
    val: string,
  };
export interface Point {
  /**
   * 1 to 128 bytes.
   */
  measurement: string,
  /**
   * 16 at the most; names and values of 1 to 128 bytes. Few different values, such as a sensor's name: they are what
   * is indexed.
   */
  tags: Array<[string, string]>,
  /**
   * 1 to 64; names of 1 to 128 bytes, texts of up to 4 KiB.
   */
  fields: Array<[string, Value]>,
  /**
   * Nanoseconds since 1970. `none`: now. A board whose clock is not set yet keeps the time of its monotonic clock,
   * and corrects it when it knows the time.
   */
  timestamp?: bigint,
}
/**
 * # Variants
 *
 * ## `"debug"`
 *
 * ## `"info"`
 *
 * ## `"warning"`
 *
 * ## `"error"`
 */
export type Severity = 'debug' | 'info' | 'warning' | 'error';
/**
 * Something that happened once.
 */
export interface Event {
  severity: Severity,
  /**
   * A word for programs, such as `door-opened`; 1 to 128 bytes.
   */
  name: string,
  /**
   * For people; up to 4 KiB.
   */
  message: string,
  /**
   * 16 at the most, of the same sizes as tags.
   */
  attributes: Array<[string, string]>,
  /**
   * As a point's.
   */
  timestamp?: bigint,
}
export type Error =
  | {
    /**
     * It is not of the form said above; what, in words. Nothing of the call was taken.
     */
    tag: 'invalid',
    val: string,
  }
  | {
    /**
     * More than 1,000 points, or 256 KiB, in one call; the limit that was passed. Nothing of the call was taken.
     */
    tag: 'too-large',
    val: bigint,
  }
  | {
    /**
     * The board takes no more at this moment, for its disk is full, or the pod gives more than its share: try again
     * after this many milliseconds. Nothing of the call was taken.
     */
    tag: 'full',
    val: bigint,
  }
  | {
    /**
     * The board keeps no telemetry, or not from this pod; why, in words.
     */
    tag: 'refused',
    val: string,
  }
  | {
    /**
     * The board's agent does not answer: it is restarting. The points may or may not have been taken.
     */
    tag: 'unavailable',
  };
