/**
 * Names of one container's log files in its folder: `3.log` is being written by the run with attempt 3,
 * `3.log.20261120-114322` was put aside then, `….gz` is that one compressed, `….gz.tmp` a compression that is under way
 * or was cut short.
 */
export interface LogName {
  readonly attempt: number;
  /** `current`: the runtime writes to it while that run lives. */
  readonly kind: "current" | "rotated" | "compressed" | "leftover";
  /** UTC, `YYYYMMDD-hhmmss`; "" for a current one. Sorts as time does. */
  readonly stamp: string;
}

const NAME = /^(\d{1,9})\.log(?:\.(\d{8}-\d{6})(\.gz)?(\.tmp)?)?$/;

/** `undefined` for a file that is no log of a container. */
export function parseLogName(name: string): LogName | undefined {
  const match = NAME.exec(name);
  if (match === null) return undefined;
  const [, attempt, stamp = "", compressed, leftover] = match;
  const kind =
    stamp === ""
      ? "current"
      : leftover !== undefined
        ? "leftover"
        : compressed !== undefined
          ? "compressed"
          : "rotated";
  return { attempt: Number(attempt), kind, stamp };
}

const stampOf = (time: Date): string =>
  time.toISOString().slice(0, 19).replaceAll("-", "").replaceAll(":", "").replace("T", "-");

/** A stamp later than every one in use: a clock that was set back must not make the newest file look old. */
export function nextStamp(now: Date, used: readonly string[]): string {
  const latest = [...used].sort().at(-1) ?? "";
  const stamp = stampOf(now);
  return stamp > latest ? stamp : stampOf(new Date(timeOf(latest) + 1000));
}

function timeOf(stamp: string): number {
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)$/.exec(stamp) ?? [];
  return Date.UTC(Number(year), Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second));
}
