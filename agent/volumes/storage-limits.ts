import { join } from "node:path";
import { Alarm } from "../../protocol/async/alarm.ts";
import type { Component } from "../../protocol/async/component.ts";
import type { Watch } from "../../protocol/async/watch.ts";
import { describeError, isCancelled } from "../../protocol/errors.ts";
import { type Clock, type Log, type MonotonicMs, millis, type PodUid, seconds } from "../../protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { AgentPod } from "../core/agent-pod.ts";
import type { PodEnder } from "../core/pod-admission.ts";
import type { EventRecorder } from "../core/store.ts";
import { isCritical } from "../plan/critical-pods.ts";
import { diskUsage } from "./disk-usage.ts";
import type { PodPaths } from "./pod-paths.ts";
import { warnOfPod } from "./pod-warning.ts";
import { hasStorageLimit, isOnDisk, limitedVolumes, type StorageUsage, storageExcess } from "./storage-verdict.ts";

export interface StorageLimitsComponents {
  readonly pods: () => Iterable<AgentPod>;
  /** Fires when pods come, go, start and end. */
  readonly podsChanged: Watch<unknown>;
  readonly adapterOf: (pod: AgentPod) => RuntimeAdapter | undefined;
  readonly ender: PodEnder;
  readonly paths: PodPaths;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
}

/** The kubelet looks every ten seconds, at figures that are up to a minute old. */
const INTERVAL = seconds(10);
/** What cannot be measured now hardly can be in ten seconds. */
const RETRY = seconds(600);
/** Who would be due so soon after the others is measured with them. */
const TOGETHER = seconds(2);
/** What is measured as fast as this is measured together with others like it, which saves a process for each. */
const QUICK = millis(100);
/** What measuring may cost: a pod whose folders take a second is measured every hundred seconds. */
const COST_FACTOR = 100;
/** The kubelet's, of a pod that it must get rid of fast. */
const GRACE = seconds(1);

/** A pod that runs and has a limit. */
interface Limited {
  readonly pod: AgentPod;
  /** Whether its containers' own file systems count. */
  readonly whole: boolean;
  readonly emptyDirs: ReadonlyMap<string, string>;
  readonly logs: ReadonlyMap<string, string>;
  readonly others: readonly string[];
}

/**
 * Ends pods that have written more to disk than their volumes' `sizeLimit`, their own or their containers' limit of
 * ephemeral-storage allow. While no pod has such a limit nothing runs, no timer either.
 */
