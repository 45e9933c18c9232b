/** The kubelet's device manager: which devices there are, which container has which, and what it gets with them. */
import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { quantityOf, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { ResourceStatus } from "@picolet/protocol/pod/pod-status.ts";
import type { Log, PodUid } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DeviceLaunch, DeviceResources } from "../core/pods/container-devices.ts";
import { type Hint, maskOf, type NumaMask, type ResourceHints } from "../topology/numa-hints.ts";
import { AdmissionFailure, type PlacementManager, type PlacementRound } from "../topology/placement-round.ts";
import { isPlainInitContainer, placedContainers, podNeeds } from "../topology/requested.ts";
import { type Allocation, DeviceAllocations } from "./device-allocations.ts";
import type { DeviceCheckpoint } from "./device-checkpoint.ts";
import { deviceHints } from "./device-hints.ts";
import { ContainerAllocateResponse, type DeviceAnswer, NO_ANSWER } from "./device-plugin-messages.ts";
import type { DeviceProvider, OfferedDevice } from "./device-provider.ts";

interface Resource {
  readonly provider: DeviceProvider | undefined;
  readonly devices: ReadonlyMap<string, OfferedDevice>;
  /** As its last provider needs it; undefined: this agent has seen none. */
  readonly needsPreStart?: boolean | undefined;
}

export interface DeviceManagerComponents {
  readonly log: Log;
  /** @returns whether this node still wants the pod, or still has something of it */
  readonly isKnown: (uid: PodUid) => boolean;
  /** On disk when it returns. */
  readonly keep: (checkpoint: DeviceCheckpoint) => void;
  /** Applies the edits of CDI devices, and leaves to the runtime what only it can apply. */
  readonly withCdi: (launch: DeviceLaunch, signal: AbortSignal) => Promise<DeviceLaunch>;
}

const NONE: Resource = { provider: undefined, devices: new Map() };

/**
 * Bounds the answers of one plugin for all containers that have its devices: 100 of them with 1 KB each. It has further
 * pods refused, because its answers would fill the checkpoint, in which other plugins have theirs.
 */
const MAX_ANSWERS_BYTES = 128 * KIBIBYTE;

/** Marks the refusal of a plugin, for which the pod fails. */
export const REFUSED = "UnexpectedAdmissionError";

export class DeviceManager implements PlacementManager {
  readonly #components: DeviceManagerComponents;
  readonly #resources = new Map<string, Resource>();
  readonly #allocations: DeviceAllocations;
  readonly #counts = new WatchSource<DeviceResources>({ capacity: {}, allocatable: {} });

  /** @param kept undefined: nothing was kept */
  constructor(components: DeviceManagerComponents, kept: DeviceCheckpoint | undefined) {
    this.#components = components;
    this.#allocations = new DeviceAllocations(kept?.allocations);
    // Their plugins are not back yet. A pod that asks for one must not start as if there were no such resource.
    for (const [name, ids] of kept?.registered ?? []) {
      const devices = ids.map((id) => ({ id, isHealthy: false, nodes: [] }));
      this.#resources.set(name, { provider: undefined, devices: new Map(devices.map((each) => [each.id, each])) });
    }
    this.#count();
  }

  /** Fires when devices come, go, or change their health, too. */
  get counts(): ListenableWatch<DeviceResources> {
    return this.#counts;
  }

