/**
 * Plans one round of one DaemonSet. Pure. Rules of pkg/controller/daemon (Kubernetes 1.34). A plan is made from
 * what is seen alone, so that it may be made again at any moment, by another process too.
 */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isAway, isPodReady, type NodeObject } from "../../api/typed-objects.ts";
import {
  type DaemonSet,
  type DaemonSetStatus,
  type Fit,
  fitOn,
  REVISION_LABEL,
  resolveCount,
  targetNode,
  untilAvailableMs,
} from "./daemon-set.ts";

export interface DaemonSetView {
  readonly set: DaemonSet;
  readonly nodes: readonly NodeObject[];
  /** Those that it controls. */
  readonly pods: readonly Pod[];
  /** Hash of the revision that its template is. */
  readonly hash: string;
  readonly nowMs: number;
}

export interface DaemonSetPlan {
  /** Names of nodes that get a pod. */
  readonly create: readonly string[];
  readonly delete: readonly Pod[];
  /** Failed ones, which go too, but not again and again without pause. */
  readonly replace: readonly Pod[];
  /** Nodes that are away with a pod of an older revision; a rolling update leaves them until they are back. */
  readonly deferred: number;
  readonly status: Omit<DaemonSetStatus, "collisionCount" | "observedGeneration">;
  /** Time at which a ready pod becomes available. */
  readonly wakeInMs: number | undefined;
}

interface NodeView {
  readonly name: string;
  readonly fit: Fit;
  readonly isAway: boolean;
  /** Oldest first. */
  readonly pods: readonly Pod[];
}

export function planDaemonSet(view: DaemonSetView): DaemonSetPlan {
  const byNode = Map.groupBy(view.pods, (pod) => targetNode(pod) ?? "");
  const nodes = view.nodes.map((node): NodeView => {
    const { name } = node.metadata;
    return { name, fit: fitOn(view.set, node), isAway: isAway(node), pods: (byNode.get(name) ?? []).toSorted(byAge) };
  });
  const plan = new Planner(view, nodes);
  for (const node of nodes) plan.manage(node);
  const known = new Set(nodes.map(({ name }) => name));
  for (const [name, pods] of byNode) if (!known.has(name)) plan.removeStrays(pods);
  if (view.set.spec.updateStrategy.type === "RollingUpdate") plan.roll();
  return plan.result();
}

/** Those with a node first, then by age; names settle ties, so that two planners agree. */
function byAge(left: Pod, right: Pod): number {
  const assigned = Number((right.spec.nodeName ?? "") !== "") - Number((left.spec.nodeName ?? "") !== "");
  if (assigned !== 0) return assigned;
  const [a, b] = [left, right].map(({ metadata }) => `${metadata.creationTimestamp ?? ""} ${metadata.name}`);
  return (a ?? "") < (b ?? "") ? -1 : 1;
}

const isGoing = (pod: Pod): boolean => pod.metadata.deletionTimestamp !== undefined;

class Planner {
  readonly #view: DaemonSetView;
  readonly #nodes: readonly NodeView[];
  readonly #create = new Set<string>();
  readonly #delete = new Set<Pod>();
  readonly #replace = new Set<Pod>();
  readonly #maxSurge: number;
  readonly #maxUnavailable: number;
  readonly #allowsSurge: boolean;
  #deferred = 0;
  #wakeInMs: number | undefined;

  constructor(view: DaemonSetView, nodes: readonly NodeView[]) {
    this.#view = view;
    this.#nodes = nodes;
    const { type, rollingUpdate } = view.set.spec.updateStrategy;
    const desired = nodes.filter(({ fit }) => fit.shouldRun).length;
    const maxSurge = resolveCount(rollingUpdate?.maxSurge, desired);
    const maxUnavailable = resolveCount(rollingUpdate?.maxUnavailable, desired);
    this.#maxSurge = maxSurge;
    this.#maxUnavailable = maxSurge === 0 ? Math.max(1, maxUnavailable) : maxUnavailable;
    this.#allowsSurge = type === "RollingUpdate" && ![undefined, 0, "0%"].includes(rollingUpdate?.maxSurge);
  }

  /** One pod on each node that fits, none on the others. */
  manage({ name, fit, pods }: NodeView): void {
    if (fit.shouldRun && pods.length === 0) this.#create.add(name);
    else if (!fit.shouldContinue) this.#remove(pods);
    else {
      const alive: Pod[] = [];
      for (const pod of pods) {
        if (isGoing(pod)) continue;
        if (pod.status?.phase === "Failed") this.#replace.add(pod);
        else if (pod.status?.phase === "Succeeded") this.#delete.add(pod);
        else alive.push(pod);
      }
      if (alive.length > 1) this.#prune(alive);
    }
  }

  /** Pods for nodes that are gone and that never got there; the others are the pod collector's. */
  removeStrays(pods: readonly Pod[]): void {
    this.#remove(pods.filter(({ spec }) => (spec.nodeName ?? "") === ""));
  }