export class StorageLimits implements Component {
  readonly name = "storage limits";
  readonly #components: StorageLimitsComponents;
  readonly #alarm: Alarm;
  /** When each pod is to be measured again. */
  readonly #dueAt = new Map<PodUid, MonotonicMs>();
  readonly #quick = new Set<PodUid>();
  readonly #ending = new Map<PodUid, Promise<void>>();
  /** Pods that must not be ended whatever they write; said once. */
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
    } catch (error) {
      if (!isCancelled(error)) throw error;
    }
    await Promise.all(this.#ending.values());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is held.
  }

  #wake(): void {
    if (!this.#alarm.isSet && this.#limited().length > 0) this.#alarm.set(INTERVAL);
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#components;
    const all = this.#limited();
    const known = new Set(all.map(({ pod }) => pod.desired.uid));
    for (const uid of this.#dueAt.keys()) if (!known.has(uid)) this.#dueAt.delete(uid);
    for (const uid of this.#spared) if (!known.has(uid)) this.#spared.delete(uid);
    for (const uid of this.#quick) if (!known.has(uid)) this.#quick.delete(uid);
    const soon = clock.monotonic() + TOGETHER;
    const due = all.filter(({ pod }) => (this.#dueAt.get(pod.desired.uid) ?? 0) <= soon);
    const quick = due.filter(({ pod }) => this.#quick.has(pod.desired.uid));
    const others = due.filter((each) => !quick.includes(each)).map((each) => [each]);
    for (const group of [...(quick.length === 0 ? [] : [quick]), ...others]) {
      const startedAt = clock.monotonic();
      let least = INTERVAL;
      try {
        await this.#judge(group, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        log.warn("cannot measure what pods take on disk", { pods: group.length, error: describeError(error) });
        least = RETRY;
      }
      const took = clock.monotonic() - startedAt;
      const dueAt = (clock.monotonic() + Math.max(least, took * COST_FACTOR)) as MonotonicMs;
      for (const { pod } of group) {
        this.#dueAt.set(pod.desired.uid, dueAt);
        if (took <= QUICK) this.#quick.add(pod.desired.uid);
        else this.#quick.delete(pod.desired.uid);
      }
    }
    const next = Math.min(...[...this.#dueAt.values()]);
    if (Number.isFinite(next)) this.#alarm.set(millis(Math.max(0, next - clock.monotonic())));
  }

  #limited(): Limited[] {
    const limited: Limited[] = [];
    for (const pod of this.#components.pods()) {
      const { uid } = pod.desired;
      const runs = pod.containers.some(({ state }) => state.kind === "running");
      if (!runs || pod.terminatingSinceMs !== undefined || this.#ending.has(uid)) continue;
      const whole = hasStorageLimit(pod.desired.pod);
      if (whole || limitedVolumes(pod.desired.pod).length > 0) limited.push(this.#foldersOf(pod, whole));
    }
    return limited;
  }

  #foldersOf(pod: AgentPod, whole: boolean): Limited {
    const { paths } = this.#components;
    const { uid, pod: manifest } = pod.desired;
    const volumes = (manifest.spec.volumes ?? []).filter((volume) => volume.emptyDir === undefined || isOnDisk(volume));
    const counted = whole ? volumes.filter(isOnDisk) : limitedVolumes(manifest);
    const configMaps = whole ? volumes.filter(({ configMap }) => configMap !== undefined) : [];
    const names = whole ? new Set(pod.containers.map(({ name }) => name)) : [];
    return {
      pod,
      whole,
      emptyDirs: new Map(counted.map(({ name }) => [name, paths.volume(uid, "empty-dir", name)])),
      logs: new Map([...names].map((name) => [name, join(pod.logDirectory, name)])),
      others: [
        ...configMaps.map(({ name }) => paths.volume(uid, "configmap", name)),
        ...(whole ? [paths.etcHosts(uid)] : []),
      ],
    };
  }

  async #judge(group: readonly Limited[], signal: AbortSignal): Promise<void> {
    const paths = group.flatMap(({ emptyDirs, logs, others }) => [...emptyDirs.values(), ...logs.values(), ...others]);
    const bytes = await diskUsage(paths, signal);
    for (const limited of group) {
      const { desired } = limited.pod;
      const usage = await this.#usageOf(limited, bytes, signal).catch(unlessCancelled);
      const message = usage === undefined ? undefined : storageExcess(desired.pod, usage);
      if (message === undefined || this.#spared.has(desired.uid)) continue;
      if (isCritical(desired)) this.#spare(desired, message);
      else this.#end(desired, message, signal);
    }
  }

  async #usageOf(
    { pod, whole, emptyDirs, logs, others }: Limited,
    bytes: ReadonlyMap<string, number>,
    signal: AbortSignal,
  ): Promise<StorageUsage> {
    const adapter = whole ? this.#components.adapterOf(pod) : undefined;
    const written = await adapter?.writableBytes?.(pod.desired.uid, signal);
    const containers = new Map<string, number>();
    for (const [name, path] of logs) {
      const own = pod.containers.filter((container) => container.name === name);
      const layers = own.reduce((sum, { id }) => sum + (written?.get(id) ?? 0), 0);
      containers.set(name, (bytes.get(path) ?? 0) + layers);
    }
    return {
      emptyDirs: new Map([...emptyDirs].map(([name, path]) => [name, bytes.get(path) ?? 0])),
      containers,
      otherBytes: others.reduce((sum, path) => sum + (bytes.get(path) ?? 0), 0),
    };
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
    const ended = ender
      .end(desired.uid, { reason: "Evicted", message, gracePeriod: GRACE }, signal)
      .catch((error: unknown) => {
        if (!isCancelled(error)) log.error("cannot evict a pod", { pod: desired.uid, error: describeError(error) });
      })
      .finally(() => this.#ending.delete(desired.uid));
    this.#ending.set(desired.uid, ended);
  }
}

/** A runtime that does not answer is said elsewhere; its pods are judged when it is back. */
function unlessCancelled(error: unknown): undefined {
  if (isCancelled(error)) throw error;
}
