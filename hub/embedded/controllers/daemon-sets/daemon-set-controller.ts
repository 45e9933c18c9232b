import { type KubeObject, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { CONTROLLER_REVISIONS, DAEMON_SETS } from "@picolet/hub-core/kube-client/resource-types.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import { selects } from "../../api/label-selector.ts";
import { generateName } from "../../api/object-meta.ts";
import { controllerOf, isAway, nodeOf, podOf } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { ObjectCache, ObjectChange } from "../object-cache.ts";
import { type DaemonSet, type DaemonSetStatus, daemonPod, fitOn } from "./daemon-set.ts";
import { FailedPodBackoff } from "./failed-pod-backoff.ts";
import { Ownership } from "./ownership.ts";
import { PendingPods } from "./pending-pods.ts";
import { type DaemonSetPlan, planDaemonSet } from "./plan-daemon-set.ts";
import { type ControllerRevision, currentRevision, holdsTemplate, newRevision, surplusRevisions } from "./revisions.ts";

/** Pods made or ended in one round, as in Kubernetes; the round after goes on. */
const MAX_CHANGES_PER_ROUND = 250;
/** At once, so that a large fleet gets its pods soon and the server can still answer others. */
const PARALLEL_CHANGES = 16;
/** Names that are tried before a round gives up; each taken one belongs to a pod that is there. */
const MAX_NAME_ATTEMPTS = 64;
const COMPONENT = "daemonset-controller";

export interface DaemonSetCaches {
  readonly daemonSets: ObjectCache;
  readonly revisions: ObjectCache;
  readonly pods: ObjectCache;
  readonly nodes: ObjectCache;
}

/**
 * One pod of each DaemonSet on each node that it fits. A pod's name is kept until the cache shows the pod, so
 * that a controller that has not seen yet what it has made, or not heard whether it was made, is refused a second one.
 */
export class DaemonSetController extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: DaemonSetCaches;
  readonly #events: EventRecorder;
  readonly #ownership: Ownership;
  readonly #failed: FailedPodBackoff;
  readonly #pending = new PendingPods();

  constructor(components: ControllerPorts & { readonly caches: DaemonSetCaches; readonly events: EventRecorder }) {
    const { caches, events, ...ports } = components;
    super(ports, { name: "daemonset controller", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    this.#events = events;
    this.#ownership = new Ownership(ports.client);
    this.#failed = new FailedPodBackoff(ports.clock);
    caches.daemonSets.onChange(({ key }) => this.loop.add(key));
    caches.revisions.onChange((change) => this.#dependentChanged(change));
    caches.pods.onChange((change) => {
      if (change.after?.metadata.uid !== undefined) this.#pending.seen(change.after.metadata.uid);
      this.#dependentChanged(change);
    });
    caches.nodes.onChange((change) => this.#nodeChanged(change));
  }

  /** A pod or a revision concerns its controller; an orphan, every set that selects it. */
  #dependentChanged({ before, after }: ObjectChange): void {
    for (const object of [before, after]) {
      if (object === undefined) continue;
      const { namespace = "", labels } = object.metadata;
      const owner = controllerOf(object.metadata);
      if (owner !== undefined) {
        if (owner.kind === "DaemonSet") this.loop.add(keyOf(namespace, owner.name));
        continue;
      }
      for (const set of this.#caches.daemonSets.list("namespace", namespace) as readonly DaemonSet[]) {
        if (selects(set.spec.selector, labels)) this.loop.add(keyOf(namespace, set.metadata.name));
      }
    }
  }

  /** Heartbeats change nothing that a DaemonSet depends on. */
  #nodeChanged({ before, after }: ObjectChange): void {
    const [old, node] = [before, after].map((each) => (each === undefined ? undefined : nodeOf(each)));
    for (const set of this.#caches.daemonSets.list() as readonly DaemonSet[]) {
      const [was, is] = [old, node].map((each) => (each === undefined ? undefined : fitOn(set, each)));
      const isSameFit = was?.shouldRun === is?.shouldRun && was?.shouldContinue === is?.shouldContinue;
      if (!isSameFit || (old !== undefined && isAway(old)) !== (node !== undefined && isAway(node))) {
        this.loop.add(keyOf(set.metadata.namespace, set.metadata.name));
      }
    }
  }

  protected async reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined> {
    const set = this.#caches.daemonSets.get(key) as DaemonSet | undefined;
    // One that is being deleted leaves its pods to the garbage collector, which knows what was asked for.
    if (set === undefined || set.metadata.deletionTimestamp !== undefined) {
      this.#pending.forgetSet(key);
      return undefined;
    }
    const { namespace = "" } = set.metadata;
    await this.#claim(PODS, set, this.#caches.pods, signal);
    const revisions = await this.#claim(CONTROLLER_REVISIONS, set, this.#caches.revisions, signal);
    const hash = await this.#revisionOf(set, revisions as readonly ControllerRevision[], signal);
    if (hash === undefined) return undefined;
    // From here to the choice of names nothing may be awaited: both must be of the same moment.
    const pods = this.#ownership.claim(set, this.#caches.pods.list("namespace", namespace)).owned.map(podOf);
    const nodes = this.#caches.nodes.list().map(nodeOf);
    const plan = planDaemonSet({ set, nodes, pods, hash, nowMs: this.#ports.clock.wall().getTime() });
    if (plan.deferred > 0) this.#record(set, "Normal", "NodesAway", deferredMessage(plan.deferred));
    const retry = await this.#carryOut(set, plan, hash, signal);
    await this.#cleanHistory(set, revisions as readonly ControllerRevision[], pods, hash, signal);
    await this.#writeStatus(set, plan.status, signal);
    const waits = [retry, plan.wakeInMs].filter((wait) => wait !== undefined);
    return waits.length === 0 ? undefined : millis(Math.min(...waits));
  }

  /**
   * Those that the set controls by now: orphans that it selects are adopted, those that it no longer selects let go.
   */
  async #claim(
    type: typeof PODS,
    set: DaemonSet,
    cache: ObjectCache,
    signal: AbortSignal,
  ): Promise<readonly KubeObject[]> {
    const claim = this.#ownership.claim(set, cache.list("namespace", set.metadata.namespace));
    await this.#ownership.settle(type, DAEMON_SETS, set, claim, signal);
    return claim.owned;
  }

  /** @returns undefined when the history had to be changed first: its change brings the next round */
  async #revisionOf(
    set: DaemonSet,
    revisions: readonly ControllerRevision[],
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const { client } = this.#ports;
    const step = currentRevision(set, revisions);
    if (step.kind === "current") return step.hash;
    const { namespace = "" } = set.metadata;
    if (step.kind === "renumber") {
      const { existing, revision } = step;
      const ref = { namespace, name: existing.metadata.name };
      await client.update(CONTROLLER_REVISIONS, ref, { ...existing, revision } as KubeObject, {}, signal);
      return undefined;
    }
    const { hash, object } = newRevision(set, step.revision, set.status?.collisionCount ?? 0);
    const ref = { namespace, name: `${set.metadata.name}-${hash}` };
    try {
      await client.create(CONTROLLER_REVISIONS, ref, object, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "already_exists")) throw error;
      const existing = (await client.get(CONTROLLER_REVISIONS, ref, signal)) as ControllerRevision;
      // Made a moment ago, and not seen yet; or another template with the same hash.
      if (holdsTemplate(existing, set)) return undefined;
      const status = { ...set.status, collisionCount: (set.status?.collisionCount ?? 0) + 1 };
      const setRef = { namespace, name: set.metadata.name };
      await client.update(DAEMON_SETS, setRef, { ...set, status }, { subresource: "status" }, signal);
    }
    return undefined;
  }

  /** @returns when failed pods may be replaced, if some have to wait */
  async #carryOut(set: DaemonSet, plan: DaemonSetPlan, hash: string, signal: AbortSignal): Promise<number | undefined> {
    let wait: number | undefined;
    const gone = [...plan.delete];
    for (const pod of plan.replace) {
      const left = this.#failed.waitFor(set.metadata.uid ?? "", pod);
      if (left > 0) wait = Math.min(left, wait ?? left);
      else {
        gone.push(pod);
        const message = `Found failed daemon pod ${set.metadata.namespace}/${pod.metadata.name} on node ${pod.spec.nodeName}, will try to kill it`;
        this.#record(set, "Warning", "FailedDaemonPod", message);
      }
    }
    const creations = plan.create.slice(0, MAX_CHANGES_PER_ROUND).map((node) => {
      const name = this.#pending.nameFor(placeOf(set, node), () => this.#freeName(set));
      return () => this.#create(set, node, hash, name, signal);
    });
    const deletions = gone.slice(0, MAX_CHANGES_PER_ROUND).map((pod) => () => this.#end(set, pod, signal));
    await inParallel([...deletions, () => slowStart(creations)]);
    const isCut = plan.create.length > MAX_CHANGES_PER_ROUND || gone.length > MAX_CHANGES_PER_ROUND;
    return isCut ? 0 : wait;
  }

  #freeName({ metadata }: DaemonSet): string {
    for (let attempt = 0; attempt < MAX_NAME_ATTEMPTS; attempt += 1) {
      const name = generateName(`${metadata.name}-`, this.#ports.random);
      if (this.#caches.pods.get(keyOf(metadata.namespace, name)) === undefined) return name;
    }
    throw new PicoletError(
      "resource_exhausted",
      `cannot find a free name for a pod of the daemon set ${metadata.name}`,
    );
  }

  async #create(set: DaemonSet, node: string, hash: string, name: string, signal: AbortSignal): Promise<void> {
    const { namespace = "" } = set.metadata;
    const ref = { namespace, name };
    const { client } = this.#ports;
    let made: KubeObject;
    try {
      made = await client.create(PODS, ref, daemonPod(set, node, hash, name), {}, signal);
      this.#record(set, "Normal", "SuccessfulCreate", `Created pod: ${name}`);
    } catch (error) {
      if (signal.aborted) throw error;
      if (!isPicoletError(error, "already_exists")) {
        this.#record(set, "Warning", "FailedCreate", `Error creating: ${(error as Error).message}`);
        throw error;
      }
      // Made a moment ago: its arrival in the cache brings the next round.
      made = await client.get(PODS, ref, signal);
    }
    const { uid = "" } = made.metadata;
    const place = placeOf(set, node);
    this.#pending.made(place, uid);
    const isOurs = controllerOf(made.metadata)?.uid === set.metadata.uid;
    if (!isOurs || this.#caches.pods.get(keyOf(namespace, name))?.metadata.uid === uid) this.#pending.forget(place);
  }

  async #end(set: DaemonSet, pod: Pod, signal: AbortSignal): Promise<void> {
    const { namespace = "", name, uid } = pod.metadata;
    try {
      await this.#ports.client.delete(PODS, { namespace, name }, uid === undefined ? {} : { uid }, signal);
    } catch (error) {
      if (isPicoletError(error, "not_found") || isPicoletError(error, "conflict")) return;
      throw error;
    }
    this.#record(set, "Normal", "SuccessfulDelete", `Deleted pod: ${name}`);
  }

  #record(set: DaemonSet, type: "Normal" | "Warning", reason: string, message: string): void {
    this.#events.record(set, { type, reason, message, component: COMPONENT });
  }

  async #cleanHistory(
    set: DaemonSet,
    revisions: readonly ControllerRevision[],
    pods: readonly Pod[],
    hash: string,
    signal: AbortSignal,
  ): Promise<void> {
    for (const { metadata } of surplusRevisions(set, revisions, pods, hash)) {
      const ref = { namespace: metadata.namespace ?? "", name: metadata.name };
      try {
        await this.#ports.client.delete(CONTROLLER_REVISIONS, ref, metadata.uid ? { uid: metadata.uid } : {}, signal);
      } catch (error) {
        if (!isPicoletError(error, "not_found")) throw error;
      }
    }
  }

  /**
   * Writes the status over any version, as it has no other writer: waiting for the cache to catch up would cost time.
   */
  async #writeStatus(set: DaemonSet, counters: DaemonSetPlan["status"], signal: AbortSignal): Promise<void> {
    const status = { ...counters, observedGeneration: set.metadata.generation ?? 0 };
    if (isSameStatus(status, set.status)) return;
    const { namespace = "", name, uid } = set.metadata;
    const cleared = Object.fromEntries(OPTIONAL_COUNTERS.map((counter) => [counter, null]));
    const patch = { metadata: { uid }, status: { ...cleared, ...status } };
    await this.#ports.client.patch(DAEMON_SETS, { namespace, name }, "merge", patch, { subresource: "status" }, signal);
  }
}

