/**
 * The component adapter for a node that may never run a component: it is loaded with the first pod or image that
 * concerns it, or with what an earlier agent has left, and gets all calls from then on. Not loaded it saves 0.5 MiB.
 */
import { type Dirent, existsSync, readdirSync } from "node:fs";
import { dirname } from "node:path";
import { aborted } from "@picolet/protocol/async/abort.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type {
  Action,
  ContainerIsolation,
  ContainerLaunch,
  DesiredPod,
  ExecResult,
  ImageService,
  ObservedPod,
  PodListing,
  RuntimeAdapter,
  RuntimeStatus,
  RuntimeStream,
  SharedUsage,
  StreamRequest,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { missingProgram, type WasmAdapterComponents, type WasmAdapterInit } from "./adapter-settings.ts";
import { componentRuntimeStatus } from "./component-runtime-status.ts";
import type { WasmAdapter } from "./wasm-adapter.ts";

export class WasmOnDemand implements RuntimeAdapter {
  readonly name = "wasm";
  readonly boundsLogs = true;
  readonly images: ImageService;
  readonly #components: WasmAdapterComponents;
  readonly #init: WasmAdapterInit;
  readonly #loaded = Promise.withResolvers<WasmAdapter>();
  #loading: Promise<WasmAdapter> | undefined;
  #adapter: WasmAdapter | undefined;
  /** `undefined`: not checked yet. From then on only this adapter writes to that folder. */
  #isUnused: boolean | undefined;

  constructor(components: WasmAdapterComponents, init: WasmAdapterInit) {
    this.#components = components;
    this.#init = init;
    this.images = this.#makeImages();
  }

  async status(signal: AbortSignal): Promise<RuntimeStatus> {
    return this.#idle ? componentRuntimeStatus(missingProgram(this.#init)) : (await this.#load()).status(signal);
  }

  async list(signal: AbortSignal): Promise<readonly PodListing[]> {
    return this.#idle ? [] : (await this.#load()).list(signal);
  }

  async inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod> {
    if (this.#idle) return { uid, sandboxes: [], containers: [], manifest: undefined };
    return (await this.#load()).inspect(uid, signal);
  }

  async apply(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    await (await this.#load()).apply(pod, action, signal);
  }

  async check(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    await (await this.#load()).check(pod, launch, signal);
  }

  async refusal(pod: Pod): Promise<string | undefined> {
    return (await this.#load()).refusal(pod);
  }

  async *hints(signal: AbortSignal): AsyncGenerator<PodUid> {
    const adapter = await Promise.race([this.#loaded.promise, aborted(signal)]);
    if (adapter !== undefined) yield* adapter.hints(signal);
  }

  isolationLevel(): string | undefined {
    return this.#adapter?.isolationLevel();
  }

  async isolation(uid: PodUid, signal: AbortSignal): Promise<readonly ContainerIsolation[]> {
    return this.#idle ? [] : (await this.#load()).isolation(uid, signal);
  }

  async sharedUsage(signal: AbortSignal): Promise<ReadonlyMap<string, SharedUsage>> {
    return this.#idle ? new Map() : (await this.#load()).sharedUsage(signal);
  }

  shed(): void {
    this.#adapter?.shed();
  }

  async reopenLog(uid: PodUid, containerId: string, signal: AbortSignal): Promise<void> {
    await (await this.#load()).reopenLog(uid, containerId, signal);
  }

  async stream(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream> {
    return (await this.#load()).stream(uid, request, signal);
  }

  async execSync(
    _uid: PodUid,
    _containerId: string,
    _command: readonly string[],
    _timeout: Millis,
    _signal: AbortSignal,
  ): Promise<ExecResult> {
    return (await this.#load()).execSync();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#loading)?.[Symbol.asyncDispose]();
  }

  /** Nothing of components is on this node. */
  get #idle(): boolean {
    if (this.#loading !== undefined) return false;
    this.#isUnused ??= isUnused(this.#init);
    return this.#isUnused;
  }

  #load(): Promise<WasmAdapter> {
    this.#loading ??= import("./wasm-adapter.ts").then(
      ({ WasmAdapter }) => {
        this.#adapter = new WasmAdapter(this.#components, this.#init);
        this.#loaded.resolve(this.#adapter);
        return this.#adapter;
      },
      (error: unknown) => {
        // The next call tries again.
        this.#loading = undefined;
        throw error;
      },
    );
    return this.#loading;
  }

  #makeImages(): ImageService {
    const images = async (): Promise<WasmAdapter["images"]> => (await this.#load()).images;
    const { rootDirectory } = this.#init;
    const nothing = () => {
      // The folder is made with the first image. Where it is a mount of its own, it is there before.
      const mountPoint = existsSync(rootDirectory) ? rootDirectory : dirname(rootDirectory);
      return { mountPoint, usedBytes: 0, inodesUsed: 0 };
    };
    return {
      list: async (signal) => (this.#idle ? [] : (await images()).list(signal)),
      holdings: async (signal) =>
        this.#idle ? { used: new Set(), derivedBytes: new Map() } : (await images()).holdings(signal),
      filesystems: async (signal) =>
        this.#idle ? { images: nothing(), containers: nothing() } : (await images()).filesystems(signal),
      status: async (reference, signal) => (await images()).status(reference, signal),
      pull: async (reference, options, signal) => (await images()).pull(reference, options, signal),
      platforms: async (reference, options, signal) => (await images()).platforms(reference, options, signal),
      signatures: async (reference, options, signal) => (await images()).signatures(reference, options, signal),
      progress: async (reference) => (await images()).progress(reference),
      remove: async (id, signal) => (await images()).remove(id, signal),
      import: async (path, name, signal) => (await images()).import(path, name, signal),
    };
  }
}

/**
 * No image, nothing of an agent that was killed meanwhile, no pod, and no process that waits for one. Its folders may
 * be there: an adapter that was loaded leaves them.
 */
function isUnused({ rootDirectory, stateDirectory, caFile }: WasmAdapterInit): boolean {
  // With configured authorities the adapter starts with the agent, to report whether they can be used.
  if (caFile !== undefined) return false;
  try {
    const kept = entriesOf(rootDirectory).flatMap((entry) =>
      entry.isDirectory() ? within(rootDirectory, entry) : entry,
    );
    const ofPods = ["pods", "exits", "dense", "spares"].flatMap((name) => entriesOf(`${stateDirectory}/${name}`));
    return kept.length === 0 && ofPods.length === 0;
  } catch {
    // The adapter finds out, and says it.
    return false;
  }
}

const within = (directory: string, { name }: Dirent): Dirent[] => entriesOf(`${directory}/${name}`);

/** None where there is no such folder. @throws what reading it throws */
function entriesOf(directory: string): Dirent[] {
  try {
    return readdirSync(directory, { withFileTypes: true });
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return [];
    throw error;
  }
}
