/** Ages as kubectl's tables show them (k8s.io/apimachinery/pkg/util/duration, `HumanDuration`). */

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

/** `12s`, `5m30s`, `3h5m`, `2d4h`, `120d`, `2y30d`: never more than two units. */
export function humanDuration(milliseconds: number): string {
  const seconds = Math.trunc(milliseconds / 1000);
  // Clocks differ by a second or two; more than that is wrong.
  if (seconds < -1) return "<invalid>";
  if (seconds < 0) return "0s";
  if (seconds < 2 * MINUTE) return `${seconds}s`;
  if (seconds < 10 * MINUTE) return withRest(seconds, MINUTE, "m", 1, "s");
  if (seconds < 3 * HOUR) return `${Math.trunc(seconds / MINUTE)}m`;
  if (seconds < 8 * HOUR) return withRest(seconds, HOUR, "h", MINUTE, "m");
  if (seconds < 2 * DAY) return `${Math.trunc(seconds / HOUR)}h`;
  if (seconds < 8 * DAY) return withRest(seconds, DAY, "d", HOUR, "h");
  if (seconds < 2 * 365 * DAY) return `${Math.trunc(seconds / DAY)}d`;
  if (seconds < 8 * 365 * DAY) return withRest(seconds, 365 * DAY, "y", DAY, "d");
  return `${Math.trunc(seconds / (365 * DAY))}y`;
}

function withRest(seconds: number, unit: number, name: string, smaller: number, smallerName: string): string {
  const rest = Math.trunc((seconds % unit) / smaller);
  return `${Math.trunc(seconds / unit)}${name}${rest === 0 ? "" : `${rest}${smallerName}`}`;
}

/** @param timestamp RFC 3339; missing or unreadable: `<unknown>` */
export function ageOf(timestamp: string | null | undefined, now: Date): string {
  const at = Date.parse(timestamp ?? "");
  return Number.isNaN(at) ? "<unknown>" : humanDuration(now.getTime() - at);
}