  /** Resources without a provider now. */
  get awaited(): readonly string[] {
    return [...this.#resources].filter(([, { provider }]) => provider === undefined).map(([resource]) => resource);
  }

  /** @returns what an offer changes: `ids` are written down */
  compare(resource: string, provider: DeviceProvider, devices: readonly OfferedDevice[]): "nothing" | "states" | "ids" {
    const before = this.#resources.get(resource);
    const known = [...(before?.devices.values() ?? [])];
    const idsOf = (all: readonly OfferedDevice[]): string => [...new Set(all.map(({ id }) => id))].join("\n");
    if (before === undefined || idsOf(known) !== idsOf(devices)) return "ids";
    return before.provider === provider && isSameList(known, devices) ? "nothing" : "states";
  }

  offer(resource: string, provider: DeviceProvider, devices: readonly OfferedDevice[]): void {
    const change = this.compare(resource, provider, devices);
    // Some plugins repeat their list all the time.
    if (change === "nothing") return;
    this.#resources.set(resource, { provider, devices: new Map(devices.map((each) => [each.id, each])) });
    if (change === "ids") this.#keep();
    this.#count();
  }

  /** The provider is away: its devices are unhealthy until another one offers them. */
  withdraw(resource: string, provider: DeviceProvider): void {
    const own = this.#resources.get(resource);
    if (own?.provider !== provider) return;
    const devices = new Map([...own.devices].map(([id, each]) => [id, { ...each, isHealthy: false }]));
    this.#resources.set(resource, { provider: undefined, devices, needsPreStart: provider.needsPreStart });
    this.#count();
  }

  /** Forgets a resource whose provider stays away. */
  forget(resource: string): void {
    if (this.#resources.get(resource)?.provider !== undefined) return;
    this.#resources.set(resource, NONE);
    this.#keep();
    this.#count();
  }

  /** @returns whether a container of the pod asks for a resource of a provider */
  isAsked({ pod }: DesiredPod): boolean {
    return placedContainers(pod).some((container) => this.#requests(container).length > 0);
  }

  begin(desired: DesiredPod): PlacementRound {
    const { pod, uid } = desired;
    // A pod that went while no agent ran was not released.
    this.#allocations.drop((each) => each !== uid && !this.#components.isKnown(each));
    const hintsOf = (requests: readonly (readonly [string, number])[], container?: string): ResourceHints => {
      const found = requests.flatMap(([resource, count]): [string, readonly Hint[]][] => {
        const all = [...this.#of(resource).devices.values()];
        // An earlier agent may have admitted the pod.
        const own = this.#allocations.of(uid, container).filter((each) => each.resource === resource);
        const available = own.length > 0 ? own.flatMap(({ ids }) => ids) : this.#free(resource, desired);
        const hints = deviceHints(all, new Set(available), count);
        return hints === undefined ? [] : [[resource, hints]];
      });
      return new Map(found);
    };
    return {
      hints: (container) => hintsOf(this.#requests(container), container.name),
      podHints: () => {
        const names = new Set(placedContainers(pod).flatMap((each) => this.#requests(each).map(([name]) => name)));
        return hintsOf([...names].map((name) => [name, podNeeds(pod, (each) => requestOf(each, name))] as const));
      },
      allocate: (container, affinity) => {
        for (const [resource, count] of this.#requests(container))
          this.#choose(desired, container, { resource, count, affinity });
      },
    };
  }

  /** Writes down what was chosen in a round. */
  commit(): void {
    this.#keep();
  }

  release(uid: PodUid): void {
    if (this.#allocations.drop((each) => each === uid)) this.#keep();
  }

  /**
   * Has each chosen device allocated by its provider.
   * @throws `unavailable` while a provider is away; with the reason `REFUSED` what one refuses
   */
  async prepare(desired: DesiredPod, signal: AbortSignal): Promise<void> {
    for (const { container, resource, answer } of this.#allocations.of(desired.uid))
      if (answer === undefined) await this.#allocate(desired, container, resource, signal);
  }

  /** @throws as `prepare`, and `unavailable` while devices are not free that the container did not get before */
  async launch(desired: DesiredPod, container: string, signal: AbortSignal): Promise<DeviceLaunch | undefined> {
    const { uid } = desired;
    await this.#complete(desired, container, signal);
    const own = this.#allocations.of(uid, container);
    if (own.length === 0) return undefined;
    for (const { resource, ids } of own) {
      const { provider, needsPreStart } = this.#of(resource);
      // After a reboot the devices are not there before their plugin is.
      if (provider === undefined && needsPreStart !== false) throw away(resource);
      if (provider?.needsPreStart === true) await provider.preStart(ids, signal);
    }
    const launch = launchOf(own);
    return launch.cdiDevices.length === 0 ? launch : await this.#components.withCdi(launch, signal);
  }

  health(uid: PodUid, container: string): readonly ResourceStatus[] {
    return this.#allocations.of(uid, container).map(({ resource, ids }) => {
      const { provider, devices } = this.#of(resource);
      const healthOf = (id: string) =>
        devices.get(id)?.isHealthy === true ? ("Healthy" as const) : ("Unhealthy" as const);
      return {
        name: resource,
        resources: ids.map((resourceID) => ({
          resourceID,
          health: provider ? healthOf(resourceID) : ("Unknown" as const),
        })),
      };
    });
  }

  /** For those who show them: devices with their holders. */
  list(): readonly {
    readonly resource: string;
    readonly device: OfferedDevice;
    readonly holder: Allocation | undefined;
  }[] {
    return [...this.#resources].flatMap(([resource, { devices }]) =>
      [...devices.values()].map((device) => ({
        resource,
        device,
        holder: this.#allocations.all.find((each) => each.resource === resource && each.ids.includes(device.id)),
      })),
    );
  }

  #of(resource: string): Resource {
    return this.#resources.get(resource) ?? NONE;
  }

  #requests(container: Container): readonly (readonly [resource: string, count: number])[] {
    return [...this.#resources.keys()].flatMap((resource) => {
      const count = requestOf(container, resource);
      return count > 0 ? [[resource, count] as const] : [];
    });
  }

  /** Healthy devices that no container has but init containers of this pod, which end before those that follow. */
  #free(resource: string, { pod, uid }: DesiredPod): readonly string[] {
    const isReusable = (each: Allocation): boolean => each.uid === uid && isPlainInitContainer(pod, each.container);
    const used = this.#allocations.inUse(resource, isReusable);
    const ofInit = this.#allocations.of(uid).filter((each) => each.resource === resource && isReusable(each));
    const reusable = new Set(ofInit.flatMap(({ ids }) => ids));
    const healthy = [...this.#of(resource).devices.values()].filter(({ id, isHealthy }) => isHealthy && !used.has(id));
    // Those of init containers first, so that the pod takes as few as it can.
    return healthy.map(({ id }) => id).sort((a, b) => Number(reusable.has(b)) - Number(reusable.has(a)));
  }

  /** A plugin may have registered after the pod was admitted, and the checkpoint may be lost. */
  async #complete(desired: DesiredPod, name: string, signal: AbortSignal): Promise<void> {
    const { uid, pod } = desired;
    const container = placedContainers(pod).find((each) => each.name === name);
    if (container === undefined) return;
    const chosen = this.#requests(container).filter(([each]) => this.#allocations.get(uid, name, each) === undefined);
    try {
      for (const [resource, count] of chosen)
        this.#choose(desired, container, { resource, count, affinity: { nodes: undefined, preferred: false } });
    } catch (error) {
      if (!(error instanceof AdmissionFailure)) throw error;
      throw new PicoletError("unavailable", error.message, { reason: "CreateContainerConfigError", retryable: true });
    }
    for (const { resource, answer } of this.#allocations.of(uid, name))
      if (answer === undefined) await this.#allocate(desired, name, resource, signal);
  }

  /** @throws `AdmissionFailure` */
  #choose(
    desired: DesiredPod,
    container: Container,
    { resource, count, affinity }: { readonly resource: string; readonly count: number; readonly affinity: Hint },
  ): void {
    const { uid } = desired;
    if (this.#allocations.get(uid, container.name, resource) !== undefined) return;
    const free = this.#free(resource, desired);
    if (free.length < count) {
      const numbers = `Requested: ${count}, Available: ${free.length}`;
      throw new AdmissionFailure(`requested number of devices unavailable for ${resource}. ${numbers}`);
    }
    const { nodes } = affinity;
    const isNear = this.#nearness(resource, nodes);
    const ids = [...free].sort((a, b) => Number(isNear(b)) - Number(isNear(a))).slice(0, count);
    this.#allocations.put({ uid, container: container.name, resource, ids, nodes, answer: undefined });
  }

  #nearness(resource: string, nodes: NumaMask | undefined): (id: string) => boolean {
    const { devices } = this.#of(resource);
    return (id) => nodes !== undefined && (maskOf(devices.get(id)?.nodes ?? []) & nodes) !== 0n;
  }

  async #allocate(desired: DesiredPod, container: string, resource: string, signal: AbortSignal): Promise<void> {
    const { provider } = this.#of(resource);
    if (provider === undefined) throw away(resource);
    try {
      if (provider.hasPreference) await this.#prefer(desired, container, { resource, provider }, signal);
      const chosen = this.#allocations.get(desired.uid, container, resource);
      if (chosen === undefined) return;
      const answer = await provider.allocate(chosen.ids, signal);
      this.#checkAnswers(resource, answer);
      // The pod may have gone in the meantime.
      if (this.#allocations.get(desired.uid, container, resource) === undefined) return;
      this.#allocations.put({ ...chosen, answer });
      this.#keep();
    } catch (error) {
      if (isPicoletError(error, "cancelled") || isPicoletError(error, "unavailable")) throw error;
      const message = `Allocate failed due to ${describeError(error)}, which is unexpected`;
      throw new PicoletError("failed", message, { reason: REFUSED });
    }
  }

  #checkAnswers(resource: string, answer: DeviceAnswer): void {
    const kept = this.#allocations.all.filter((each) => each.resource === resource).map((each) => each.answer);
    const bytes = [...kept, answer].reduce((sum, each) => sum + (each === undefined ? 0 : answerBytes(each)), 0);
    if (bytes <= MAX_ANSWERS_BYTES) return;
    const sizes = `${bytes} bytes, more than ${MAX_ANSWERS_BYTES}`;
    throw new PicoletError("resource_exhausted", `the answers for the containers that have ${resource} take ${sizes}`);
  }

  /** The plugin chooses among devices that are near the container's NUMA nodes, as far as there are some. */
  async #prefer(
    desired: DesiredPod,
    container: string,
    { resource, provider }: { readonly resource: string; readonly provider: DeviceProvider },
    signal: AbortSignal,
  ): Promise<void> {
    const { uid, pod } = desired;
    const before = this.#allocations.get(uid, container, resource);
    if (before === undefined) return;
    const size = before.ids.length;
    const shared = this.#allocations.of(uid).filter((each) => each.resource === resource && each !== before);
    const reusable = new Set(
      shared.filter((each) => isPlainInitContainer(pod, each.container)).flatMap(({ ids }) => ids),
    );
    const reused = before.ids.filter((id) => reusable.has(id));
    const available = (): readonly string[] => [...new Set([...before.ids, ...this.#free(resource, desired)])];
    const isNear = this.#nearness(resource, before.nodes);
    const near = available().filter((id) => !reusable.has(id) && isNear(id));
    const isChoice = size - reused.length < near.length;
    const mustInclude = isChoice ? reused : [...reused, ...near];
    if (mustInclude.length >= size) return;
    const offered = isChoice ? [...reused, ...near] : available();
    const preferred = await provider.preferred(offered, mustInclude, size, signal);
    const [free, known] = [new Set(available()), new Set(offered)];
    const possible = new Set([...mustInclude, ...preferred.filter((id) => known.has(id)), ...before.ids]);
    const ids = [...possible].filter((id) => free.has(id)).slice(0, size);
    if (ids.length === size) this.#allocations.put({ ...before, ids });
  }

  #count(): void {
    const entries = [...this.#resources].map(([name, { devices }]) => {
      const healthy = [...devices.values()].filter(({ isHealthy }) => isHealthy).length;
      return [name, String(devices.size), String(healthy)] as const;
    });
    this.#counts.set({
      capacity: Object.fromEntries(entries.map(([name, all]) => [name, all])),
      allocatable: Object.fromEntries(entries.map(([name, , healthy]) => [name, healthy])),
    });
  }

  #keep(): void {
    const registered = [...this.#resources].filter(([, { devices }]) => devices.size > 0);
    this.#components.keep({
      allocations: this.#allocations.all,
      registered: new Map(registered.map(([name, { devices }]) => [name, [...devices.keys()]])),
    });
  }
}

