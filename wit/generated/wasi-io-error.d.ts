// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface wasi:io/error@0.2.0 **/

export class Error {
  /**
   * This type does not have a public constructor.
   */
  private constructor();
  toDebugString(): string;
}
