/** What a command is, and the flags that many have. */
import type { Arguments, CommandShape, Flag } from "./command-line.ts";
import type { Context } from "./context.ts";

export interface Command extends CommandShape {
  /** After the command's words; "" for none. */
  readonly operands: string;
  /** How many operands it takes. */
  readonly atLeast: number;
  readonly atMost: number;
  readonly summary: string;
  readonly details: string;
  readonly examples: readonly (readonly [command: string, does: string])[];
  /** What operands stand for, for completion. */
  readonly completes: readonly ("pods" | "resources" | "commands" | "files" | "shells" | "buckets" | "keys")[];
  readonly run: (context: Context, input: Arguments) => Promise<number>;
}

export const output = (...choices: readonly string[]): Flag => {
  return { name: "output", short: "o", value: "FORMAT", help: choices.join(", "), choices };
};
export const NAMESPACE: Flag = { name: "namespace", short: "n", value: "NAMESPACE", help: "the pod's namespace" };
export const NO_HEADERS: Flag = { name: "no-headers", help: "leave out the line of column names" };
