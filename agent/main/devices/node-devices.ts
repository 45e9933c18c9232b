/** The node's devices: what they take is loaded with the first device plugin, or where one was here before. */
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { ResourceStatus } from "@picolet/protocol/pod/pod-status.ts";
import { type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { Cpuset, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type {
  ClaimingContainer,
  ContainerDevices,
  DeviceLaunch,
  DeviceResources,
} from "../../core/pods/container-devices.ts";
import type { ContainerPlacement } from "../../core/pods/container-placement.ts";
import type { PodEnder, PodMover, Rejection } from "../../core/pods/pod-admission.ts";
import type { AnnotatedDevices } from "../../devices/annotated-devices.ts";
import type { GivenDevices } from "../../devices/given-devices.ts";
import { DEVICES_ANNOTATION } from "../../plan/admission/devices-annotation.ts";
import type { PluginHandler } from "../../plugins/plugin-handler.ts";
import { PodEvents } from "../../workers/ports/pod-events.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { LoadedDevices } from "./load-devices.ts";

/** The kubelet's names, in its root directory. */
const FOLDER = "device-plugins";
const SOCKET = "kubelet.sock";
const CHECKPOINT = "kubelet_internal_checkpoint";
/** Ours, beside them. */
const GIVEN_DEVICES = "picolet_given_devices";
const NO_DEVICES: DeviceResources = { capacity: {}, allocatable: {} };
const NOTHING: DeviceLaunch = { env: [], mounts: [], devices: [], annotations: {}, cdiDevices: [] };

export interface NodeDevicesParts {
  /** Undefined: no pod gets CPUs or memory for itself alone. */
  readonly placement: () => ContainerPlacement | undefined;
  readonly workers: () => PodEnder & PodMover;
  readonly pods: () => readonly AgentPod[];
  /** True when the runtime applies CDI devices itself. */
  readonly canRuntimeApplyCdi: (signal: AbortSignal) => Promise<boolean>;
}

/** Also the placement of containers, because CPUs, memory and devices of a pod are chosen together. */
export class NodeDevices implements Component, ContainerPlacement, ContainerDevices {
  readonly name = "devices";
  readonly #base: AgentBase;
  readonly #parts: NodeDevicesParts;
  readonly #folder: string;
  readonly #changes = new WatchSource<DeviceResources>(NO_DEVICES);
  readonly #life = new AbortController();
  #loaded: LoadedDevices | undefined;
  #loading: Promise<LoadedDevices> | undefined;
  /** Undefined: the configuration allows none. */
  #annotated: AnnotatedDevices | undefined;

  constructor(base: AgentBase, parts: NodeDevicesParts) {
    this.#base = base;
    this.#parts = parts;
    this.#folder = join(base.init.args.rootDir, FOLDER);
  }

  /** Before the first pod: containers that run have devices already. */
  async open(): Promise<void> {
    const { devices, allowedDevices } = this.#base.init.configuration;
    if (allowedDevices.length > 0) this.#annotated = await this.#follow();
    if (devices.length > 0) await (await this.#load()).rules.scan();
    else if (existsSync(join(this.#folder, CHECKPOINT))) await this.#load();
  }

  /** Changes with each device that comes, goes, or changes its health. */
  get changes(): ListenableWatch<DeviceResources> {
    return this.#changes;
  }

  /** The handler of plugins that register through the plugin watcher. */
  async plugins(): Promise<PluginHandler> {
    return (await this.#load()).plugins;
  }

  /** All devices, each with the container that has it. */
  list(): ReturnType<LoadedDevices["manager"]["list"]> {
    return this.#loaded?.manager.list() ?? [];
  }

  /** Undefined: the pod asks for no device that is here. */
  managerFor(pod: DesiredPod): LoadedDevices["manager"] | undefined {
    return this.#loaded?.manager.isAsked(pod) === true ? this.#loaded.manager : undefined;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log } = this.#base.ports;
    const path = join(this.#folder, SOCKET);
    const server = createServer((socket) => this.#serve(socket));
    server.on("error", (error) => log.warn("device plugins cannot register", { error: describeError(error) }));
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o750 });
      // As a kubelet: some plugins register again when their own socket is gone.
      for (const entry of readdirSync(this.#folder, { withFileTypes: true }))
        if (entry.isSocket()) rmSync(join(this.#folder, entry.name), { force: true });
      server.listen(path, () => chmodSync(path, 0o660));
    } catch (error) {
      log.warn("device plugins cannot register", { error: describeError(error) });
    }
    try {
      const hasRules = this.#base.init.configuration.devices.length > 0;
      const rules = hasRules ? (await this.#load()).rules.run(signal) : aborted(signal);
      await Promise.all([rules, this.#annotated?.run(signal)]);
    } finally {
      server.close();
      await this[Symbol.asyncDispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await (await this.#loading)?.[Symbol.asyncDispose]();
  }

  admit(pod: DesiredPod): Rejection | undefined {
    const refusal = this.#refusal(pod);
    if (refusal !== undefined) return { reason: "DevicesForbidden", message: refusal };
    const placement = this.#parts.placement();
    const manager = this.managerFor(pod);
    if (manager === undefined) return placement?.admit(pod);
    const rejection = placement === undefined ? this.#loaded?.admit(pod) : placement.admit(pod);
    if (rejection === undefined) manager.commit();
    else manager.release(pod.uid);
    return rejection;
  }

  async prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    if (this.#loaded === undefined) return;
    try {
      await this.#loaded.manager.prepare(pod, signal);
    } catch (error) {
      if (isPicoletError(error) && error.reason === this.#loaded.refused) this.#end(pod, describeError(error));
      throw error;
    }
  }

  async launch(
    pod: DesiredPod,
    { name, cdiDevices }: ClaimingContainer,
    signal: AbortSignal,
  ): Promise<DeviceLaunch | undefined> {
    const named = this.#annotated?.launch(pod) ?? [];
    const granted = await this.#loaded?.manager.launch(pod, name, signal);
    const own =
      named.length === 0 ? granted : { ...NOTHING, ...granted, devices: [...(granted?.devices ?? []), ...named] };
    if (cdiDevices.length === 0) return own;
    const launch = own ?? NOTHING;
    const names = [...new Set([...launch.cdiDevices, ...cdiDevices])];
    return await (await this.#load()).withCdi({ ...launch, cdiDevices: names }, signal);
  }

  health(uid: PodUid, container: string): readonly ResourceStatus[] {
    return this.#loaded?.manager.health(uid, container) ?? [];
  }

  release(uid: PodUid): void {
    this.#parts.placement()?.release(uid);
    this.#loaded?.manager.release(uid);
  }

  cpuset(pod: DesiredPod, container: string): Cpuset | undefined {
    return this.#parts.placement()?.cpuset(pod, container);
  }

  starting(pod: DesiredPod, container: string): void {
    this.#parts.placement()?.starting(pod, container);
  }

  hasExclusiveCpus(uid: PodUid): boolean {
    return this.#parts.placement()?.hasExclusiveCpus(uid) === true;
  }

  refusesResize(requested: Pod, changes: (resource: "cpu" | "memory") => boolean): string | undefined {
    return this.#parts.placement()?.refusesResize(requested, changes);
  }

  #refusal(pod: DesiredPod): string | undefined {
    if (this.#annotated !== undefined) return this.#annotated.refusal(pod);
    if ((pod.pod.metadata.annotations?.[DEVICES_ANNOTATION] ?? "").trim() === "") return undefined;
    return `the annotation ${DEVICES_ANNOTATION} names devices, and this node allows none: add them to allowedDevices of its configuration`;
  }

  async #follow(): Promise<AnnotatedDevices> {
    const { AnnotatedDevices } = await import("../../devices/annotated-devices.ts");
    const { readGivenDevices, writeGivenDevices } = await import("../../devices/given-devices.ts");
    const { ports, store, init } = this.#base;
    const path = join(this.#folder, GIVEN_DEVICES);
    const kept = (): GivenDevices => {
      try {
        const { pods, removed } = store.desired.desired.current;
        const all = Object.entries(readGivenDevices(path) ?? {});
        return Object.fromEntries(all.filter(([uid]) => pods.has(podUid(uid)) || removed.has(podUid(uid))));
      } catch (error) {
        ports.log.warn("cannot use what was kept of devices", { error: describeError(error) });
        return {};
      }
    };
    const keep = (given: GivenDevices): void => {
      try {
        writeGivenDevices(path, given);
      } catch (error) {
        ports.log.warn("cannot keep the devices of containers", { error: describeError(error) });
      }
    };
    const events = new PodEvents(store.events);
    const annotated = new AnnotatedDevices(
      {
        clock: ports.clock,
        pods: () =>
          this.#parts.pods().map(({ desired, containers }) => {
            return { desired, isRunning: containers.some(({ state }) => state.kind === "running") };
          }),
        event: (pod, type, reason, message) => events.record(pod, type, reason, message),
        keep,
        restart: (uid) => {
          const left = this.#parts.workers().leave(uid, { comesBack: true }, this.#life.signal);
          left.catch(ignore("the agent stops; the next one compares again"));
        },
      },
      { allowed: init.configuration.allowedDevices, root: "", kept: kept() },
    );
    annotated.changes.listen(() => this.#changes.set({ ...this.#changes.current }), this.#life.signal);
    return annotated;
  }

  /** As a kubelet, which allocates before it admits: a refusal fails the pod. Its worker, which asks, must not wait. */
  #end({ uid }: DesiredPod, message: string): void {
    const reason = this.#loaded?.refused ?? "";
    const ended = Promise.resolve().then(() => this.#parts.workers().end(uid, { reason, message }, this.#life.signal));
    ended.catch(ignore("the agent stops; the next one asks the plugin again"));
  }

  #serve(socket: Socket): void {
    socket.on("error", ignore("the connection closes with it"));
    this.#load().then(
      ({ server }) => server.serve(socket),
      (error: unknown) => {
        this.#base.ports.log.error("cannot load what serves device plugins", { error: describeError(error) });
        socket.destroy();
      },
    );
  }

  #load(): Promise<LoadedDevices> {
    const make = async (): Promise<LoadedDevices> => {
      const { LoadedDevices } = await import("./load-devices.ts");
      const { canRuntimeApplyCdi } = this.#parts;
      const init = { folder: this.#folder, checkpoint: join(this.#folder, CHECKPOINT), canRuntimeApplyCdi };
      const loaded = new LoadedDevices(this.#base, init, (resources) => this.#changes.set(resources));
      this.#loaded = loaded;
      return loaded;
    };
    this.#loading ??= make().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }
}
