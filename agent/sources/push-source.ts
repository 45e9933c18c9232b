import type { PushedPod, PushProblem } from "../../protocol/local-api.ts";
import type { Clock, Log, PodUid } from "../../protocol/ports.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { PushedPods, PushOutcome } from "../core/pushed-pods.ts";
import type { DesiredStore } from "../core/store.ts";
import { MAX_PODS } from "./file-source.ts";
import { podsOf } from "./manifest-file.ts";
import { configSeen } from "./static-pod.ts";

/** For messages: there is no file. */
const ORIGIN = "edgectl apply";
const EMPTY = "holds no pod; to remove all pods that were applied, apply a List without items";

export interface PushSourceComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly store: DesiredStore;
}

/**
 * Static pods that are sent over the local API instead of lying in a folder. The store has them; here is nothing to keep.
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

  replace(text: string, { dryRun }: { readonly dryRun: boolean }): PushOutcome {
    const { pods: known, removed } = this.#store.desired.current;
    const seenBefore = (uid: PodUid): string | undefined => {
      const seen = known.get(uid) ?? removed.get(uid);
      return seen === undefined ? undefined : configSeen(seen);
    };
    const init = {
      source: "push",
      origin: ORIGIN,
      nodeName: this.#nodeName,
      now: this.#clock.wall(),
      seenBefore,
    } as const;
    const { pods, problems } = podsOf(text, init, EMPTY);
    const all = [...problems.map(asProblem), ...collisions(pods, known.values()), ...tooMany(pods)];
    if (all.length > 0) return { ok: false, problems: all };
    const before = [...known.values()].filter(isPushed);
    if (!dryRun) {
      this.#store.replace("push", this.#store.revision("push") + 1, pods);
      this.#log.info("the pushed pods have been replaced", { pods: pods.length });
    }
    return { ok: true, answer: { dryRun, items: [...changesOf(before, pods)] } };
  }
}

const isPushed = ({ source }: DesiredPod): boolean => source === "push";
const nameOf = ({ pod }: DesiredPod): string => `${pod.metadata.namespace}/${pod.metadata.name}`;

const asProblem = ({ position, message }: ReturnType<typeof podsOf>["problems"][number]): PushProblem => ({
  line: position?.line ?? null,
  message,
});

/** A name has one pod; that of a manifest or of the API server would go on, and this one wait for ever. */
function* collisions(pods: readonly DesiredPod[], known: Iterable<DesiredPod>): Iterable<PushProblem> {
  const others = new Map(
    [...known]
      .filter((each) => !isPushed(each))
      .flatMap((each) => [[nameOf(each), each] as const, [each.uid, each] as const]),
  );
  for (const desired of pods) {
    const byName = others.get(nameOf(desired));
    const other = byName ?? others.get(desired.uid);
    if (other === undefined) continue;
    const field = byName === undefined ? "metadata.uid" : "metadata.name";
    const owner = other.origin === "" ? "the API server" : other.origin;
    yield { line: null, message: `${field}: Duplicate value: pod ${nameOf(other)} is that of ${owner}` };
  }
}

function tooMany(pods: readonly DesiredPod[]): PushProblem[] {
  if (pods.length <= MAX_PODS) return [];
  return [{ line: null, message: `Too many: ${pods.length}: may have at most ${MAX_PODS} pods` }];
}

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
