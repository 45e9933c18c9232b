import { join } from "node:path";
import { SharedTask } from "@picolet/protocol/async/shared-task.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { Volume } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter, WritableLayer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DiskUsage, PodDiskUsage } from "../../core/node/usage.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { PodPaths } from "../files/pod-paths.ts";
import { volumeTypeOf } from "../types/volume-types.ts";
import { diskUsage } from "./disk-usage.ts";

export interface DiskUsageSamplerComponents {
  readonly pods: () => Iterable<AgentPod>;
  readonly adapters: readonly RuntimeAdapter[];
  readonly paths: PodPaths;
  /** Folders of containers' writable layers that are known, by container id. */
  readonly writtenFolders: () => ReadonlyMap<string, string>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Bounds the cost of measuring to 1 %: a pod whose folders take a second is measured every hundred seconds. */
const COST_FACTOR = 100;
/** Urgent figures decide which pod is evicted, and old ones name the wrong pod. Half of the time is left to others. */
const URGENT_COST_FACTOR = 2;
/** Bounds the pods that one process (`du`) measures. */
const MAX_TOGETHER = 64;
/** A group of pods that takes longer is measured one by one from then on, which finds the slow pod. */
const QUICK = millis(500);
/** A second round, because a caller that joined the first may need figures newer than its start. */
const MAX_ROUNDS = 2;

interface Measured {
  readonly usage: PodDiskUsage;
  /** The start of the measurement. */
  readonly at: MonotonicMs;
  /** The pod's share of the measurement's duration. */
  readonly took: number;
  readonly alone: boolean;
  /** True when writable layers were measured now; else the runtime's last figures are in it. */
  readonly isExact: boolean;
}

/** The folders that count for one pod. */
interface Folders {
  readonly uid: PodUid;
  readonly pod: AgentPod;
  readonly volumes: ReadonlyMap<string, string>;
  readonly logs: ReadonlyMap<string, string>;
  /** By container id. */
  readonly written: ReadonlyMap<string, string>;
  readonly others: readonly string[];
}

/** Measures the disk usage of pods on demand, and shares one measurement between callers. */
export class DiskUsageSampler {
  readonly #components: DiskUsageSamplerComponents;
  readonly #task = new SharedTask<void>("the measurement of disk usage");
  /** Results by pod; those of removed pods are dropped in the next round. */
  readonly #measured = new Map<PodUid, Measured>();
  /** The start of the round under way. */
  #roundAt: MonotonicMs | undefined;
  /** Runtimes whose failure is logged already. */
  readonly #silent = new Set<string>();

  constructor(components: DiskUsageSamplerComponents) {
    this.#components = components;
  }

  /**
   * @param maxAge 0: the caller evicts by the figures; a measurement is repeated as soon as it has rested as long as it
   *   took
   * @param only the pods to measure; undefined: all
   * @throws `failed` when nothing can be measured here
   */
  async disk(
    maxAge: Millis,
    signal: AbortSignal,
    only?: ReadonlySet<PodUid>,
  ): Promise<ReadonlyMap<PodUid, PodDiskUsage>> {
    const wanted = [...this.#components.pods()].filter((pod) => counts(pod) && only?.has(pod.desired.uid) !== false);
    const isUrgent = maxAge === 0;
    const since = Math.min(this.#components.clock.monotonic() - maxAge, this.#roundAt ?? Number.POSITIVE_INFINITY);
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const due = wanted.filter((pod) => this.#isDue(pod.desired.uid, since, isUrgent));
      if (due.length === 0) break;
      await this.#task.join((stop) => this.#round(due, isUrgent, stop), signal);
    }
    return this.#of(wanted);
  }

  /** @returns the figures that are known by now */
  measured(): ReadonlyMap<PodUid, PodDiskUsage> {
    return this.#of([...this.#components.pods()]);
  }

  #of(pods: readonly AgentPod[]): ReadonlyMap<PodUid, PodDiskUsage> {
    return new Map(
      pods.flatMap(({ desired: { uid } }) => {
        const measured = this.#measured.get(uid);
        return measured === undefined ? [] : [[uid, measured.usage] as const];
      }),
    );
  }

  #isDue(uid: PodUid, since: number, isUrgent: boolean): boolean {
    const measured = this.#measured.get(uid);
    if (measured === undefined) return true;
    const { at, took, isExact } = measured;
    if (isUrgent && !isExact) return true;
    const factor = isUrgent ? URGENT_COST_FACTOR : COST_FACTOR;
    return at < since && this.#components.clock.monotonic() >= at + took * factor;
  }

