// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/logging@0.1.0 **/
/**
 * `context`: where in the component, may be empty. Line breaks are written as `\n`, so that a message is one line;
 * what is longer than 8 KiB is cut.
 */
export function log(level: Level, context: string, message: string): void;
/**
 * # Variants
 *
 * ## `"trace"`
 *
 * Step by step.
 * ## `"debug"`
 *
 * For debugging.
 * ## `"info"`
 *
 * What goes on.
 * ## `"warn"`
 *
 * It goes on, but not as it should.
 * ## `"error"`
 *
 * Something could not be done.
 * ## `"critical"`
 *
 * The component cannot go on.
 */
export type Level = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'critical';
