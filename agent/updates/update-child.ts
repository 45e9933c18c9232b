/** The update program, as a child that ends. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { PULLER_FLAGS } from "@picolet/runtime-wasm/adapter/processes/node-flags.ts";
import {
  type OneOffChildComponents,
  type OneOffChildInit,
  parseAnswer,
  runOneOffChild,
} from "@picolet/runtime-wasm/adapter/processes/one-off-child.ts";
import type { UpdateAnswer, UpdateTask } from "./update-task.ts";

export interface UpdateProgramInit extends OneOffChildInit {
  readonly programPath: string;
}

/** @throws what the program says, with its code */
export async function runUpdateTask(
  components: OneOffChildComponents,
  init: UpdateProgramInit,
  task: UpdateTask,
  onInstalling: () => void,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const program = {
    command: [...PULLER_FLAGS, init.programPath],
    name: "the update program",
    task: "preparing the update",
    input: JSON.stringify(task),
    onLine: (line: string): void => {
      if ((parseAnswer(line) as UpdateAnswer | undefined)?.kind === "installing") onInstalling();
    },
  };
  const answer = (await runOneOffChild(components, init, program, signal)) as UpdateAnswer;
  if (answer.kind === "failed") throw new PicoletError(answer.code, answer.message, { retryable: answer.retryable });
  if (answer.kind !== "installing") return answer;
  throw new PicoletError("failed", "the update program was killed", { retryable: true });
}
