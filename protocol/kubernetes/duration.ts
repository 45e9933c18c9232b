import { type Millis, millis } from "../ports.ts";

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
/** Longer than any duration in use. */
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

/** Formats a duration as Go does: "0s", "1.5s", "250ms", "1m30s", "4h0m0s". */
export function formatDuration(duration: Millis): string {
  const total = Math.abs(duration);
  const sign = duration < 0 ? "-" : "";
  if (total === 0) return "0s";
  if (total < 1) return `${sign}${decimal(total * 1000)}µs`;
  if (total < 1000) return `${sign}${decimal(total)}ms`;
  const hours = Math.floor(total / 3_600_000);
  const minutes = Math.floor((total % 3_600_000) / 60_000);
  const seconds = `${decimal((total % 60_000) / 1000)}s`;
  if (hours > 0) return `${sign}${hours}h${minutes}m${seconds}`;
  return `${sign}${minutes > 0 ? `${minutes}m` : ""}${seconds}`;
}

/** No finer than a nanosecond, and without the noise of binary fractions. */
const decimal = (value: number): string => String(Number(value.toFixed(9)));