const away = (resource: string): PicoletError =>
  new PicoletError("unavailable", `the device plugin of ${resource} is away`, {
    reason: "DevicePluginAway",
    retryable: true,
  });

const answerBytes = (answer: DeviceAnswer): number => ContainerAllocateResponse.encode(answer).length;

const isSameList = (before: readonly OfferedDevice[], now: readonly OfferedDevice[]): boolean =>
  JSON.stringify(before) === JSON.stringify(now);

/** Keeps the first of mounts, or of devices, at one path. */
const distinct = <T extends { readonly containerPath: string }>(all: readonly T[]): readonly T[] =>
  all.filter(({ containerPath }, index) => all.findIndex((each) => each.containerPath === containerPath) === index);

function requestOf({ resources }: Container, resource: string): number {
  const text = resources.limits?.[resource] ?? resources.requests?.[resource];
  return text === undefined ? 0 : Number(quantityValue(quantityOf(text)));
}

/** Joins the answers for one container. Of two for one variable or annotation, the later one counts. */
function launchOf(allocations: readonly Allocation[]): DeviceLaunch {
  const answers = allocations.map(({ answer }) => answer ?? NO_ANSWER);
  const env = new Map(answers.flatMap(({ envs }) => [...envs]));
  return {
    env: [...env].map(([name, value]) => ({ name, value })),
    mounts: distinct(answers.flatMap(({ mounts }) => mounts)).map(({ containerPath, hostPath, readOnly }) => ({
      ...{ containerPath, hostPath, readOnly },
      propagation: "private" as const,
    })),
    devices: distinct(answers.flatMap(({ devices }) => devices)).map(({ containerPath, hostPath, permissions }) => {
      return { containerPath, hostPath, readOnly: permissions === "r", permissions };
    }),
    annotations: Object.fromEntries(answers.flatMap(({ annotations }) => [...annotations])),
    cdiDevices: answers.flatMap(({ cdiDevices }) => cdiDevices.map(({ name }) => name)),
  };
}
