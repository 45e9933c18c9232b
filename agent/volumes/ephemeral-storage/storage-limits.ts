import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { publicMessage } from "@picolet/protocol/decisions/public-text.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodDiskUsage } from "../../core/node/usage.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { PodEnder } from "../../core/pods/pod-admission.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import { isCritical } from "../../plan/admission/critical-pods.ts";
import { hasStorageLimit, limitedVolumes, storageExcess, storageUsage } from "./storage-verdict.ts";

export interface StorageLimitsComponents {
  readonly pods: () => Iterable<AgentPod>;
  /** Fires when pods come, go, start and end. */
  readonly podsChanged: Watch<unknown>;
  /** Measures what those pods take on disk; a pod whose folders are large less often than it is asked to. */
  readonly disk: (
    maxAge: Millis,
    signal: AbortSignal,
    only: ReadonlySet<PodUid>,
  ) => Promise<ReadonlyMap<PodUid, PodDiskUsage>>;
  readonly ender: PodEnder;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
}

/** The kubelet checks every ten seconds, by figures that are up to a minute old. */
const INTERVAL = seconds(10);
/** A measurement that failed, such as without `du`, would most likely fail again in ten seconds. */
const RETRY = seconds(600);
/** The kubelet's grace period of an immediate eviction. */
const GRACE = seconds(1);

/**
 * Ends pods that have written more to disk than their volumes' `sizeLimit`, their own or their containers' limit of
 * ephemeral-storage allow. While no pod has such a limit nothing runs, no timer either.
 */
export class StorageLimits implements Component {
  readonly name = "storage limits";
  readonly #components: StorageLimitsComponents;
  readonly #alarm: Alarm;
  readonly #ending = new Map<PodUid, Promise<void>>();
  /** Critical pods above a limit, which are never evicted; logged once. */
  readonly #spared = new Set<PodUid>();

  constructor(components: StorageLimitsComponents) {
    this.#components = components;
    this.#alarm = new Alarm(components.clock);
  }

  async run(signal: AbortSignal): Promise<void> {
    const follow = async (): Promise<void> => {
      this.#wake();
      for await (const _ of this.#components.podsChanged.changes(signal)) this.#wake();
    };
    const measure = async (): Promise<void> => {
      while (!signal.aborted) {
        await this.#alarm.ring(signal);
        await this.#round(signal);
      }
    };
    try {
      await Promise.all([follow(), measure()]);
    } finally {
      await Promise.all(this.#ending.values());
    }
  }

  #wake(): void {
    if (!this.#alarm.isSet && this.#limited().length > 0) this.#alarm.set(INTERVAL);
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { disk, log } = this.#components;
    const limited = this.#limited();
    const known = new Set(limited.map(({ desired }) => desired.uid));
    for (const uid of this.#spared) if (!known.has(uid)) this.#spared.delete(uid);
    if (limited.length === 0) return;
    let next = INTERVAL;
    try {
      const measured = await disk(millis(INTERVAL / 2), signal, known);
      for (const { desired } of limited) this.#judge(desired, measured.get(desired.uid), signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      log.warn("cannot measure what pods take on disk", { pods: limited.length, error: describeError(error) });
      next = RETRY;
    }
    this.#alarm.set(next);
  }

  #limited(): AgentPod[] {
    return [...this.#components.pods()].filter(({ desired, containers, terminatingSinceMs }) => {
      const runs = containers.some(({ state }) => state.kind === "running");
      if (!runs || terminatingSinceMs !== undefined || this.#ending.has(desired.uid)) return false;
      return hasStorageLimit(desired.pod) || limitedVolumes(desired.pod).length > 0;
    });
  }

  #judge(desired: DesiredPod, measured: PodDiskUsage | undefined, signal: AbortSignal): void {
    const usage = measured === undefined ? undefined : storageUsage(measured);
    const message = usage === undefined ? undefined : storageExcess(desired.pod, usage);
    if (message === undefined || this.#spared.has(desired.uid)) return;
    if (isCritical(desired)) this.#spare(desired, message);
    else this.#end(desired, message, signal);
  }

  #spare({ uid: pod }: DesiredPod, message: string): void {
    this.#spared.add(pod);
    const fields = { pod, message: message.trim() };
    this.#components.log.error("a critical pod takes more disk than it may and is not evicted", fields);
  }

  #end(desired: DesiredPod, message: string, signal: AbortSignal): void {
    const { ender, events, log } = this.#components;
    warnOfPod(events, desired, "Evicted", message);
    log.warn("a pod takes more disk than it may", { pod: desired.uid, message: message.trim() });
    const decision = { kind: "storageExceeded", message: publicMessage(message) } as const;
    const ended = ender
      .end(desired.uid, { reason: "Evicted", message, gracePeriod: GRACE, decision }, signal)
      .catch((error: unknown) => {
        if (!isCancelled(error)) log.error("cannot evict a pod", { pod: desired.uid, error: describeError(error) });
      })
      .finally(() => this.#ending.delete(desired.uid));
    this.#ending.set(desired.uid, ended);
  }
}
