import { existsSync } from "node:fs";
import { join } from "node:path";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CsiNode } from "../csi/csi-node.ts";
import type { CsiVolume } from "../csi/csi-source.ts";
import type { CsiUsage } from "../csi/csi-stats.ts";
import { claimNameOf } from "./claimed-volume.ts";
import { ServiceAccountTokens } from "./service-account-tokens.ts";
import type { VolumeLocation, VolumeServices, VolumeType } from "./volume-type.ts";

/** Pauses between attempts to take volumes back whose driver is missing or refuses, as the kubelet's. */
const RETRY: BackoffPolicy = { first: seconds(1), max: seconds(120) };
const FOLDER = "csi";
/**
 * Rounds of taking back at once; a further one waits. Each ends within minutes, the limit of a driver's call, and waits
 * for volumes that no earlier round waits for.
 */
const MAX_ROUNDS = 64;

/** See `CsiState` of `agent/node/node-report.ts`. */
export interface CsiReportState {
  readonly drivers: string | undefined;
  readonly volumesInUse: readonly string[] | undefined;
  readonly expandedClaims: string | undefined;
}

/** In the terms of `MountedVolume` of `agent/stats/summary.ts`. */
export interface CsiVolumeUsage {
  readonly name: string;
  readonly usage: CsiUsage;
  /** As its driver reports it; missing: it reports none. */
  readonly isAbnormal?: boolean;
  readonly pvcRef?: { readonly name: string; readonly namespace: string };
}

type CsiModule = typeof import("../csi/csi-node.ts");

/**
 * Volumes of CSI drivers. The code is loaded when a driver registers, a pod has such a volume, or the disk shows that
 * there was one.
 */
export class CsiOnDemand implements Component {
  readonly name = "CSI volumes";
  readonly #services: VolumeServices;
  readonly #alarm: Alarm;
  #module: Promise<CsiModule> | undefined;
  readonly #node = new WatchSource<CsiNode | undefined>(undefined);
  readonly #state = new WatchSource<CsiReportState | undefined>(undefined);
  readonly #locations = new Map<PodUid, Map<string, VolumeLocation>>();
  /** Ends questions to drivers with the agent. */
  readonly #life = new AbortController();
  #failures = 0;
  #isSweeping = false;

  constructor(services: VolumeServices) {
    this.#services = services;
    this.#alarm = new Alarm(services.clock);
  }

  /** The drivers and volumes that the node reports. Undefined until something needs CSI. */
  get state(): ListenableWatch<CsiReportState | undefined> {
    return this.#state;
  }

