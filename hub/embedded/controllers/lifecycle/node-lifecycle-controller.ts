import { type KubeObject, NODES, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import {
  conditionOf,
  hasEnded,
  isPodReady,
  type NodeObject,
  nodeOf,
  podOf,
  type Taint,
} from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { ObjectCache, ObjectChange } from "../object-cache.ts";
import { evictionTime, isSameTaints, readiness, silentConditions, taintsFor } from "./plan-node.ts";

/** kube-controller-manager's `--node-monitor-grace-period` since 1.32: five renewals of a lease and some. */
const GRACE = seconds(50);
/**
 * Its `--node-eviction-rate`: one node in ten seconds loses its pods, so that a mistake of ours does not empty a fleet.
 */
const EVICTION_INTERVAL = seconds(10);
const COMPONENT = "node-controller";
const LEASE_NAMESPACE = "kube-node-lease";

export interface NodeLifecycleCaches {
  readonly nodes: ObjectCache;
  readonly pods: ObjectCache;
  readonly leases: ObjectCache;
}

/** Time of a node's last sign of life, by our own clock: the node's clock is not compared with ours. */
interface Heard {
  readonly signs: string;
  readonly atMs: number;
}

/**
 * Nodes that are not heard of become unknown; taints follow from conditions; pods leave nodes with NoExecute taints
 * that they do not tolerate. A pod that tolerates its node's absence without limit stays, from any source of that
 * toleration.
 */
export class NodeLifecycleController extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: NodeLifecycleCaches;
  readonly #events: EventRecorder;
  readonly #heard = new Map<string, Heard>();
  /** Wall time at which a taint without `timeAdded` was first seen, by node, key and effect. */
  readonly #taintSeen = new Map<string, number>();
  #evictionAllowedAtMs = 0;
  readonly #ready = new Set<string>();
  #allAway = true;

  constructor(components: ControllerPorts & { readonly caches: NodeLifecycleCaches; readonly events: EventRecorder }) {
    const { caches, events, ...ports } = components;
    super(ports, { name: "node lifecycle controller", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    this.#events = events;
    caches.nodes.onChange((change) => {
      if (change.after === undefined) this.#forget(change.key);
      this.loop.add(change.key);
      this.#judgeFleet(change);
    });
    caches.leases.onChange(({ after }) => {
      if (after !== undefined && !this.#renews(after.metadata.name)) this.loop.add(after.metadata.name);
    });
    caches.pods.onChange(({ before, after }) => {
      const pod = after === undefined ? undefined : podOf(after);
      const isNew = before === undefined || (podOf(before).spec.nodeName ?? "") === "";
      const node = pod?.spec.nodeName ?? "";
      // Tolerations may have been added; everything else follows from the node.
      if (pod !== undefined && node !== "" && (isNew || podOf(before).spec.tolerations !== pod.spec.tolerations)) {
        if (this.#isTainted(node)) this.loop.add(node);
      }
    });
  }

  /**
   * Records the renewal of a lease that was renewed in time before: nothing follows from it, and the round that is due
   * when the grace period is over finds the node heard of. @returns false when a round has to see to the node
   */
  #renews(name: string): boolean {
    const heard = this.#heard.get(name);
    const node = this.#caches.nodes.get(name);
    if (heard === undefined || node === undefined) return false;
    if (this.#ports.clock.monotonic() - heard.atMs >= GRACE) return false;
    this.#silence(nodeOf(node));
    return true;
  }

  #isTainted(name: string): boolean {
    const node = this.#caches.nodes.get(name);
    return node !== undefined && (nodeOf(node).spec?.taints ?? []).some(({ effect }) => effect === "NoExecute");
  }

  #forget(node: string): void {
    this.#heard.delete(node);
    for (const key of this.#taintSeen.keys()) if (key.startsWith(`${node}/`)) this.#taintSeen.delete(key);
  }

  /** When the last node has gone away, or the first is back, all nodes are checked again. */
  #judgeFleet({ key, after }: ObjectChange): void {
    if (after !== undefined && readiness(nodeOf(after)) === "True") this.#ready.add(key);
    else this.#ready.delete(key);
    const allAway = this.#ready.size === 0;
    if (allAway === this.#allAway) return;
    this.#allAway = allAway;
    this.#ports.log.info(allAway ? "no node is ready: nothing is evicted" : "a node is ready: pods may be evicted");
    for (const name of this.#caches.nodes.keys()) this.loop.add(name);
  }

  protected async reconcile(name: string, signal: AbortSignal): Promise<Millis | undefined> {
    const object = this.#caches.nodes.get(name);
    if (object === undefined) return undefined;
    const node = nodeOf(object);
    const silentForMs = this.#silence(node);
    // Its change brings the next round, which sees to the taints.
    if (silentForMs >= GRACE && (await this.#reportSilence(node, signal))) return undefined;
    const wait = await this.#taint(node, signal);
    const eviction = wait === undefined ? await this.#evict(node, signal) : wait;
    const unheard = silentForMs >= GRACE ? undefined : GRACE - silentForMs;
    const waits = [eviction, unheard].filter((each) => each !== undefined);
    return waits.length === 0 ? undefined : millis(Math.min(...waits));
  }

  /** Milliseconds since its lease or its heartbeats changed; from our own start on when they have not since. */
  #silence(node: NodeObject): number {
    const { name } = node.metadata;
    const lease = this.#caches.leases.find(LEASE_NAMESPACE, name) as { spec?: { renewTime?: string } } | undefined;
    const ready = conditionOf(node.status?.conditions, "Ready");
    // A status that this controller wrote is no sign of life.
    const heartbeat = ready?.status === "Unknown" ? "" : (ready?.lastHeartbeatTime ?? "");
    const signs = `${lease?.spec?.renewTime ?? ""} ${heartbeat}`;
    const nowMs = this.#ports.clock.monotonic();
    const before = this.#heard.get(name);
    if (before?.signs === signs) return nowMs - before.atMs;
    const isOurOwnDoing =
      before !== undefined && heartbeat === "" && signs.split(" ")[0] === before.signs.split(" ")[0];
    const atMs = isOurOwnDoing ? before.atMs : nowMs;
    this.#heard.set(name, { signs, atMs });
    return nowMs - atMs;
  }

  /** @returns whether there was anything to tell */
  async #reportSilence(node: NodeObject, signal: AbortSignal): Promise<boolean> {
    const conditions = silentConditions(node, this.#now());
    if (conditions === undefined) {
      await this.#unreadyPods(node, signal);
      return false;
    }
    const { name } = node.metadata;
    const wasReady = readiness(node) === "True";
    const update = { ...node, status: { ...node.status, conditions } };
    await this.#ports.client.update(NODES, { namespace: "", name }, update, { subresource: "status" }, signal);
    if (wasReady) {
      const message = `Node ${name} status is now: NodeNotReady`;
      this.#events.record(node, { type: "Normal", reason: "NodeNotReady", message, component: COMPONENT });
    }
    return true;
  }

  /**
   * Pods of a node that nothing is heard of are not known to be ready. No reason is given, as in Kubernetes: it is none
   * of theirs.
   */
  async #unreadyPods(node: NodeObject, signal: AbortSignal): Promise<void> {
    for (const pod of this.#podsOn(node)) {
      if (!isPodReady(pod)) continue;
      const { namespace, name, uid } = pod.metadata;
      const condition = { type: "Ready", status: "False", lastTransitionTime: this.#now() };
      const patch = { metadata: { uid }, status: { conditions: [condition] } };
      try {
        await this.#ports.client.patch(
          PODS,
          { namespace, name },
          "strategic",
          patch,
          { subresource: "status" },
          signal,
        );
      } catch (error) {
        if (!isPicoletError(error, "not_found") && !isPicoletError(error, "conflict")) throw error;
      }
    }
  }

  /** @returns when to come back, if the taint that evicts has to wait for its turn */
  async #taint(node: NodeObject, signal: AbortSignal): Promise<number | undefined> {
    const before = node.spec?.taints ?? [];
    const all = taintsFor(node, !this.#allAway, this.#now());
    const isNew = (taint: Taint): boolean =>
      !before.some((each) => each.key === taint.key && each.effect === taint.effect);
    const evicts = (taint: Taint): boolean => taint.effect === "NoExecute" && isNew(taint);
    const wait = all.some(evicts) ? this.#evictionAllowedAtMs - this.#ports.clock.monotonic() : 0;
    const taints = wait > 0 ? all.filter((taint) => !evicts(taint)) : all;
    if (!isSameTaints(taints, before)) {
      const { name } = node.metadata;
      const update = { ...node, spec: { ...node.spec, taints } } as KubeObject;
      await this.#ports.client.update(NODES, { namespace: "", name }, update, {}, signal);
      if (taints.some(evicts)) this.#evictionAllowedAtMs = this.#ports.clock.monotonic() + EVICTION_INTERVAL;
    }
    return wait > 0 ? wait : undefined;
  }

  /** @returns milliseconds until the next pod has to go */
  async #evict(node: NodeObject, signal: AbortSignal): Promise<number | undefined> {
    const taints = (node.spec?.taints ?? []).filter(({ effect }) => effect === "NoExecute");
    if (taints.length === 0) return undefined;
    const nowMs = this.#ports.clock.wall().getTime();
    let next: number | undefined;
    for (const pod of this.#podsOn(node)) {
      if (pod.metadata.deletionTimestamp !== undefined) continue;
      const time = evictionTime(pod, taints, (taint) => this.#firstSeen(node, taint, nowMs));
      if (time === undefined) continue;
      if (time <= nowMs) await this.#deletePod(pod, signal);
      else next = Math.min(time - nowMs, next ?? time - nowMs);
    }
    return next;
  }

  #firstSeen({ metadata }: NodeObject, { key, effect }: Taint, nowMs: number): number {
    const id = `${metadata.name}/${effect}/${key}`;
    const seen = this.#taintSeen.get(id) ?? nowMs;
    this.#taintSeen.set(id, seen);
    return seen;
  }

  async #deletePod(pod: Pod, signal: AbortSignal): Promise<void> {
    const { namespace, name, uid } = pod.metadata;
    const key = keyOf(namespace, name);
    const condition = {
      type: "DisruptionTarget",
      status: "True",
      reason: "DeletionByTaintManager",
      message: "Taint manager: deleting due to NoExecute taint",
      lastTransitionTime: this.#now(),
    };
    const { client } = this.#ports;
    const patch = { metadata: { uid }, status: { conditions: [condition] } };
    try {
      await client.patch(PODS, { namespace, name }, "strategic", patch, { subresource: "status" }, signal);
      await client.delete(PODS, { namespace, name }, uid === undefined ? {} : { uid }, signal);
    } catch (error) {
      if (isPicoletError(error, "not_found") || isPicoletError(error, "conflict")) return;
      throw error;
    }
    this.#events.record(pod as unknown as KubeObject, {
      type: "Normal",
      reason: "TaintManagerEviction",
      message: `Marking for deletion Pod ${key}`,
      component: "taint-eviction-controller",
    });
  }

  #podsOn({ metadata }: NodeObject): readonly Pod[] {
    return this.#caches.pods
      .list("node", metadata.name)
      .map(podOf)
      .filter((pod) => !hasEnded(pod));
  }

  #now(): string {
    return kubeTime(this.#ports.clock.wall());
  }
}
