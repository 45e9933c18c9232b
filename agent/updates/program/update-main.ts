/**
 * Fetches, verifies and prepares one update, and ends. The task is the first line of standard input, the answers are
 * lines of standard output. When the input ends, the agent that wanted it has gone.
 */
import { writeSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { UpdateAnswer, UpdateTask } from "../update-task.ts";
import { runCommand } from "./commands.ts";
import { updateConfiguration } from "./configuration-update.ts";
import { updatePackage } from "./package-update.ts";
import { updateSystem } from "./system-update.ts";

function answer(message: UpdateAnswer): void {
  writeSync(1, `${JSON.stringify(message)}\n`);
}

function run(task: UpdateTask, signal: AbortSignal): Promise<UpdateAnswer> {
  const onInstalling = (): void => answer({ kind: "installing" });
  const components = { clock: systemClock, random: { next: Math.random }, run: runCommand, onInstalling };
  switch (task.want) {
    case "os":
      return updateSystem(components, task, signal);
    case "agent":
      return updatePackage(components, task, signal);
    case "configuration": {
      const agent = [process.execPath, join(dirname(process.argv[1] ?? ""), "picolet.cjs")];
      return updateConfiguration({ ...components, agent }, task, signal);
    }
  }
}

async function main(text: string): Promise<void> {
  try {
    answer(await run(JSON.parse(text) as UpdateTask, new AbortController().signal));
  } catch (error) {
    const { code, retryable } = isPicoletError(error) ? error : { code: "failed" as const, retryable: true };
    answer({ kind: "failed", code, retryable, message: describeError(error) });
  }
  process.exit(0);
}

const lines = createInterface({ input: process.stdin });
lines.once("line", (line) => void main(line));
lines.once("close", () => process.exit(1));
