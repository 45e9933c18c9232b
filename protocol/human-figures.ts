/** Durations and sizes as people read them. Pure. */

/** Formats a duration in kubectl's short form: `42s`, `5m30s`, `3h`, `2d4h`, `1y20d`. */
export function humanDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < -1) return "<invalid>";
  if (seconds < 120) return `${Math.max(0, seconds)}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return pair(minutes, "m", seconds % 60, "s");
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return pair(hours, "h", minutes % 60, "m");
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (days < 8) return pair(days, "d", hours % 24, "h");
  if (days < 730) return `${days}d`;
  const years = Math.floor(days / 365);
  return days < 2920 ? pair(years, "y", days % 365, "d") : `${years}y`;
}

const pair = (large: number, largeUnit: string, small: number, smallUnit: string): string =>
  `${large}${largeUnit}${small === 0 ? "" : `${small}${smallUnit}`}`;

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** `611 MiB`, `9.0 GiB`: three digits at most. */
export function humanBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits =
    unit === 0 || value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1).replace(".0", "") : value.toFixed(1);
  return `${digits} ${UNITS[unit]}`;
}