const deferredMessage = (count: number): string =>
  `${count === 1 ? "1 node is" : `${count} nodes are`} away with a pod of an older revision, which is updated when the node is back`;

/** Left out when they are zero. */
const OPTIONAL_COUNTERS = ["updatedNumberScheduled", "numberAvailable", "numberUnavailable"];

function isSameStatus(left: DaemonSetStatus, right: DaemonSetStatus | undefined): boolean {
  if (right?.observedGeneration === undefined) return false;
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]) as ReadonlySet<keyof DaemonSetStatus>;
  return [...keys].every((key) => key === "collisionCount" || (left[key] ?? 0) === (right[key] ?? 0));
}

const placeOf = ({ metadata }: DaemonSet, node: string): string =>
  `${keyOf(metadata.namespace, metadata.name)}/${node}`;

/**
 * As Kubernetes: 1, 2, 4 … at a time, until one fails, for what refuses one pod of a set (a namespace's policy) refuses
 * all of them. @throws the first failure
 */
async function slowStart(tasks: readonly (() => Promise<void>)[]): Promise<void> {
  for (let start = 0, size = 1; start < tasks.length; start += size, size *= 2) {
    await inParallel(tasks.slice(start, start + size));
  }
}

/** All of them are tried; the first failure is thrown when all are through. */
async function inParallel(tasks: readonly (() => Promise<void>)[]): Promise<void> {
  const failures: unknown[] = [];
  const queue = tasks[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (const task of queue) {
      try {
        await task();
      } catch (error) {
        failures.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL_CHANGES, tasks.length) }, worker));
  if (failures.length > 0) throw failures[0];
}
