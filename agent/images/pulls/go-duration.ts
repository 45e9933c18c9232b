/** Whole milliseconds as Go writes a time.Duration, which is how Kubernetes' messages show one: `1m2.345s`, `87ms`. */
export function goDuration(durationMs: number): string {
  const whole = Math.max(0, Math.trunc(durationMs));
  if (whole === 0) return "0s";
  if (whole < 1000) return `${whole}ms`;
  const hours = Math.floor(whole / 3_600_000);
  const minutes = Math.floor(whole / 60_000) % 60;
  const text = `${(whole % 60_000) / 1000}s`;
  if (hours > 0) return `${hours}h${minutes}m${text}`;
  return minutes > 0 ? `${minutes}m${text}` : text;
}
