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
  /** Where containers' own writes lie, by container id, as far as that can be told. */
  readonly writtenFolders: () => ReadonlyMap<string, string>;
  readonly clock: Clock;
  readonly log: Log;
}

/** What measuring may cost: a pod whose folders take a second is measured every hundred seconds. */
const COST_FACTOR = 100;
/**
 * Who wants new figures chooses by them which pod has to go: old ones name the wrong pod. At least half of the time is
 * left to others.
 */
const URGENT_COST_FACTOR = 2;
/** Pods that are measured by one process. */
const MAX_TOGETHER = 64;
/** Pods that together take longer are measured one by one from then on, so that it shows which of them it is. */
const QUICK = millis(500);
/** What was just measured anew may still be older than somebody wants who came meanwhile. */
const MAX_ROUNDS = 2;

interface Measured {
  readonly usage: PodDiskUsage;
  /** When it was begun. */
  readonly at: MonotonicMs;
  /** Its share of how long that took. */
  readonly took: number;
  readonly alone: boolean;
  /** What containers have written was counted now, and not when their runtime did so last. */
  readonly isExact: boolean;
}

/** Where a pod has what counts for it. */
interface Folders {
  readonly uid: PodUid;
  readonly pod: AgentPod;
  readonly volumes: ReadonlyMap<string, string>;
  readonly logs: ReadonlyMap<string, string>;
  /** By container id. */
  readonly written: ReadonlyMap<string, string>;
  readonly others: readonly string[];
}

/** Measures what pods take on disk, when somebody wants to know it: one measurement for all who do. */
export class DiskUsageSampler {
  readonly #components: DiskUsageSamplerComponents;
  readonly #task = new SharedTask<void>("the look at what pods have on disk");
  /** Of pods that are on the node; those that have gone go with the next round. */
  readonly #measured = new Map<PodUid, Measured>();
  /** When the round under way began. */
  #roundAt: MonotonicMs | undefined;
  /** So that it is said once. */
  readonly #silent = new Set<string>();

  constructor(components: DiskUsageSamplerComponents) {
    this.#components = components;
  }

  /**
   * @param maxAge 0: somebody is in need, and a measurement is repeated as soon as it has rested as long as it took
   * @param only of these pods alone
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

  /** As far as they are known by now. */
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

  /** A runtime that does not answer is said once; its containers count as if they had written nothing. */
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

/** Of containers' own file systems. */
interface Writes {
  /** As their runtime has counted them last. */
  readonly layers: ReadonlyMap<string, WritableLayer>;
  /** Where they lie, to be counted now; undefined: the runtime's count will do. */
  readonly written: ReadonlyMap<string, string> | undefined;
}

/** What has ended takes its volumes with it soon. */
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
