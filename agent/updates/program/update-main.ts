/** Fetches, verifies and prepares one update, and ends. */
import { dirname, join } from "node:path";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { answerLine, runOneTask } from "@picolet/runtime-wasm/shared/programs/one-task.ts";
import type { UpdateAnswer, UpdateTask } from "../update-task.ts";
import { runCommand } from "./commands.ts";
import { updateConfiguration } from "./configuration-update.ts";
import { updatePackage } from "./package-update.ts";
import { updateSystem } from "./system-update.ts";

const answer = (message: UpdateAnswer): void => answerLine(message);

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

runOneTask<UpdateTask>(run);
