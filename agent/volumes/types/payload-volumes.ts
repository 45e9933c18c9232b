import { chmod, chown, mkdir } from "node:fs/promises";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Volume } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Log, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import type { Sealer } from "../../core/store/sealer.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import { writeAtomically } from "../files/atomic-writer.ts";
import { makeNestedMountpoints } from "../files/nested-mountpoints.ts";
import type { PodPaths } from "../files/pod-paths.ts";
import { type EmptyDirs, makeEmptyDirs } from "./empty-dirs.ts";
import { ServiceAccountTokens } from "./service-account-tokens.ts";
import { setUpFailure } from "./set-up-failure.ts";
import { volumePayload } from "./volume-payload.ts";
import type { VolumeServices, VolumeType } from "./volume-type.ts";

export interface PayloadVolumesComponents {
  readonly objects: ClusterObjects;
  /** Fires when what `objects` has may have changed. */
  readonly objectsChanged: Watch<unknown>;
  readonly paths: PodPaths;
  readonly emptyDirs: EmptyDirs;
  /** Encrypts the tokens that are kept; undefined: they are plain. */
  readonly sealer?: Sealer | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly events: EventRecorder;
}

/** The kubelet's mode: the pod's folder keeps other users out, and containers mount the volume read-only. */
const FOLDER_MODE = 0o777;
/** Added with an `fsGroup`: new files belong to the group. */
const SET_GROUP_MODE = 0o2000;
const IS_ROOT = process.geteuid?.() === 0;
/** Joins changes of many objects to one refresh. */
const SETTLING = seconds(1);
/** The time until a failed volume is tried again. Others are refreshed when an object changes or a token gets old. */
const RETRY = seconds(60);

interface Projected {
  /** The pod of the last set-up. */
  pod: DesiredPod;
  /** By name. */
  readonly volumes: Map<string, Volume>;
  /** The last event about a volume that cannot be refreshed, by name. One each: a board may be offline for weeks. */
  readonly reported: Map<string, string>;
  /** The change under way. Changes of one pod's volumes run one after another. */
  working: Promise<unknown>;
}

/** Volumes made of what the API server has: configMap, secret, downwardAPI, projected. Changes reach running pods. */
export class PayloadVolumes implements Component {
  readonly name = "projected volumes";
  readonly #components: PayloadVolumesComponents;
  readonly #allocatable: Readonly<Record<string, string>>;
  readonly #tokens: ServiceAccountTokens;
  readonly #pods = new Map<PodUid, Projected>();
  readonly #alarm: Alarm;

  constructor(components: PayloadVolumesComponents, init: { readonly allocatable: Readonly<Record<string, string>> }) {
    this.#components = components;
    this.#allocatable = init.allocatable;
    this.#tokens = new ServiceAccountTokens(components);
    this.#alarm = new Alarm(components.clock);
  }

  /** @returns the folder of the volume's files */
  locate(pod: DesiredPod, volume: Volume): string {
    return this.#components.paths.volume(pod.uid, folderOf(volume), volume.name);
  }

