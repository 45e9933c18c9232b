/**
 * Pods that last as long as the connection that asked for them: those of `edgectl debug node`. A client that ends in
 * any way, or whose terminal goes away, leaves no pod behind. Loaded with the first of them.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type PodUid, podUid } from "@picolet/protocol/ports.ts";
import { podObject } from "../core/pods/pod-object.ts";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import type { AgentView } from "./agent-view.ts";
import { watchLine } from "./watches.ts";

export interface SessionPodComponents {
  readonly view: AgentView;
  readonly pushed: PushedPods;
}

/**
 * @returns a line for each state of the pod; it ends when the pod is gone, or with `signal`, and then removes the pod
 * @throws `invalid` with the first problem of a pod that is not taken, `resource_exhausted` when the disk is full
 */
export async function openSessionPod(
  components: SessionPodComponents,
  text: string,
  signal: AbortSignal,
): Promise<AsyncIterable<string>> {
  const outcome = await components.pushed.add(text);
  if (!outcome.ok) throw new PicoletError("invalid", outcome.problems[0]?.message ?? "this is no pod");
  const [pod] = outcome.answer.items;
  if (pod === undefined) throw new PicoletError("invalid", "there is no pod in the body");
  return follow(components, podUid(pod.uid), signal);
}

async function* follow(
  { view, pushed }: SessionPodComponents,
  uid: PodUid,
  signal: AbortSignal,
): AsyncGenerator<string> {
  try {
    let last: string | undefined;
    for await (const _ of view.podsChanged.changes(signal)) {
      const pod = view.pods().find(({ desired }) => desired.uid === uid);
      // The worker shows it a moment after it is stored.
      if (pod === undefined && last === undefined) continue;
      if (pod === undefined) return;
      const line = watchLine(last === undefined ? "ADDED" : "MODIFIED", podObject(pod));
      if (line !== last) yield line;
      last = line;
    }
  } finally {
    await pushed.remove(uid);
  }
}
