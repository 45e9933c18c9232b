import { PicoletError } from "@picolet/protocol/errors.ts";
import { type LogRequest, logStreamOf } from "../core/pods/container-logs.ts";

export interface LogQuery {
  readonly previous: boolean;
  readonly request: LogRequest;
}

type Options = Readonly<Record<string, string>>;

const invalid = (message: string): PicoletError => new PicoletError("invalid", message);

/** As Go's strconv.ParseBool, which API servers use; a flag without a value counts as set. */
function flag(options: Options, name: string): boolean {
  const value = options[name];
  if (value === undefined) return false;
  if (["1", "t", "T", "true", "TRUE", "True", ""].includes(value)) return true;
  if (["0", "f", "F", "false", "FALSE", "False"].includes(value)) return false;
  throw invalid(`${name}: Invalid value: "${value}": must be true or false`);
}

function count(options: Options, name: string, least: number): number | undefined {
  const value = options[name];
  if (value === undefined || value === "") return undefined;
  const number = /^-?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
  if (Number.isNaN(number)) throw invalid(`${name}: Invalid value: "${value}": must be a whole number`);
  if (number < least) {
    throw invalid(`${name}: Invalid value: ${number}: must be greater than${least === 0 ? " or equal to" : ""} 0`);
  }
  return number;
}

function sinceMs(options: Options, now: Date): number | undefined {
  const seconds = count(options, "sinceSeconds", 1);
  const time = options.sinceTime;
  if (time === undefined || time === "") return seconds === undefined ? undefined : now.getTime() - seconds * 1000;
  if (seconds !== undefined) throw invalid("at most one of `sinceTime` or `sinceSeconds` may be specified");
  const parsed = /^\d{4}-\d\d-\d\dT/.test(time) ? Date.parse(time) : Number.NaN;
  if (Number.isNaN(parsed))
    throw invalid(`sinceTime: Invalid value: "${time}": must be a time as 2026-01-31T12:00:00Z`);
  return parsed;
}

/**
 * PodLogOptions (core/v1) from the text that a query has, with the API server's own validation. Options that are not
 * about the log (`pretty`, `insecureSkipTLSVerifyBackend`) are let pass.
 * @throws `invalid`
 */
export function parseLogQuery(options: Options, now: Date): LogQuery {
  const tailLines = count(options, "tailLines", 0);
  const stream = logStreamOf(options.stream);
  if (tailLines !== undefined && stream !== undefined) {
    throw invalid("`tailLines` and a specific `stream` are mutually exclusive");
  }
  return {
    previous: flag(options, "previous"),
    request: {
      follow: flag(options, "follow"),
      timestamps: flag(options, "timestamps"),
      tailLines,
      limitBytes: count(options, "limitBytes", 1),
      sinceMs: sinceMs(options, now),
      stream,
    },
  };
}
