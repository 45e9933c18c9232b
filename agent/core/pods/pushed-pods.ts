/** Pods pushed by users of the local API; `agent/sources` takes them. */
import type { PushAnswer, PushProblem } from "@picolet/protocol/local-api/status.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";

export type PushOutcome =
  | { readonly ok: true; readonly answer: PushAnswer }
  | { readonly ok: false; readonly problems: readonly PushProblem[] };

/** The origin of pods that last as long as a client's session; such a pod is never one of a manifest. */
export const SESSION_ORIGIN = "edgectl debug node";

export interface PushedPods {
  /**
   * What is sent is all that is wanted from then on, beside the pods of sessions; taken whole or not at all. On disk
   * (fsync) before it returns.
   * @param text Pod, List or PodList, in YAML documents or as JSON. A List without items removes what was pushed.
   * @throws `resource_exhausted` when the disk is full
   */
  replace(text: string, options: { readonly dryRun: boolean }): PushOutcome | Promise<PushOutcome>;
  /**
   * Adds one pod, which its caller removes at the end of its session; so does the next agent. On disk (fsync) before it
   * returns. The answer has one item. @throws `resource_exhausted` when the disk is full
   */
  add(text: string): PushOutcome | Promise<PushOutcome>;
  /** One of them is wanted no more, if it still is; on disk (fsync) before it resolves. @throws `resource_exhausted` when the disk is full */
  remove(uid: PodUid): Promise<void>;
}