  #remove(pods: readonly Pod[]): void {
    for (const pod of pods) if (!isGoing(pod)) this.#delete.add(pod);
  }

  /** A second pod may be there only while it takes over from a ready one. */
  #prune(alive: readonly Pod[]): void {
    if (!this.#allowsSurge) {
      this.#remove(alive.slice(1));
      return;
    }
    const [newest, ...otherNew] = alive.filter((pod) => this.#isUpdated(pod));
    const [oldest, ...otherOld] = alive.filter((pod) => !this.#isUpdated(pod));
    this.#remove([...otherNew, ...otherOld]);
    if (newest === undefined || oldest === undefined) return;
    if (!isPodReady(oldest) || this.#isAvailable(newest)) this.#delete.add(oldest);
  }

  roll(): void {
    if (this.#maxSurge > 0) this.#rollBySurge();
    else this.#rollByDeleting();
  }

  /**
   * Nodes whose pods may be updated now. Those that are away count neither as unavailable nor as surging: with pods
   * that tolerate all taints the update would stand still until the last of them is back. Their pods run on, and are
   * updated within the same limits when they are back.
   */
  #updatable(): readonly NodeView[] {
    const away = this.#nodes.filter((node) => node.isAway && node.fit.shouldContinue);
    this.#deferred = away.filter((node) => this.#split(node).old.length > 0).length;
    return this.#nodes.filter((node) => !node.isAway && node.fit.shouldRun);
  }

  /** Ends just as many old pods as may be unavailable; `manage` puts new ones in their places. */
  #rollByDeleting(): void {
    let unavailable = 0;
    const broken: Pod[] = [];
    const candidates: Pod[] = [];
    for (const node of this.#updatable()) {
      const { current, old } = this.#split(node);
      const [pod] = current.length + old.length === 1 ? [...current, ...old] : [];
      // None, or one too many: `manage` sees to it.
      if (pod === undefined) unavailable += 1;
      else if (current.length === 1) unavailable += this.#isAvailable(pod) ? 0 : 1;
      else if (this.#isAvailable(pod)) candidates.push(pod);
      else broken.push(pod);
    }
    this.#remove([...broken, ...candidates.slice(0, Math.max(0, this.#maxUnavailable - unavailable))]);
  }

  /** Makes new pods beside old ones, and ends those when the new are available. */
  #rollBySurge(): void {
    let surging = 0;
    const needed: string[] = [];
    const candidates: string[] = [];
    for (const node of this.#updatable()) {
      const { current, old } = this.#split(node);
      const [pod] = old;
      if (current.length > 1 || old.length > 1) surging += 1;
      else if (pod === undefined) continue;
      else if (current[0] !== undefined) {
        if (this.#isAvailable(current[0])) this.#delete.add(pod);
        else surging += 1;
      } else if (this.#isAvailable(pod)) candidates.push(node.name);
      else needed.push(node.name);
    }
    const room = Math.max(0, this.#maxSurge - surging);
    for (const name of [...needed, ...candidates.slice(0, room)]) this.#create.add(name);
  }

  #split({ pods }: NodeView): { readonly current: readonly Pod[]; readonly old: readonly Pod[] } {
    const staying = pods.filter((pod) => !isGoing(pod));
    return {
      current: staying.filter((pod) => this.#isUpdated(pod)),
      old: staying.filter((pod) => !this.#isUpdated(pod)),
    };
  }

  #isUpdated(pod: Pod): boolean {
    return pod.metadata.labels?.[REVISION_LABEL] === this.#view.hash;
  }

  #isAvailable(pod: Pod): boolean {
    const { set, nowMs } = this.#view;
    const waitMs = untilAvailableMs(pod, set.spec.minReadySeconds ?? 0, nowMs);
    if (waitMs !== undefined && waitMs > 0) this.#wakeInMs = Math.min(waitMs, this.#wakeInMs ?? waitMs);
    return waitMs === 0;
  }

  result(): DaemonSetPlan {
    return {
      create: [...this.#create],
      delete: [...this.#delete],
      replace: [...this.#replace],
      deferred: this.#deferred,
      status: this.#status(),
      wakeInMs: this.#wakeInMs,
    };
  }

  #status(): DaemonSetPlan["status"] {
    const counts = { desired: 0, current: 0, misscheduled: 0, ready: 0, available: 0, updated: 0 };
    for (const { fit, pods } of this.#nodes) {
      const [pod] = pods;
      if (fit.shouldRun) counts.desired += 1;
      if (pod === undefined) continue;
      if (!fit.shouldRun) {
        counts.misscheduled += 1;
        continue;
      }
      counts.current += 1;
      if (isPodReady(pod)) counts.ready += 1;
      if (this.#isAvailable(pod)) counts.available += 1;
      if (this.#isUpdated(pod)) counts.updated += 1;
    }
    const unavailable = counts.desired - counts.available;
    return {
      currentNumberScheduled: counts.current,
      numberMisscheduled: counts.misscheduled,
      desiredNumberScheduled: counts.desired,
      numberReady: counts.ready,
      ...(counts.updated === 0 ? {} : { updatedNumberScheduled: counts.updated }),
      ...(counts.available === 0 ? {} : { numberAvailable: counts.available }),
      ...(unavailable === 0 ? {} : { numberUnavailable: unavailable }),
    };
  }
}