  /** @throws what `volumePayload` throws; what was there before stays as it was then */
  async setUp(pod: DesiredPod, volume: Volume, signal: AbortSignal): Promise<void> {
    const entry: Projected = this.#pods.get(pod.uid) ?? {
      pod,
      volumes: new Map(),
      reported: new Map(),
      working: Promise.resolve(),
    };
    entry.pod = pod;
    this.#pods.set(pod.uid, entry);
    entry.volumes.set(volume.name, volume);
    await this.#serially(entry, () => this.#write(pod, volume, signal));
  }

  /** The pod's folder is about to go. */
  async forget(uid: PodUid): Promise<void> {
    const entry = this.#pods.get(uid);
    this.#pods.delete(uid);
    await entry?.working;
  }

  async run(signal: AbortSignal): Promise<void> {
    const follow = async (): Promise<void> => {
      for await (const _ of this.#components.objectsChanged.changes(signal)) {
        if (this.#pods.size > 0) this.#alarm.set(SETTLING);
      }
    };
    const refresh = async (): Promise<void> => {
      while (!signal.aborted) {
        await this.#alarm.ring(signal);
        for (const entry of [...this.#pods.values()]) await this.#refresh(entry, signal);
      }
    };
    await Promise.all([follow(), refresh()]);
  }

  async #refresh(entry: Projected, signal: AbortSignal): Promise<void> {
    for (const volume of entry.volumes.values()) {
      if (this.#pods.get(entry.pod.uid) !== entry) return;
      try {
        await this.#serially(entry, () => this.#write(entry.pod, volume, signal));
        entry.reported.delete(volume.name);
      } catch (error) {
        if (isCancelled(error)) throw error;
        // The pod keeps the old files, as in the kubelet.
        const { message } = setUpFailure(volume.name, error);
        if (entry.reported.get(volume.name) !== message) {
          warnOfPod(this.#components.events, entry.pod, "FailedMount", message);
        }
        entry.reported.set(volume.name, message);
        this.#alarm.set(RETRY);
      }
    }
  }

  /** Runs the works of a pod one after another. A failure does not affect later ones. */
  async #serially(entry: Projected, work: () => Promise<void>): Promise<void> {
    const mine = entry.working.then(work);
    entry.working = mine.catch(ignore("its caller gets the error; the next work does not depend on it"));
    await mine;
  }

  async #write(pod: DesiredPod, volume: Volume, signal: AbortSignal): Promise<void> {
    const tokens = await this.#tokensOf(pod, volume, signal);
    const { objects } = this.#components;
    const payload = volumePayload(volume, { pod, objects, tokens, allocatable: this.#allocatable });
    const path = this.locate(pod, volume);
    const group = IS_ROOT ? (pod.pod.spec.securityContext.fsGroup ?? -1) : -1;
    await mkdir(path, { recursive: true, mode: FOLDER_MODE });
    const { emptyDirs } = this.#components;
    if (volume.secret !== undefined || volume.projected !== undefined)
      await emptyDirs.keepOffDisk(pod.pod, path, signal);
    if (group >= 0) await chown(path, 0, group);
    await chmod(path, group >= 0 ? FOLDER_MODE | SET_GROUP_MODE : FOLDER_MODE);
    await makeNestedMountpoints(pod.pod, volume.name, path);
    try {
      await writeAtomically(path, payload, group);
    } catch (error) {
      if (errnoOf(error) !== "ENOSPC") throw error;
      const init = { cause: error, retryable: true };
      throw new PicoletError("resource_exhausted", "cannot write the volume's files", init);
    }
  }

  async #tokensOf(pod: DesiredPod, volume: Volume, signal: AbortSignal): Promise<ReadonlyMap<number, string>> {
    const tokens = new Map<number, string>();
    for (const [index, { serviceAccountToken: source }] of (volume.projected?.sources ?? []).entries()) {
      if (source === undefined) continue;
      const { token, refreshIn } = await this.#tokens.get(pod, volume.name, index, tokenSource(source), signal);
      tokens.set(index, token);
      this.#alarm.set(refreshIn);
    }
    return tokens;
  }
}

/** Kubernetes' default life of a token, for a volume that was written before its defaults were known. */
const DEFAULT_EXPIRATION_SECONDS = 3600;

const tokenSource = (source: { audience?: string | undefined; expirationSeconds?: number | undefined }) => ({
  audience: source.audience,
  expirationSeconds: source.expirationSeconds ?? DEFAULT_EXPIRATION_SECONDS,
});

const FOLDERS = {
  configMap: "configmap",
  secret: "secret",
  downwardAPI: "downward-api",
  projected: "projected",
} as const;

function folderOf(volume: Volume): string {
  if (volume.configMap !== undefined) return FOLDERS.configMap;
  if (volume.secret !== undefined) return FOLDERS.secret;
  return volume.downwardAPI === undefined ? FOLDERS.projected : FOLDERS.downwardAPI;
}

const makePayloadVolumes = (services: VolumeServices): PayloadVolumes =>
  new PayloadVolumes({ ...services, emptyDirs: services.once(makeEmptyDirs) }, services);

const payloadVolume = {
  isRefreshed: true,
  makeHandler: (services) => {
    const payloads = services.once(makePayloadVolumes);
    return {
      task: payloads,
      plan: (pod, volume) => (signal) => payloads.setUp(pod, volume, signal),
      locate: (pod, volume) => ({ path: payloads.locate(pod, volume), readOnly: true }),
      forget: (uid) => payloads.forget(uid),
    };
  },
} satisfies VolumeType;

/** A ConfigMap's files are on disk, which counts for the pod; those of the other types are in memory or small. */
export const configMap: VolumeType = { ...payloadVolume, folder: FOLDERS.configMap, diskUse: () => ({}) };
export const secret: VolumeType = { ...payloadVolume, folder: FOLDERS.secret };
export const downwardAPI: VolumeType = { ...payloadVolume, folder: FOLDERS.downwardAPI };
export const projected: VolumeType = { ...payloadVolume, folder: FOLDERS.projected };
