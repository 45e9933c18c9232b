/** The type of a command, and flags that many commands share. */
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { durationFlag } from "@picolet/protocol/command-line/flag-values.ts";
import type { CommandText, Flag, Program } from "@picolet/protocol/command-line/program.ts";
import type { NeededAccess } from "./access.ts";
import type { Context } from "./context.ts";

/** Names that complete an operand or the value of a flag. */
export type Completed =
  | "pods"
  | "containers"
  | "images"
  | "namespaces"
  | "resources"
  | "commands"
  | "files"
  | "shells"
  | "buckets"
  | "keys"
  | "fields"
  | "whyWords";

/** A row of the table of commands. Help, completion, man page and reference are made of it. */
export interface Command extends CommandText {
  readonly completes?: readonly Completed[];
  /** The access that it needs on the console and over SSH of an image. */
  readonly access: NeededAccess;
  readonly run: (context: Context, input: Arguments) => Promise<number>;
}

export type EdgectlProgram = Program<Command>;

export const output = (...choices: readonly string[]): Flag => {
  return { name: "output", short: "o", value: "FORMAT", help: `print as ${choices.join(", ")}`, choices };
};
export const NAMESPACE: Flag = {
  name: "namespace",
  short: "n",
  value: "NAMESPACE",
  help: "the pod's namespace",
  completes: "namespaces",
};
export const NO_HEADERS: Flag = { name: "no-headers", help: "print no line of column names" };

export const INTERVAL = durationFlag({
  name: "interval",
  help: "how often to look",
  default: "2s",
  takesSeconds: true,
});
