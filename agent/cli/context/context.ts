import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { Program } from "@picolet/protocol/command-line/program.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { AgentClient } from "./agent-client.ts";
import { DEFAULT_WIDTH, renderTable, type TableInit } from "./text-layout.ts";

/** The terminal or file that takes the output. */
export interface Terminal {
  /** `undefined`: standard output is no terminal. */
  readonly columns: number | undefined;
  /** `undefined`: unknown, as on a serial line, or no terminal. */
  readonly rows: number | undefined;
  /** True when it understands escape sequences that move the cursor. */
  readonly movesCursor: boolean;
  /** True when it shows colours and its user wants them. */
  readonly colour: boolean;
  /** True when a user can answer questions. */
  readonly interactive: boolean;
  /** Resolves when it has been taken; a reader that has gone ends the program. */
  write(text: string | Buffer): Promise<void>;
  writeError(text: string): void;
}

/** The environment of a command. */
export interface Context {
  /** The table of commands that is in use. */
  readonly program: Program;
  readonly client: AgentClient;
  readonly terminal: Terminal;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly sleep: Clock["sleep"];
  readonly workingDirectory: string;
  /** The text of a file that lies beside the program. @throws when it is not there */
  readonly readBeside: (name: string) => string;
  /** Standard input. */
  readonly input: () => AsyncIterable<Buffer>;
}

export const widthOf = (context: Context): number => context.terminal.columns ?? DEFAULT_WIDTH;

/** Formats a table, with the effect of `-o wide` and `--no-headers`. */
export function table(
  context: Context,
  input: Arguments,
  init: Omit<TableInit, "width" | "withHeaders"> & { readonly withHeaders?: boolean },
): string {
  return renderTable({
    ...init,
    withHeaders: (init.withHeaders ?? true) && !input.flag("no-headers"),
    width: input.text("output") === "wide" ? undefined : widthOf(context),
    // In a pipe each row is one line.
    nameColumns: context.terminal.columns === undefined ? 0 : (init.nameColumns ?? 0),
  });
}

const RED = "\x1b[31m";
const YELLOW = "\x1b[33m";
const PLAIN = "\x1b[0m";

/** Colours what is wrong red and what is on its way yellow; what is well stays as it is. */
export function paintStatus(context: Context, status: string): string {
  if (!context.terminal.colour || /^(Running|Completed|Succeeded|Ready|Normal)$/.test(status)) return status;
  const passing = /^(Pending|ContainerCreating|PodInitializing|Terminating|NotReady|Init:\d+\/\d+)$/.test(status);
  return `${passing ? YELLOW : RED}${status}${PLAIN}`;
}
