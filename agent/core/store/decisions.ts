/** The port to the black box: every part of the agent that decides something records it here. */
import type { Decision } from "@picolet/protocol/decisions/decision-kinds.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

export type { Decision };

export interface DecisionRecorder {
  /**
   * Keeps the decision, at once in memory and within seconds on disk. Never throws, never waits.
   * @param pod the pod that it is about; missing: the node
   */
  record(decision: Decision, pod?: DesiredPod): void;
}

/** For parts that run without a black box. */
export const NO_DECISIONS: DecisionRecorder = { record: () => undefined };
