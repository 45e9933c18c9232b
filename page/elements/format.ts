/** Figures as people read them. Pure. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** `1.5 GiB`; three digits at most. */
export function bytesText(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return "–";
  let value = Math.max(0, bytes);
  let unit = 0;
  for (; value >= 1000 && unit < UNITS.length - 1; unit += 1) value /= 1024;
  return `${value >= 100 || unit === 0 ? Math.round(value) : Number(value.toPrecision(3))} ${UNITS[unit]}`;
}

const THOUSANDS = ["", "k", "M", "G", "T"];

/** `16.1 M`. */
export function numberText(number: number): string {
  let value = number;
  let unit = 0;
  for (; value >= 10_000 && unit < THOUSANDS.length - 1; unit += 1) value /= 1000;
  return `${unit === 0 ? Math.round(value) : Number(value.toPrecision(3))} ${THOUSANDS[unit]}`.trim();
}

export const percentText = (share: number | null | undefined): string =>
  share === null || share === undefined || !Number.isFinite(share) ? "–" : `${Number((share * 100).toPrecision(2))} %`;

const SECOND = 1000;
const STEPS: readonly (readonly [unit: string, ms: number])[] = [
  ["d", 86_400 * SECOND],
  ["h", 3600 * SECOND],
  ["min", 60 * SECOND],
  ["s", SECOND],
];

/** The two largest units: `3 h 12 min`. */
export function durationText(ms: number): string {
  let left = Math.max(0, ms);
  const parts: string[] = [];
  for (const [unit, size] of STEPS) {
    const count = Math.floor(left / size);
    if (count === 0 && parts.length === 0 && size > SECOND) continue;
    parts.push(`${count} ${unit}`);
    left -= count * size;
    if (parts.length === 2) break;
  }
  return parts.filter((part, index) => index === 0 || !part.startsWith("0 ")).join(" ");
}

/** @param time RFC 3339; empty or wrong: "–" */
export function ageText(time: string | null | undefined, nowMs: number): string {
  const at = Date.parse(time ?? "");
  return Number.isNaN(at) ? "–" : durationText(nowMs - at);
}

export const clockText = (ms: number): string =>
  new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

export const count = (number: number, one: string, many = `${one}s`): string =>
  `${number} ${number === 1 ? one : many}`;

/** Control characters, and those that change the direction of what follows. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it replaces
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it replaces
const ESCAPE_SEQUENCE = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;
const MAX_LENGTH = 2000;

export const withoutControls = (text: string): string => text.replace(UNPRINTABLE, "\ufffd");

/** A line of text from outside: one line, no control characters, bounded. */
export const printable = (text: string): string => withoutControls(text.slice(0, MAX_LENGTH));

/** Text of several lines from outside: a terminal's colours are left out. */
export const printableText = (text: string): string =>
  text.replace(ESCAPE_SEQUENCE, "").replace(UNPRINTABLE, (each) => (each === "\n" || each === "\t" ? each : "\ufffd"));