  async #round(due: readonly AgentPod[], isUrgent: boolean, signal: AbortSignal): Promise<void> {
    const { clock, pods, writtenFolders } = this.#components;
    const written = isUrgent ? writtenFolders() : undefined;
    this.#roundAt = clock.monotonic();
    try {
      const known = new Set([...pods()].map((pod) => pod.desired.uid));
      for (const uid of this.#measured.keys()) if (!known.has(uid)) this.#measured.delete(uid);
      const layers = await this.#layers(due, signal);
      const alone = due.filter((pod) => this.#measured.get(pod.desired.uid)?.alone === true);
      const together = due.filter((pod) => !alone.includes(pod));
      for (let from = 0; from < together.length; from += MAX_TOGETHER)
        await this.#measure(together.slice(from, from + MAX_TOGETHER), { layers, written }, signal);
      for (const pod of alone) await this.#measure([pod], { layers, written }, signal);
    } finally {
      this.#roundAt = undefined;
    }
  }

  async #measure(group: readonly AgentPod[], { layers, written }: Writes, signal: AbortSignal): Promise<void> {
    const { clock } = this.#components;
    const at = clock.monotonic();
    const atMs = clock.wall().getTime();
    const folders = group.map((pod) => this.#foldersOf(pod, written));
    const paths = folders.flatMap((each) => [
      ...[each.volumes, each.logs, each.written].flatMap((all) => [...all.values()]),
      ...each.others,
    ]);
    const usage = await diskUsage(paths, signal);
    const took = clock.monotonic() - at;
    for (const each of folders)
      this.#measured.set(each.uid, {
        usage: { ...usageOf(each, usage, layers), atMs },
        at,
        took: took / group.length,
        alone: took > QUICK,
        isExact: written !== undefined,
      });
  }

  /** Containers of a runtime that does not answer count as if they had written nothing. */
  async #layers(pods: readonly AgentPod[], signal: AbortSignal): Promise<ReadonlyMap<string, WritableLayer>> {
    const layers = new Map<string, WritableLayer>();
    for (const adapter of this.#components.adapters) {
      if (adapter.writtenLayers === undefined || !pods.some(({ runtime }) => runtime === adapter.name)) continue;
      try {
        for (const [id, layer] of await adapter.writtenLayers(signal)) layers.set(id, layer);
        this.#silent.delete(adapter.name);
      } catch (error) {
        if (isCancelled(error)) throw error;
        const fields = { runtime: adapter.name, error: describeError(error) };
        if (!this.#silent.has(adapter.name))
          this.#components.log.warn("cannot tell what containers have written", fields);
        this.#silent.add(adapter.name);
      }
    }
    return layers;
  }

  #foldersOf(pod: AgentPod, written: Writes["written"]): Folders {
    const { paths } = this.#components;
    const { uid, pod: manifest } = pod.desired;
    const folder = (volume: Volume): readonly [string, string][] => {
      const type = volumeTypeOf(volume);
      if (type?.folder === undefined || type.diskUse?.(volume) === undefined) return [];
      return [[volume.name, paths.volume(uid, type.folder, volume.name)]];
    };
    const names = new Set(pod.containers.map(({ name }) => name));
    return {
      uid,
      pod,
      volumes: new Map((manifest.spec.volumes ?? []).flatMap(folder)),
      logs: new Map([...names].map((name) => [name, join(pod.logDirectory, name)])),
      written: new Map(
        pod.containers.flatMap(({ id }) => {
          const path = written?.get(id);
          return path === undefined ? [] : [[id, path] as const];
        }),
      ),
      others: [paths.etcHosts(uid)],
    };
  }
}

/** Figures of containers' own file systems. */
interface Writes {
  /** The runtime's last figures. */
  readonly layers: ReadonlyMap<string, WritableLayer>;
  /** Folders to measure now; undefined: the runtime's figures are new enough. */
  readonly written: ReadonlyMap<string, string> | undefined;
}

/** Ended pods are left out, because their volumes are removed soon. */
const counts = ({ status, containers }: AgentPod): boolean =>
  containers.some(({ state }) => state.kind === "running") ||
  (status?.phase !== "Succeeded" && status?.phase !== "Failed");

function usageOf(
  { pod, volumes, logs, written, others }: Folders,
  usage: ReadonlyMap<string, DiskUsage>,
  layers: ReadonlyMap<string, WritableLayer>,
): Omit<PodDiskUsage, "atMs"> {
  const at = (path: string): DiskUsage => usage.get(path) ?? NOTHING;
  const rootfs = new Map<string, DiskUsage>();
  for (const { id, name } of pod.containers) {
    const layer = usage.get(written.get(id) ?? "") ?? layers.get(id);
    if (layer === undefined) continue;
    const { bytes, inodes } = rootfs.get(name) ?? NOTHING;
    rootfs.set(name, { bytes: bytes + layer.bytes, inodes: inodes + layer.inodes });
  }
  return {
    rootfs,
    logs: new Map([...logs].map(([name, path]) => [name, at(path)])),
    volumes: new Map([...volumes].map(([name, path]) => [name, at(path)])),
    otherBytes: others.reduce((sum, path) => sum + at(path).bytes, 0),
  };
}

const NOTHING: DiskUsage = { bytes: 0, inodes: 0 };
