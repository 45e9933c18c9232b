import { ignore } from "../errors.ts";
import type { Log, LogFields } from "../ports.ts";

type Level = "debug" | "info" | "warn" | "error";

export interface ConsoleLogInit {
  readonly format: "text" | "json";
  /** Entries below it are dropped. */
  readonly level: Level;
  readonly write: (line: string) => void;
  readonly now: () => Date;
}

const RANK: Readonly<Record<Level, number>> = { debug: 0, info: 1, warn: 2, error: 3 };

/** Cuts what one field may take, so that a hostile manifest cannot fill a log that lives in memory on a board. */
const MAX_FIELD_LENGTH = 1024;

function textOf(value: unknown): string {
  const text =
    typeof value === "string" ? value : value instanceof Error ? value.message : (JSON.stringify(value) ?? "undefined");
  const cut = text.length > MAX_FIELD_LENGTH ? `${text.slice(0, MAX_FIELD_LENGTH)}...` : text;
  return /^[\w./:@+-]+$/.test(cut) ? cut : JSON.stringify(cut);
}

/** The agent's own log: one line an entry, on standard error, for journald or a console. */
export class ConsoleLog implements Log {
  readonly #init: ConsoleLogInit;
  readonly #fields: LogFields;

  constructor(init: ConsoleLogInit, fields: LogFields = {}) {
    this.#init = init;
    this.#fields = fields;
  }

  debug(message: string, fields?: LogFields): void {
    this.#emit("debug", message, fields);
  }

  info(message: string, fields?: LogFields): void {
    this.#emit("info", message, fields);
  }

  warn(message: string, fields?: LogFields): void {
    this.#emit("warn", message, fields);
  }

  error(message: string, fields?: LogFields): void {
    this.#emit("error", message, fields);
  }

  child(fields: LogFields): Log {
    return new ConsoleLog(this.#init, { ...this.#fields, ...fields });
  }

  #emit(level: Level, message: string, fields: LogFields | undefined): void {
    const { format, level: least, write, now } = this.#init;
    if (RANK[level] < RANK[least]) return;
    const all = Object.entries({ ...this.#fields, ...fields });
    if (format === "json") {
      const entry = {
        ts: now().toISOString(),
        level,
        msg: message,
        ...Object.fromEntries(all.map(([k, v]) => [k, jsonOf(v)])),
      };
      write(`${JSON.stringify(entry)}\n`);
      return;
    }
    const suffix = all.map(([key, value]) => ` ${key}=${textOf(value)}`).join("");
    write(`${now().toISOString()} ${level.toUpperCase().padEnd(5)} ${message}${suffix}\n`);
  }
}

const jsonOf = (value: unknown): unknown => (value instanceof Error ? value.message : value);

/**
 * A program's own: on standard error, by the machine's clock. A reader that has gone (EPIPE) ends the log, not the
 * program.
 */
export function programLog({ format, level }: Pick<ConsoleLogInit, "format" | "level">): ConsoleLog {
  process.stderr.on("error", ignore("a log that no one reads must not end the program"));
  return new ConsoleLog({ format, level, write: (line) => void process.stderr.write(line), now: () => new Date() });
}
