import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { KilledContainers } from "@picolet/runtime-contract/killed-containers.ts";
import type {
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  ObservedSandbox,
  ContainerState as ObservedState,
  PodListing,
  SandboxLaunch,
  WritableLayer,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CriClient } from "../wire/cri-client.ts";
import {
  ContainerState,
  type ContainerStatus,
  NamespaceMode,
  podCalls,
  RuntimeService,
  relistCalls,
  SandboxState,
  SIGNAL_NUMBERS,
  writableLayersCall,
} from "../wire/cri-messages.ts";
import type { MessageOf } from "../wire/protobuf.ts";
import { observedResources } from "./container-update.ts";
import { ANNOTATION, LABEL } from "./labels.ts";
import type { Owned, OwnedIds } from "./owned-ids.ts";

const RELIST = relistCalls([LABEL.podUid]);
const OF_POD = podCalls([ANNOTATION.manifest, ANNOTATION.launch, ANNOTATION.containerHash]);

type SandboxItem = MessageOf<(typeof OF_POD)["listPodSandbox"]["response"]>["items"][number];
type Status = MessageOf<typeof ContainerStatus>;

export interface ReadySandbox {
  readonly id: string;
  /** The launch that it was made from. */
  readonly launch: SandboxLaunch;
}

export interface FoundContainer {
  readonly id: string;
  readonly state: number;
  readonly hash: string;
}

export interface PodInspectorComponents {
  readonly client: CriClient;
  readonly owned: OwnedIds;
  readonly killed?: KilledContainers | undefined;
}

/** Reads what the runtime has of our pods, and of no others. */
export class PodInspector {
  readonly #client: CriClient;
  readonly #owned: OwnedIds;
  readonly #killed: KilledContainers | undefined;
  readonly #owner: string;

  constructor(components: PodInspectorComponents, init: { readonly owner: string }) {
    this.#client = components.client;
    this.#owned = components.owned;
    this.#killed = components.killed;
    this.#owner = init.owner;
  }

