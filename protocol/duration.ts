import { type Millis, millis } from "./ports.ts";

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

const DURATION = /^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+$/;
const PART = /(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)/g;
/** Longer than any duration anybody writes. */
const MAX_LENGTH = 64;
/** Go's int64 of nanoseconds ends at 292 years. */
const MAX_MS = 9_223_372_036_854;

/** A Go duration (`time.ParseDuration`): "20s", "1m30s", "1.5h", "0". `undefined` when `text` is none. Never throws. */
export function parseDuration(text: string): Millis | undefined {
  if (text.length > MAX_LENGTH) return undefined;
  if (/^[+-]?0$/.test(text)) return millis(0);
  if (!DURATION.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(PART)) total += Number(amount) * (UNIT_MS[unit ?? ""] ?? 0);
  if (total > MAX_MS) return undefined;
  return millis(text.startsWith("-") ? -total : total);
}
