/** One pull in a child process. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { PullAnswer, PullRequest } from "../../shared/messages/pull-request.ts";
import { PULLER_FLAGS } from "./node-flags.ts";
import { type OneOffChildComponents, type OneOffChildInit, parseAnswer, runOneOffChild } from "./one-off-child.ts";

export interface PullChildInit extends OneOffChildInit {
  readonly pullPath: string;
}

type Done = Exclude<PullAnswer, { kind: "progress" | "failed" }>;

/** @throws what the child says, with its code. */
export async function runPullChild(
  components: OneOffChildComponents,
  init: PullChildInit,
  request: PullRequest,
  onProgress: (bytes: number, totalBytes: number) => void,
  signal: AbortSignal,
): Promise<Done> {
  const program = {
    command: [...PULLER_FLAGS, init.pullPath],
    name: "the pull process",
    task: "pulling the image",
    input: JSON.stringify(request),
    onLine: (line: string): void => {
      const message = parseAnswer(line) as PullAnswer | undefined;
      if (message?.kind === "progress") onProgress(message.bytes, message.totalBytes);
    },
  };
  const answer = (await runOneOffChild(components, init, program, signal)) as PullAnswer;
  if (answer.kind === "failed") throw new PicoletError(answer.code, answer.message, { retryable: answer.retryable });
  if (answer.kind !== "progress") return answer;
  // It was killed: its last message is progress, not a result.
  throw new PicoletError("failed", "the pull process was killed", { retryable: true });
}
