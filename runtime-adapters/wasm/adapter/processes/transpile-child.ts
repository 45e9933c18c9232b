/** One transpilation in a child process. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { TranspileAnswer, TranspileRequest } from "../../shared/messages/transpile-request.ts";
import { TRANSPILER_FLAGS } from "./node-flags.ts";
import { type OneOffChildComponents, type OneOffChildInit, runOneOffChild } from "./one-off-child.ts";

export type TranspileChildComponents = OneOffChildComponents;

export interface TranspileChildInit extends OneOffChildInit {
  readonly transpilePath: string;
}

/** @returns the child's greatest resident size, KiB. */
export type TranspileOutcome = Extract<TranspileAnswer, { kind: "done" }>;

export async function runTranspileChild(
  components: TranspileChildComponents,
  init: TranspileChildInit,
  request: TranspileRequest,
  signal: AbortSignal,
): Promise<TranspileOutcome> {
  const program = {
    command: [...TRANSPILER_FLAGS, init.transpilePath, JSON.stringify(request)],
    name: "the transpiler",
    task: "transpiling the component",
  };
  const answer = (await runOneOffChild(components, init, program, signal)) as TranspileAnswer;
  if (answer.kind === "done") return answer;
  throw new PicoletError(answer.code, answer.message, { retryable: answer.code === "failed" });
}
