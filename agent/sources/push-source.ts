import type { PushedPod, PushProblem } from "@picolet/protocol/local-api/status.ts";
import type { Clock, Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type PushedPods, type PushOutcome, SESSION_ORIGIN } from "../core/pods/pushed-pods.ts";
import type { DesiredStore } from "../core/store/store-ports.ts";
import { podsOf } from "./manifests/manifest-pods.ts";
import { findCollisions, podLimitProblem } from "./manifests/pod-collisions.ts";
import { configSeen } from "./manifests/static-pod.ts";

/** The origin in messages, since there is no file. */
const ORIGIN = "edgectl apply";
const EMPTY = "holds no pod; to remove all pods that were applied, apply a List without items";

export interface PushSourceComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly store: DesiredStore;
}

/**
 * Static pods that are sent over the local API instead of lying in a folder. The store has them; here is nothing to
 * keep.
 */
export class PushSource implements PushedPods {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #store: DesiredStore;
  readonly #nodeName: string;

  constructor(components: PushSourceComponents, init: { readonly nodeName: string }) {
    this.#clock = components.clock;
    this.#log = components.log;
    this.#store = components.store;
    this.#nodeName = init.nodeName;
  }

  async remove(uid: PodUid): Promise<void> {
    const before = this.#pushed();
    const left = before.filter((each) => each.uid !== uid);
    if (left.length === before.length) return;
    this.#store.replace("push", this.#store.revision("push") + 1, left);
    this.#log.info("a pushed pod has been removed", { pod: uid });
  }

  replace(text: string, { dryRun }: { readonly dryRun: boolean }): PushOutcome {
    const sessions = this.#pushed().filter(isOfSession);
    const outcome = this.#take(text, { origin: ORIGIN, beside: sessions, dryRun });
    if (outcome.ok && !dryRun) this.#log.info("the pushed pods have been replaced", { pods: countOf(outcome) });
    return outcome;
  }

  add(text: string): PushOutcome {
    const outcome = this.#take(text, { origin: SESSION_ORIGIN, beside: this.#pushed(), dryRun: false });
    if (outcome.ok) this.#log.info("a pod of a session has been added", { pod: outcome.answer.items[0]?.uid });
    return outcome;
  }

  /** Stores the pods of `text` and those `beside` them as all pods of this source. */
  #take(
    text: string,
    {
      origin,
      beside,
      dryRun,
    }: { readonly origin: string; readonly beside: readonly DesiredPod[]; readonly dryRun: boolean },
  ): PushOutcome {
    const { pods: known, removed } = this.#store.desired.current;
    const seenBefore = (uid: PodUid): string | undefined => {
      const seen = known.get(uid) ?? removed.get(uid);
      return seen === undefined ? undefined : configSeen(seen);
    };
    const init = { source: "push", origin, nodeName: this.#nodeName, now: this.#clock.wall(), seenBefore } as const;
    const { pods, problems, warnings } = podsOf(text, init, EMPTY);
    const kept = new Set(beside.map(({ uid }) => uid));
    const before = this.#pushed().filter(({ uid }) => !kept.has(uid));
    const others = [...known.values()].filter((each) => !isPushed(each) || kept.has(each.uid));
    const refusals = [...findCollisions(pods, others), ...podLimitProblem([...pods, ...beside])];
    if (origin === SESSION_ORIGIN && pods.length > 1) refusals.push("Too many: a session has one pod");
    const all = [...problems.map(asProblem), ...refusals.map((message): PushProblem => ({ line: null, message }))];
    if (all.length > 0) return { ok: false, problems: all };
    if (!dryRun) this.#store.replace("push", this.#store.revision("push") + 1, [...pods, ...beside]);
    return {
      ok: true,
      answer: { dryRun, items: [...changesOf(before, pods)], warnings: warnings.map(asProblem) },
    };
  }

  #pushed(): readonly DesiredPod[] {
    return [...this.#store.desired.current.pods.values()].filter(isPushed);
  }
}

const countOf = ({ answer }: Extract<PushOutcome, { ok: true }>): number =>
  answer.items.filter(({ change }) => change !== "removed").length;
const isOfSession = ({ origin }: DesiredPod): boolean => origin === SESSION_ORIGIN;
const isPushed = ({ source }: DesiredPod): boolean => source === "push";
const nameOf = ({ pod }: DesiredPod): string => `${pod.metadata.namespace}/${pod.metadata.name}`;

const asProblem = ({ position, message }: ReturnType<typeof podsOf>["problems"][number]): PushProblem => ({
  line: position?.line ?? null,
  message,
});

function* changesOf(before: readonly DesiredPod[], after: readonly DesiredPod[]): Iterable<PushedPod> {
  const known = new Map(before.map((each) => [nameOf(each), each.uid]));
  for (const { uid, pod } of after) {
    const { namespace, name } = pod.metadata;
    const was = known.get(`${namespace}/${name}`);
    yield { namespace, name, uid, change: was === undefined ? "created" : was === uid ? "unchanged" : "configured" };
  }
  const kept = new Set(after.map(nameOf));
  for (const desired of before) {
    const { namespace, name } = desired.pod.metadata;
    if (!kept.has(nameOf(desired))) yield { namespace, name, uid: desired.uid, change: "removed" };
  }
}
