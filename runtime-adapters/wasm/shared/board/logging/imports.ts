/** picolet:board/logging and wasi:logging/logging: lines of standard error in the pod's log. */
import type * as Logging from "@picolet/wit/generated/picolet-board-logging.js";
import type { LogWriter } from "../../host/log-writer.ts";
import { LOG_LEVELS, type LogLevel } from "./grant.ts";

/** Bounds the length of a context or message, in UTF-16 units. The rest of a longer one is cut off. */
const MAX_TEXT_LENGTH = 8192;

const oneLine = (text: string): string =>
  text.slice(0, MAX_TEXT_LENGTH).replace(/[\r\n]/g, (each) => (each === "\n" ? "\\n" : "\\r"));

export function loggingImports(log: Pick<LogWriter, "write">, minimum: LogLevel) {
  const least = LOG_LEVELS.indexOf(minimum);
  const functions: typeof Logging = {
    log(level, context, message) {
      if (LOG_LEVELS.indexOf(level) < least) return;
      const where = context === "" ? "" : `[${oneLine(context)}] `;
      log.write("stderr", Buffer.from(`${level.toUpperCase()} ${where}${oneLine(message)}\n`));
    },
  };
  return { "picolet:board/logging": functions, "wasi:logging/logging": functions };
}