  /** A pod's version is every id and state of it: nothing else of a sandbox or container changes without them. */
  async list(signal: AbortSignal): Promise<readonly PodListing[]> {
    const filter = { labelSelector: new Map([[LABEL.owner, this.#owner]]) };
    const [{ items }, { containers }] = await Promise.all([
      this.#client.call(RELIST.listPodSandbox, { filter }, signal),
      this.#client.call(RELIST.listContainers, { filter }, signal),
    ]);
    const pods = new Map<PodUid, string[]>();
    const owned = new Map<string, Owned>();
    const note = (
      kind: Owned["kind"],
      item: { readonly id: string; readonly state: number; readonly labels: ReadonlyMap<string, string> },
    ): void => {
      const uid = podUid(item.labels.get(LABEL.podUid) ?? "");
      const part = `${item.id}${item.state}`;
      const parts = pods.get(uid);
      if (parts === undefined) pods.set(uid, [part]);
      else parts.push(part);
      owned.set(item.id, this.#owned.get(item.id) ?? { kind, uid });
    };
    for (const item of items) note("sandbox", item);
    for (const item of containers) note("container", item);
    this.#owned.replace(owned);
    return [...pods].map(([uid, parts]) => ({ uid, version: parts.sort().join() }));
  }

  async inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod> {
    const filter = { labelSelector: this.#selectorOf(uid) };
    const [{ items }, listed] = await Promise.all([
      this.#client.call(OF_POD.listPodSandbox, { filter }, signal),
      this.#client.call(OF_POD.listContainers, { filter }, signal),
    ]);
    const sorted = items.toSorted(newestFirst);
    for (const { id } of sorted) this.#owned.add(id, { kind: "sandbox", uid });
    for (const { id } of listed.containers) this.#owned.add(id, { kind: "container", uid });
    const [sandboxes, containers] = await Promise.all([
      Promise.all(sorted.map((item) => this.#sandbox(item, signal))),
      Promise.all(listed.containers.map(({ id, podSandboxId }) => this.#container(id, podSandboxId, signal))),
    ]);
    return {
      uid,
      sandboxes: sandboxes.filter((each) => each !== undefined),
      containers: containers
        .filter((each) => each !== undefined)
        .sort((a, b) => b.createdAtMs - a.createdAtMs || b.attempt - a.attempt),
      manifest: manifestIn(sorted[0]?.annotations.get(ANNOTATION.manifest), uid),
    };
  }

  /** The size of each container's writable layer, by container id; containerd measures them every ten seconds. */
  async writtenLayers(signal: AbortSignal): Promise<ReadonlyMap<string, WritableLayer>> {
    const filter = { labelSelector: new Map([[LABEL.owner, this.#owner]]) };
    const { stats } = await this.#client.call(writableLayersCall, { filter }, signal);
    return new Map(
      stats.map(({ attributes, writableLayer }) => {
        const { usedBytes, inodesUsed } = writableLayer ?? {};
        const layer = { bytes: Number(usedBytes?.value ?? 0), inodes: Number(inodesUsed?.value ?? 0) };
        return [attributes?.id ?? "", layer];
      }),
    );
  }

  /** The newest one. */
  async readySandbox(uid: PodUid, signal: AbortSignal): Promise<ReadySandbox | undefined> {
    const filter = { labelSelector: this.#selectorOf(uid), state: { state: SandboxState.ready } };
    const { items } = await this.#client.call(OF_POD.listPodSandbox, { filter }, signal);
    const [newest] = items.toSorted(newestFirst);
    const launch = newest?.annotations.get(ANNOTATION.launch);
    return newest && launch !== undefined ? { id: newest.id, launch: JSON.parse(launch) as SandboxLaunch } : undefined;
  }

  async findContainer(
    uid: PodUid,
    name: string,
    attempt: number,
    signal: AbortSignal,
  ): Promise<FoundContainer | undefined> {
    const filter = { labelSelector: this.#selectorOf(uid) };
    const { containers } = await this.#client.call(OF_POD.listContainers, { filter }, signal);
    const found = containers.find(({ metadata }) => metadata?.name === name && metadata.attempt === attempt);
    if (found === undefined) return undefined;
    return { id: found.id, state: found.state, hash: found.annotations.get(ANNOTATION.containerHash) ?? "" };
  }

  /** @returns whether the runtime reports that a process of the container was killed because memory ran out */
  async isOomKilled(id: string, signal: AbortSignal): Promise<boolean> {
    return (await this.#containerStatus(id, signal))?.reason === "OOMKilled";
  }

  /** `undefined` when the runtime has no such container. */
  async containerState(id: string, signal: AbortSignal): Promise<number | undefined> {
    return (await this.#containerStatus(id, signal))?.state;
  }

  /** How the container's definition wants it ended, if it says so and the runtime does not know of it; else "". */
  async unknownStopSignal(id: string, signal: AbortSignal): Promise<string> {
    const status = await this.#containerStatus(id, signal);
    if (status?.state !== ContainerState.running) return "";
    const wanted = status.annotations.get(ANNOTATION.stopSignal) ?? "";
    return SIGNAL_NUMBERS.get(wanted) === status.stopSignal ? "" : wanted;
  }

  /** `undefined` when the runtime has no such sandbox. */
  async sandboxState(id: string, signal: AbortSignal): Promise<number | undefined> {
    return (await this.#sandboxStatus(id, signal))?.state;
  }

  #selectorOf(uid: PodUid): ReadonlyMap<string, string> {
    return new Map([
      [LABEL.owner, this.#owner],
      [LABEL.podUid, uid],
    ]);
  }

  /** Only a ready one is asked for its addresses: the network of the others is down. */
  async #sandbox(item: SandboxItem, signal: AbortSignal): Promise<ObservedSandbox | undefined> {
    const { id, createdAtMs } = item;
    const attempt = item.metadata?.attempt ?? 0;
    if (item.state !== SandboxState.ready) return { id, attempt, state: "notReady", createdAtMs, ips: [] };
    const status = await this.#sandboxStatus(id, signal);
    if (status === undefined) return undefined;
    const onHostNetwork = status.linux?.namespaces?.options?.network === NamespaceMode.node;
    const { ip = "", additionalIps = [] } = onHostNetwork ? {} : (status.network ?? {});
    const ips = [ip, ...additionalIps.map((each) => each.ip)].filter((each) => each !== "");
    return { id, attempt, state: status.state === SandboxState.ready ? "ready" : "notReady", createdAtMs, ips };
  }

  async #container(id: string, sandboxId: string, signal: AbortSignal): Promise<ObservedContainer | undefined> {
    const status = await this.#containerStatus(id, signal);
    if (status === undefined) return undefined;
    const { annotations } = status;
    return {
      id,
      name: status.metadata?.name ?? "",
      attempt: status.metadata?.attempt ?? 0,
      sandboxId,
      createdAtMs: status.createdAtMs,
      state: this.#withKill(id, observedState(status)),
      hash: annotations.get(ANNOTATION.containerHash) ?? "",
      backoff: millis(Number(annotations.get(ANNOTATION.backoffMs) ?? 0)),
      image: annotations.get(ANNOTATION.image) ?? status.image?.image ?? "",
      imageId: status.imageRef,
      logPath: status.logPath,
      ...(status.user?.linux === undefined ? {} : { user: status.user.linux }),
      ...observedResources(status),
    };
  }

  /** For a failed container the kernel's log may know more than the runtime. */
  #withKill(id: string, state: ObservedState): ObservedState {
    const isUnexplained = state.kind === "exited" && state.exitCode !== 0 && state.reason === "Error";
    return isUnexplained && this.#killed?.has(id) === true ? { ...state, reason: "OOMKilled" } : state;
  }

  async #sandboxStatus(podSandboxId: string, signal: AbortSignal) {
    try {
      return (await this.#client.call(RuntimeService.podSandboxStatus, { podSandboxId }, signal)).status;
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }

  async #containerStatus(containerId: string, signal: AbortSignal): Promise<Status | undefined> {
    try {
      return (await this.#client.call(RuntimeService.containerStatus, { containerId }, signal)).status;
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }
}

const newestFirst = (a: SandboxItem, b: SandboxItem): number =>
  (b.metadata?.attempt ?? 0) - (a.metadata?.attempt ?? 0) || b.createdAtMs - a.createdAtMs;

function observedState(status: Status): ObservedState {
  switch (status.state) {
    case ContainerState.created:
      return { kind: "created" };
    case ContainerState.running:
      return { kind: "running", startedAtMs: status.startedAtMs };
    case ContainerState.exited: {
      const { exitCode, message } = status;
      // One that could not be started has no start.
      const startedAtMs = status.startedAtMs > 0 ? status.startedAtMs : status.createdAtMs;
      // containerd takes the start's time when the start is over; a short program has ended by then.
      const finishedAtMs = Math.max(startedAtMs, status.finishedAtMs);
      const reason = status.reason !== "" ? status.reason : exitCode === 0 ? "Completed" : "Error";
      return { kind: "exited", startedAtMs, finishedAtMs, exitCode, reason, message };
    }
    default:
      return { kind: "unknown" };
  }
}

/**
 * @returns the pod in the annotation; `undefined` also for a text that another program wrote there: such a pod has no
 * manifest
 */
function manifestIn(text: string | undefined, uid: PodUid): DesiredPod | undefined {
  if (text === undefined) return undefined;
  try {
    const manifest = JSON.parse(text) as Partial<DesiredPod> | null;
    return manifest?.uid === uid && manifest.pod !== undefined ? (manifest as DesiredPod) : undefined;
  } catch {
    return undefined;
  }
}
