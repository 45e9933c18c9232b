/** Grant of picolet:board/logging: `wasm.picolet.io/log-level: debug` is the lowest level that is logged. */
import type { InterfaceGrant, Parsed } from "../../grants/syntax/interface-grant.ts";

/** In ascending order of severity. */
export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "critical"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
export const DEFAULT_LOG_LEVEL: LogLevel = "info";

export const loggingGrant: InterfaceGrant = {
  asksAgent: false,
  // The proposal's own WIT has no version.
  proposals: { "wasi:logging/logging": /^(?:0\.1\.0-draft)?$/ },
  annotations: { "log-level": (value) => parseLogLevel(value).problems },
};

export function parseLogLevel(text: string): Parsed<LogLevel> {
  const value = LOG_LEVELS.find((each) => each === text.trim());
  if (value !== undefined) return { value, problems: [] };
  const problems = [`${JSON.stringify(text)} is no level; there are ${LOG_LEVELS.join(", ")}`];
  return { value: DEFAULT_LOG_LEVEL, problems };
}
