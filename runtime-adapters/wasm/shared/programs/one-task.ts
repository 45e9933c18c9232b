/**
 * The frame of a program that does one task and ends. The task is the first line of standard input, the answers are
 * lines of standard output. When the input ends, the agent that wanted it has gone.
 */

import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { NEVER } from "@picolet/protocol/ports.ts";

/** Writes one line. */
export function answerLine(message: object): void {
  writeSync(1, `${JSON.stringify(message)}\n`);
}

/** @param run its result, or its failure with the code of the error, is the last answer */
export function runOneTask<T>(run: (task: T, signal: AbortSignal) => Promise<object>): void {
  const main = async (text: string): Promise<void> => {
    try {
      answerLine(await run(JSON.parse(text) as T, NEVER));
    } catch (error) {
      const { code, retryable } = isPicoletError(error) ? error : { code: "failed" as const, retryable: true };
      answerLine({ kind: "failed", code, retryable, message: describeError(error) });
    }
    process.exit(0);
  };
  const lines = createInterface({ input: process.stdin });
  lines.once("line", (line) => void main(line));
  lines.once("close", () => process.exit(1));
}