  async load(): Promise<CsiNode> {
    const module = await this.#import();
    const { current } = this.#node;
    if (current !== undefined) return current;
    const tokens = new ServiceAccountTokens(this.#services);
    const node = module.makeCsiNode(
      {
        ...this.#services,
        tokenOf: (pod, volume, index, request, signal) => tokens.get(pod, volume, index, request, signal),
      },
      this.#services,
    );
    this.#node.set(node);
    return node;
  }

  /** @throws PicoletError of reason `FailedMount` */
  async publish(
    pod: DesiredPod,
    name: string,
    volumeOf: (module: CsiModule) => CsiVolume,
    signal: AbortSignal,
  ): Promise<VolumeLocation> {
    const node = await this.load();
    const volume = volumeOf(await this.#import());
    const location = await node.volumes.publish(pod, volume, signal);
    node.upkeep.add(pod, volume, name);
    const locations = this.#locations.get(pod.uid) ?? new Map<string, VolumeLocation>();
    this.#locations.set(pod.uid, locations.set(name, location));
    return location;
  }

  /** Usage of the pod's volumes of drivers, as these report it within some seconds. */
  async stats({ uid, pod }: DesiredPod): Promise<readonly CsiVolumeUsage[]> {
    const node = this.#node.current;
    if (node === undefined) return [];
    const { namespace } = pod.metadata;
    const asked = (pod.spec.volumes ?? []).map(async (volume): Promise<readonly CsiVolumeUsage[]> => {
      const claim = claimNameOf(pod, volume);
      const specName = volume.csi === undefined ? this.#volumeOf(namespace, claim) : volume.name;
      const figures = specName === undefined ? undefined : await node.volumes.stats(uid, specName, this.#life.signal);
      const { usage, condition } = figures ?? {};
      const pvcRef = claim === undefined ? {} : { pvcRef: { name: claim, namespace } };
      const health = condition === undefined ? {} : { isAbnormal: condition.isAbnormal };
      return usage === undefined ? [] : [{ name: volume.name, usage, ...health, ...pvcRef }];
    });
    return (await Promise.all(asked)).flat();
  }

  #volumeOf(namespace: string, claim: string | undefined): string | undefined {
    if (claim === undefined) return undefined;
    const spec = this.#services.objects.object(objectKey("PersistentVolumeClaim", namespace, claim))?.spec;
    const name = (spec as { readonly volumeName?: unknown } | undefined)?.volumeName;
    return typeof name === "string" ? name : undefined;
  }

  locate(uid: PodUid, name: string): VolumeLocation | undefined {
    return this.#locations.get(uid)?.get(name);
  }

  /** @throws `unavailable` until the drivers have confirmed that nothing of the pod's volumes is left */
  async forget(uid: PodUid, signal: AbortSignal): Promise<void> {
    this.#locations.delete(uid);
    this.#node.current?.upkeep.forget(uid);
    if (!this.#hasTraces && !existsSync(join(this.#services.paths.volumes(uid), `kubernetes.io~${FOLDER}`))) return;
    const { volumes } = await this.load();
    await volumes.unpublish(uid, signal);
  }

  /** Only asks for it: a pod that ends does not wait until a driver has unstaged another one's volume. */
  collect(): void {
    if (this.#hasTraces) this.#alarm.set(millis(0));
  }

  /** Never rejects. */
  async #collect(signal: AbortSignal): Promise<void> {
    try {
      if (!this.#hasTraces) return;
      const { volumes } = await this.load();
      if (await volumes.collect(signal)) this.#failures = 0;
      else this.#retry();
    } catch (error) {
      if (isCancelled(error)) return;
      this.#services.log.warn("cannot take back CSI volumes", { error: describeError(error) });
      this.#retry();
    }
  }

  /** Takes back volumes of pods that an earlier agent left, one round at a time. Never rejects. */
  async #sweep(signal: AbortSignal): Promise<void> {
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    try {
      await this.#services.sweepAgain?.(signal, () => this.collect());
    } catch (error) {
      if (!isCancelled(error)) throw error;
    } finally {
      this.#isSweeping = false;
    }
  }

  /** Takes back what an earlier agent or a missing driver left, whenever a driver may do it. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#hasTraces) await this.load();
    const follow = async (): Promise<void> => {
      for await (const node of this.#node.changes(signal))
        if (node !== undefined) await this.#followDrivers(node, signal);
    };
    const collect = async (): Promise<void> => {
      // A round that waits for a driver that hangs does not hold up the next one, which skips what is under way.
      const rounds = new Set<Promise<unknown>>();
      try {
        while (!signal.aborted) {
          await this.#alarm.ring(signal);
          if (rounds.size >= MAX_ROUNDS) await Promise.race(rounds);
          const work = Promise.all([this.#sweep(signal), this.#collect(signal)]);
          const round: Promise<unknown> = work.finally(() => rounds.delete(round));
          rounds.add(round);
        }
      } finally {
        await Promise.allSettled(rounds);
      }
    };
    try {
      await Promise.all([follow(), collect()]);
    } finally {
      this.#life.abort();
    }
  }

  async #followDrivers({ drivers, volumes, upkeep }: CsiNode, signal: AbortSignal): Promise<void> {
    const report = (): void =>
      this.#state.set({
        drivers: drivers.report(),
        volumesInUse: volumes.inUse.current,
        expandedClaims: upkeep.expandedClaims.current,
      });
    const ofDrivers = async (): Promise<void> => {
      for await (const _ of drivers.changed.changes(signal)) {
        report();
        this.#alarm.set(millis(0));
      }
    };
    const ofVolumes = async (): Promise<void> => {
      for await (const _ of volumes.inUse.changes(signal)) report();
    };
    const ofClaims = async (): Promise<void> => {
      for await (const _ of upkeep.expandedClaims.changes(signal)) report();
    };
    await Promise.all([ofDrivers(), ofVolumes(), ofClaims(), upkeep.run(signal)]);
  }

  #import(): Promise<CsiModule> {
    this.#module ??= import("../csi/csi-node.ts");
    return this.#module;
  }

  #retry(): void {
    this.#failures += 1;
    this.#alarm.set(backoffDelay(RETRY, this.#failures));
  }

  /** True while the disk may have volumes that are staged, or block volumes. */
  get #hasTraces(): boolean {
    return this.#node.current !== undefined || existsSync(this.#services.paths.csiPlugins);
  }
}

export const makeCsi = (services: VolumeServices): CsiOnDemand => new CsiOnDemand(services);

/** Inline volumes of CSI drivers, which live as long as their pod. Those of claims come through `ClaimVolumes`. */
export const csiVolume: VolumeType = {
  folder: FOLDER,
  isRefreshed: true,
  makeHandler: (services) => {
    const csi = services.once(makeCsi);
    return {
      task: csi,
      plan: (pod, volume) => async (signal) => {
        await csi.publish(pod, volume.name, ({ inlineVolume }) => inlineVolume(pod.pod, pod.uid, volume), signal);
      },
      locate: ({ uid }, { name }) => csi.locate(uid, name),
      forget: (uid, signal) => csi.forget(uid, signal),
      collect: async () => csi.collect(),
    };
  },
};
