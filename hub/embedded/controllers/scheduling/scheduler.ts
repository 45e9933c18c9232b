import { type KubeObject, PERSISTENT_VOLUME_CLAIMS, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { Turns } from "../../api/turns.ts";
import { hasEnded, type NodeObject, nodeOf, podOf } from "../../api/typed-objects.ts";
import type { SelectorCompiler } from "../../expressions/selector-compiler.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import { type ClaimBinding, DeviceAllocator } from "../devices/device-allocator.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { ObjectCache, ObjectChange } from "../object-cache.ts";
import { type Claim, SELECTED_NODE } from "../volumes/volume-objects.ts";
import { NodeInfo, type PodNeeds, podNeeds } from "./node-info.ts";
import { type SchedulingDecision, schedule } from "./schedule.ts";
import { volumeLimits } from "./volume-limits.ts";
import { type VolumeRules, volumeRules } from "./volume-rules.ts";

const COMPONENT = "default-scheduler";
/** Bindings under way at once; decisions wait for a place. Each is one small write. */
const MAX_BINDINGS = 32;
/**
 * kube-scheduler's own: a pod that did not fit is tried again no sooner than this, doubling, and at the latest after
 * the last.
 */
const POD_BACKOFF: BackoffPolicy = { first: seconds(1), max: seconds(10) };
const RETRY_ANYWAY = seconds(300);

export interface SchedulerCaches {
  readonly pods: ObjectCache;
  readonly nodes: ObjectCache;
  readonly namespaces: ObjectCache;
  readonly claims: ObjectCache;
  readonly volumes: ObjectCache;
  readonly classes: ObjectCache;
  readonly resourceClaims: ObjectCache;
  readonly driverNodes: ObjectCache;
  readonly attachments: ObjectCache;
  readonly deviceClasses: ObjectCache;
  readonly resourceSlices: ObjectCache;
}

interface Attempts {
  readonly count: number;
  readonly notBeforeMs: number;
}

/**
 * Places pods without a node, one decision after the other, highest priority first. What it has decided counts as taken
 * from that moment on, until the cache shows it. The API server refuses to place a pod twice.
 */
export class Scheduler implements Component {
  readonly name = "scheduler";
  readonly #ports: ControllerPorts;
  readonly #caches: SchedulerCaches;
  readonly #events: EventRecorder;
  readonly #alarm: Alarm;
  readonly #nodes = new Map<string, NodeInfo>();
  /** Pods that are on a node, or will be, by uid. */
  readonly #placed = new Map<string, string>();
  /** To be tried: keys. */
  readonly #pending = new Set<string>();
  /** Pods that fit no node, until something changes. */
  readonly #waiting = new Set<string>();
  readonly #attempts = new Map<string, Attempts>();
  readonly #bindings = new Set<Promise<void>>();
  readonly #devices: DeviceAllocator;
  readonly #turns = new Turns();
  /** Pods whose selectors of devices are being evaluated, by key. */
  readonly #evaluating = new Map<string, Promise<void>>();

  constructor(
    components: ControllerPorts & {
      readonly caches: SchedulerCaches;
      readonly events: EventRecorder;
      /** Compiles selectors of devices. */
      readonly compiler: SelectorCompiler;
    },
  ) {
    const { caches, events, compiler, ...ports } = components;
    this.#ports = ports;
    this.#caches = caches;
    this.#events = events;
    this.#alarm = new Alarm(ports.clock);
    caches.nodes.onChange((change) => this.#nodeChanged(change));
    caches.pods.onChange((change) => this.#podChanged(change));
    // Before the scheduler's own listener: the next decision sees which devices are free.
    this.#devices = new DeviceAllocator({ ...ports, compiler, turns: this.#turns }, { caches });
    const { namespaces, claims, volumes, classes, driverNodes, attachments } = caches;
    const { resourceClaims, deviceClasses, resourceSlices } = caches;
    for (const cache of [
      ...[namespaces, claims, volumes, classes, driverNodes, attachments],
      ...[resourceClaims, deviceClasses, resourceSlices],
    ])
      cache.onChange(() => this.#retryWaiting());
  }

  async run(signal: AbortSignal): Promise<void> {
    for (const { synced } of Object.values(this.#caches)) {
      for await (const isSynced of synced.changes(signal)) if (isSynced) break;
    }
    try {
      while (!signal.aborted) {
        await this.#alarm.ring(signal);
        await this.#placePending(signal);
      }
    } finally {
      await Promise.all([...this.#bindings, ...this.#evaluating.values()]);
    }
  }

  #nodeChanged({ key, before, after }: ObjectChange): void {
    if (after === undefined) {
      this.#nodes.delete(key);
      return;
    }
    const node = nodeOf(after);
    const info = this.#nodes.get(key);
    if (info === undefined) this.#addNode(key, node);
    else info.node = node;
    if (before === undefined || decides(nodeOf(before)) !== decides(node)) this.#retryWaiting();
  }

  /** With the pods that named it before it was there. */
  #addNode(name: string, node: NodeObject): void {
    const info = new NodeInfo(node);
    this.#nodes.set(name, info);
    for (const object of this.#caches.pods.list("node", name)) {
      if (!hasEnded(podOf(object))) info.add(podNeeds(podOf(object)));
    }
  }

  #podChanged({ key, before, after }: ObjectChange): void {
    const [old, pod] = [before, after].map((each) => (each === undefined ? undefined : podOf(each)));
    const uid = pod?.metadata.uid;
    // Another pod may have taken the name of one that has gone.
    if (old?.metadata.uid !== undefined && old.metadata.uid !== uid) this.#forget(old.metadata.uid, key);
    if (pod === undefined || uid === undefined) {
      this.#retryWaiting();
      return;
    }
    const node = pod.spec.nodeName ?? "";
    if (node === "") {
      this.#pendingChanged(key, old, pod);
      return;
    }
    this.#attempts.delete(key);
    this.#pending.delete(key);
    this.#waiting.delete(key);
    if (hasEnded(pod)) {
      this.#free(uid);
      if (old !== undefined && !hasEnded(old)) this.#retryWaiting();
    } else if (this.#nodes.get(node)?.has(uid) !== true || differs(old, pod)) this.#take(node, pod);
  }

  #pendingChanged(key: string, old: Pod | undefined, pod: Pod): void {
    if (!isSchedulable(pod)) {
      this.#pending.delete(key);
      this.#waiting.delete(key);
    } else if (this.#placed.has(pod.metadata.uid ?? "")) {
      // Its binding is under way.
      this.#pending.delete(key);
    } else if (!this.#waiting.has(key) || JSON.stringify(old?.spec) !== JSON.stringify(pod.spec)) {
      this.#enqueue(key);
    }
  }

  #enqueue(key: string): void {
    this.#waiting.delete(key);
    this.#pending.add(key);
    this.#alarm.set(this.#untilDue(key));
  }

  #untilDue(key: string) {
    const due = this.#attempts.get(key)?.notBeforeMs ?? 0;
    return millis(Math.max(0, due - this.#ports.clock.monotonic()));
  }

  #retryWaiting(): void {
    for (const key of this.#waiting) this.#enqueue(key);
  }

  #take(node: string, pod: Pod): void {
    this.#free(pod.metadata.uid ?? "");
    this.#placed.set(pod.metadata.uid ?? "", node);
    this.#nodes.get(node)?.add(podNeeds(pod));
  }

  #free(uid: string): void {
    const node = this.#placed.get(uid);
    if (node !== undefined) this.#nodes.get(node)?.remove(uid);
    this.#placed.delete(uid);
  }

  *#placedPods(): Iterable<PodNeeds> {
    for (const { pods } of this.#nodes.values()) yield* pods;
  }

  #forget(uid: string, key: string): void {
    this.#free(uid);
    this.#attempts.delete(key);
    this.#pending.delete(key);
    this.#waiting.delete(key);
  }

  async #placePending(signal: AbortSignal): Promise<void> {
    const due = [...this.#pending].flatMap((key) => {
      const object = this.#caches.pods.get(key);
      if (object === undefined) this.#pending.delete(key);
      return object === undefined || this.#untilDue(key) > 0 ? [] : [{ key, object, pod: podOf(object) }];
    });
    due.sort((a, b) => (b.pod.spec.priority ?? 0) - (a.pod.spec.priority ?? 0) || byCreation(a.pod, b.pod));
    for (const { key, object, pod } of due) {
      if (signal.aborted) return;
      // It may have been placed, deleted or changed while others were decided on.
      if (!this.#pending.delete(key)) continue;
      while (this.#bindings.size >= MAX_BINDINGS) await Promise.race(this.#bindings);
      this.#place(key, object, pod, signal);
      // Choosing devices may take a round of the event loop (`plan-allocation.ts`).
      if ((pod.spec.resourceClaims ?? []).length > 0) await this.#turns.next(COMPONENT);
    }
    for (const key of this.#pending) this.#alarm.set(this.#untilDue(key));
    if (this.#waiting.size > 0) this.#alarm.set(RETRY_ANYWAY);
  }

  #place(key: string, object: KubeObject, pod: Pod, signal: AbortSignal): void {
    const volumes = volumeRules(pod, this.#caches, this.#placedPods());
    const allocation = this.#devices.rules(pod, signal);
    if (allocation.kind === "evaluating") {
      this.#evaluate(key, allocation.ready);
      return;
    }
    const { rules: devices } = allocation;
    const limits = volumeLimits(pod, this.#caches);
    const decision = schedule(
      {
        pod,
        nodes: this.#nodes,
        namespaceLabels: (namespace) => this.#caches.namespaces.get(namespace)?.metadata.labels,
        obstacle: volumes.obstacle ?? devices.obstacle,
        nodeProblem: (node: NodeObject) =>
          limits?.(node.metadata.name, this.#nodes.get(node.metadata.name)?.pods ?? []) ??
          volumes.nodeProblem?.(node) ??
          devices.nodeProblem?.(node),
      },
      this.#ports.random,
    );
    const bindings = decision.kind === "fits" ? allocation.bindings(decision.node) : [];
    if (decision.kind === "fits") this.#take(decision.node, pod);
    this.#devices.assume(bindings);
    const task = this.#conclude(key, object, decision, { unbound: volumes.unbound, bindings }, signal)
      .catch((error: unknown) => this.#failed(key, pod, error, signal))
      .finally(() => this.#bindings.delete(task));
    this.#bindings.add(task);
  }

  /** The pod is tried again when its expressions are evaluated; other pods go on meanwhile. */
  #evaluate(key: string, ready: Promise<void>): void {
    if (this.#evaluating.has(key)) return;
    const task = ready
      .catch((error: unknown) => {
        this.#ports.log.warn("cannot evaluate selectors of devices", { pod: key, error: describeError(error) });
        this.#postpone(key);
      })
      .finally(() => {
        this.#evaluating.delete(key);
        if (this.#caches.pods.get(key) !== undefined) this.#enqueue(key);
      });
    this.#evaluating.set(key, task);
  }

  async #conclude(
    key: string,
    object: KubeObject,
    decision: SchedulingDecision,
    { unbound, bindings }: Pick<VolumeRules, "unbound"> & { readonly bindings: readonly ClaimBinding[] },
    signal: AbortSignal,
  ): Promise<void> {
    const { name, namespace = "", uid } = object.metadata;
    if (decision.kind === "unschedulable") {
      this.#postpone(key);
      this.#waiting.add(key);
      this.#events.record(object, {
        type: "Warning",
        reason: "FailedScheduling",
        message: decision.message,
        component: COMPONENT,
      });
      await this.#writeCondition(object, decision.message, signal);
      await this.#devices.giveBack(podOf(object), signal);
      return;
    }
    for (const claim of unbound) await this.#selectNode(claim, decision.node, signal);
    await this.#bindClaims(bindings, object, signal);
    const binding = {
      apiVersion: "v1",
      kind: "Binding",
      metadata: { name, namespace, uid },
      target: { apiVersion: "v1", kind: "Node", name: decision.node },
    };
    await this.#ports.client.create(PODS, { namespace, name }, binding, { subresource: "binding" }, signal);
    const message = `Successfully assigned ${keyOf(namespace, name)} to ${decision.node}`;
    this.#events.record(object, { type: "Normal", reason: "Scheduled", message, component: COMPONENT });
  }

  async #bindClaims(bindings: readonly ClaimBinding[], pod: KubeObject, signal: AbortSignal): Promise<void> {
    for (const [index, binding] of bindings.entries()) {
      try {
        await this.#devices.bind(binding, pod, signal);
      } catch (error) {
        for (const { claim } of bindings.slice(index + 1)) this.#devices.forget(claim.metadata.uid ?? "");
        throw error;
      }
    }
  }

  /** The binder of the claim then takes a volume that this node reaches. */
  async #selectNode({ metadata }: Claim, node: string, signal: AbortSignal): Promise<void> {
    const { name, namespace = "", uid, annotations } = metadata;
    if (annotations?.[SELECTED_NODE] === node) return;
    const patch = { metadata: { uid, annotations: { [SELECTED_NODE]: node } } };
    await this.#ports.client.patch(PERSISTENT_VOLUME_CLAIMS, { namespace, name }, "merge", patch, {}, signal);
  }

  #postpone(key: string): void {
    const count = (this.#attempts.get(key)?.count ?? 0) + 1;
    const notBeforeMs = this.#ports.clock.monotonic() + backoffDelay(POD_BACKOFF, count);
    this.#attempts.set(key, { count, notBeforeMs });
  }

  async #writeCondition(object: KubeObject, message: string, signal: AbortSignal): Promise<void> {
    const before = podOf(object).status?.conditions?.find(({ type }) => type === "PodScheduled");
    if (before?.status === "False" && before.reason === "Unschedulable" && before.message === message) return;
    const now = kubeTime(this.#ports.clock.wall());
    const lastTransitionTime = before?.status === "False" ? (before.lastTransitionTime ?? now) : now;
    const { name, namespace = "", uid, generation } = object.metadata;
    const condition = {
      type: "PodScheduled",
      status: "False",
      observedGeneration: generation,
      reason: "Unschedulable",
      message,
      lastTransitionTime,
    };
    const patch = { metadata: { uid }, status: { conditions: [condition] } };
    await this.#ports.client.patch(PODS, { namespace, name }, "strategic", patch, { subresource: "status" }, signal);
  }

  /** Takes the decision back; the pod is tried again unless it is gone or another scheduler has placed it. */
  #failed(key: string, pod: Pod, error: unknown, signal: AbortSignal): void {
    const uid = pod.metadata.uid ?? "";
    const current = this.#caches.pods.get(key);
    const isPlaced = current !== undefined && (podOf(current).spec.nodeName ?? "") !== "";
    if (!isPlaced) this.#free(uid);
    if (signal.aborted || isCancelled(error) || isPicoletError(error, "not_found")) return;
    if (!isPicoletError(error, "conflict")) {
      this.#ports.log.warn("cannot place a pod", { pod: key, error: describeError(error) });
    }
    if (current === undefined || isPlaced || current.metadata.uid !== uid || this.#waiting.has(key)) return;
    this.#postpone(key);
    this.#enqueue(key);
  }
}

const isSchedulable = ({ spec, metadata }: Pod): boolean =>
  metadata.deletionTimestamp === undefined &&
  spec.schedulerName === "default-scheduler" &&
  (spec.schedulingGates ?? []).length === 0;

const byCreation = (left: Pod, right: Pod): number =>
  (left.metadata.creationTimestamp ?? "") < (right.metadata.creationTimestamp ?? "") ? -1 : 1;

/** Node fields whose change can make a pending pod schedulable. Heartbeats are excluded. */
const decides = ({ metadata, spec, status }: NodeObject): string =>
  JSON.stringify([metadata.labels, spec?.unschedulable, spec?.taints, status?.allocatable]);

/** True when a change of a placed pod matters for other pods. */
const differs = (old: Pod | undefined, pod: Pod): boolean =>
  old?.metadata.generation !== pod.metadata.generation ||
  JSON.stringify(old?.metadata.labels) !== JSON.stringify(pod.metadata.labels);
