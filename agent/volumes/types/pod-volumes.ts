import type { Component } from "@picolet/protocol/async/component.ts";
import { isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type CsiOnDemand, makeCsi } from "./csi-on-demand.ts";
import { MountFailures } from "./mount-failures.ts";
import { setUpFailure } from "./set-up-failure.ts";
import type {
  VolumeComponents,
  VolumeHandler,
  VolumeInit,
  VolumeLocation,
  VolumeServices,
  VolumeSetUp,
  VolumeUse,
} from "./volume-type.ts";
import { VOLUME_TYPES, volumeKind, volumeTypeOf } from "./volume-types.ts";

/** The volumes of pods as folders, files and devices of this node. `VOLUME_TYPES` has what each type does. */
export class PodVolumes {
  readonly #components: VolumeComponents;
  /** By the volume's kind. */
  readonly #handlers: ReadonlyMap<string, VolumeHandler>;
  readonly #failures: MountFailures;
  readonly csi: CsiOnDemand;

  constructor(components: VolumeComponents, init: VolumeInit) {
    this.#components = components;
    this.#failures = new MountFailures(components);
    const services = servicesOf(components, init);
    this.csi = services.once(makeCsi);
    this.#handlers = new Map(Object.entries(VOLUME_TYPES).map(([kind, type]) => [kind, type.makeHandler(services)]));
  }

  /** Tasks of the volume types, which run with the agent. */
  get tasks(): readonly Component[] {
    return [...new Set([...this.#handlers.values()].flatMap(({ task }) => (task === undefined ? [] : [task])))];
  }

  /**
   * Makes every volume that a container mounts; others are left alone, as the kubelet does. Volumes made of images come
   * with the images.
   * @throws PicoletError @see MountFailures
   */
  async setUp(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const planned = new Map<Volume, VolumeSetUp>();
    const unprocessed = new Map<string, PicoletError>();
    for (const { volume, use } of usedVolumes(pod.pod)) {
      try {
        planned.set(volume, this.#plan(pod, volume, use));
      } catch (error) {
        if (!(error instanceof PicoletError)) throw error;
        unprocessed.set(volume.name, error);
      }
    }
    const failures = new Map<string, PicoletError>();
    for (const [volume, setUp] of planned) {
      try {
        await setUp(signal);
        await this.#share(pod, volume, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        failures.set(volume.name, setUpFailure(volume.name, error));
      }
    }
    const failure = this.#failures.report(pod.uid, failures, unprocessed);
    if (failure !== undefined) throw failure;
  }

  /** Ends the work for the pod, known or not; its folders are removed next. */
  async forget(uid: PodUid, signal: AbortSignal): Promise<void> {
    for (const handler of this.#handlers.values()) await handler.forget?.(uid, signal);
    this.#failures.forget(uid);
  }

  /** Removes what no pod uses any more, once the folders of pods are gone. */
  async collect(signal: AbortSignal): Promise<void> {
    for (const handler of new Set(this.#handlers.values())) await handler.collect?.(signal);
  }

  /** @returns undefined when the pod has no volume of that name that was set up, or it is a device */
  locate(pod: DesiredPod, name: string): VolumeLocation | undefined {
    const location = this.#locate(pod, name);
    return location?.isDevice === true ? undefined : location;
  }

  /** The device that a volume of mode Block is. */
  device(pod: DesiredPod, name: string): VolumeLocation | undefined {
    const location = this.#locate(pod, name);
    return location?.isDevice === true ? location : undefined;
  }

  /** Groups of the pod's persistent volumes that its own list does not have, sorted. */
  extraGroups(pod: DesiredPod): readonly number[] {
    const { supplementalGroups = [] } = pod.pod.spec.securityContext;
    const groups = (pod.pod.spec.volumes ?? []).flatMap(({ name }) => this.#locate(pod, name)?.group ?? []);
    return [...new Set(groups)].filter((each) => !supplementalGroups.includes(each)).sort((a, b) => a - b);
  }

  #locate(pod: DesiredPod, name: string): VolumeLocation | undefined {
    const volume = pod.pod.spec.volumes?.find((each) => each.name === name);
    return volume === undefined ? undefined : this.#handlers.get(volumeKind(volume))?.locate(pod, volume);
  }

  #plan(pod: DesiredPod, volume: Volume, use: VolumeUse): VolumeSetUp {
    const kind = volumeKind(volume);
    const handler = this.#handlers.get(kind);
    if (handler !== undefined) return handler.plan(pod, volume, use);
    const failure = new PicoletError("unavailable", missingDriver(kind), { retryable: true });
    return () => Promise.reject(failure);
  }

  /**
   * A container that passes mounts on, or wants to see new ones, needs a mount with peers. The node's own paths are the
   * node's.
   */
  async #share(pod: DesiredPod, volume: Volume, signal: AbortSignal): Promise<void> {
    const { mounter, paths } = this.#components;
    const propagates = containersOf(pod.pod).some((container) =>
      container.volumeMounts?.some(
        ({ name, mountPropagation = "None" }) => name === volume.name && mountPropagation !== "None",
      ),
    );
    if (!propagates || !mounter.allowed || volumeTypeOf(volume)?.isMadeWithImage === true) return;
    const location = this.locate(pod, volume.name);
    if (location?.path.startsWith(`${paths.pod(pod.uid)}/`) !== true) return;
    await mounter.share(location.path, signal);
  }
}

interface UsedVolume {
  readonly volume: Volume;
  readonly use: VolumeUse;
}

function usedVolumes(pod: Pod): readonly UsedVolume[] {
  const mounted = new Set<string>();
  const devices = new Set<string>();
  for (const container of containersOf(pod)) {
    for (const { name } of container.volumeMounts ?? []) mounted.add(name);
    for (const { name } of container.volumeDevices ?? []) devices.add(name);
  }
  return (pod.spec.volumes ?? [])
    .map((volume) => ({ volume, use: { mounted: mounted.has(volume.name), asDevice: devices.has(volume.name) } }))
    .filter(({ use }) => use.mounted || use.asDevice);
}

const containersOf = ({ spec }: Pod): readonly Pick<Container, "volumeMounts" | "volumeDevices">[] => [
  ...(spec.initContainers ?? []),
  ...spec.containers,
  ...(spec.ephemeralContainers ?? []),
];

function servicesOf(components: VolumeComponents, init: VolumeInit): VolumeServices {
  const made = new Map<unknown, unknown>();
  const services: VolumeServices = {
    ...components,
    ...init,
    once<T>(make: (services: VolumeServices) => T): T {
      if (!made.has(make)) made.set(make, make(services));
      return made.get(make) as T;
    },
  };
  return services;
}

/** Retryable, because a driver may be installed. */
const missingDriver = (kind: string): string =>
  `no volume plugin matched: this node has none for volumes of type ${kind}`;
