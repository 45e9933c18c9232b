/**
 * The RuntimeAdapter for WebAssembly components: every container a process of its own that outlives the agent, unless
 * its pod shares one. What is true of a pod is in the state folder (`state/state-folder.ts`) and in /proc;
 * `pod-records.ts` is a view of both, and changes them together.
 */

import { checkCancelled } from "@picolet/protocol/async/abort.ts";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type {
  Action,
  ContainerIsolation,
  ContainerLaunch,
  DesiredPod,
  ExecResult,
  ObservedPod,
  PodListing,
  RuntimeAdapter,
  RuntimeStatus,
  RuntimeStream,
  SandboxLaunch,
  SharedUsage,
  StreamRequest,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { fileError } from "../shared/files/durable-files.ts";
import { isDense } from "../shared/grants/pod-grants.ts";
import {
  limitsOf,
  missingProgram,
  pullsOf,
  type WasmAdapterComponents,
  type WasmAdapterInit,
} from "./adapter-settings.ts";
import { componentRuntimeStatus } from "./component-runtime-status.ts";
import { ContainerStarter } from "./container-starter.ts";
import { execRefusal, openStream } from "./container-streams.ts";
import { containerSpec, findContainer, memoryLimitOf } from "./containers/container-launch.ts";
import { checkComponentPod, ignoredPodFields } from "./containers/refusals.ts";
import { TrustedAuthorities } from "./containers/trusted-authorities.ts";
import { DenseOnDemand } from "./dense/dense-on-demand.ts";
import { ImageStore } from "./images/image-store.ts";
import { Transpiler } from "./images/transpiler.ts";
import { Isolation } from "./isolation/isolation.ts";
import { PendingStarts } from "./pending-starts.ts";
import { PodRecords } from "./pod-records.ts";
import { OneOffCgroups } from "./processes/one-off-cgroups.ts";
import { SparePool } from "./runners/spare-pool.ts";
import { ServiceHost } from "./services/service-host.ts";
import { createLog } from "./state/container-log.ts";
import { StateFolder } from "./state/state-folder.ts";

/** How often a list checks that no pid was reused. */
const THOROUGH_INTERVAL = seconds(60);

const SHARES_PROCESS =
  "its components share one process, user, memory limit and CPU limit with other pods of this namespace (wasm.picolet.io/mode: dense); WebAssembly alone keeps them apart";

type Stop = Extract<Action, { kind: "stopContainer" }>;

export class WasmAdapter implements RuntimeAdapter {
  readonly name = "wasm";
  readonly boundsLogs = true;
  readonly images: ImageStore;
  readonly #components: WasmAdapterComponents;
  readonly #init: WasmAdapterInit;
  readonly #transpiler: Transpiler;
  readonly #starter: ContainerStarter;
  readonly #isolation: Isolation;
  readonly #spares: SparePool;
  readonly #authorities: TrustedAuthorities;
  readonly #dense: DenseOnDemand;
  readonly #pods: PodRecords;
  readonly #services: ServiceHost;
  readonly #starts: PendingStarts;
  readonly #oneOffs: OneOffCgroups;
  readonly #disposed = new AbortController();
  #lastThoroughAt: number;

  constructor(components: WasmAdapterComponents, init: WasmAdapterInit) {
    const { clock, log, cgroups } = components;
    const limits = limitsOf(init);
    const { nodePath, runnerPath, densePath, cgroupSettings } = init;
    const { startTimeout, denseTurnTimeout: turnTimeout } = limits;
    const disposed = this.#disposed.signal;
    const ports = { clock, log, cgroups };
    this.#components = components;
    this.#init = init;
    this.#lastThoroughAt = clock.monotonic();
    const state = new StateFolder(init.stateDirectory);
    const { services: board } = components;
    this.#services = new ServiceHost({ ...ports, state, services: board, runs: () => this.#pods.runs() }, init);
    this.#pods = new PodRecords({
      ...{ log, state, adopted: (file) => this.#starter.adopted(file), onRun: (run) => this.#services.serve(run) },
      settleDense: async () => (await this.#dense.starts()).settle(),
    });
    this.#oneOffs = new OneOffCgroups(ports, init);
    this.#transpiler = makeTranspiler(components, init);
    const images = this.#makeImages();
    this.images = images;
    const ownUid = process.getuid?.() ?? 0;
    const isolation = new Isolation(log, { directory: state.jailDirectory, nodePath, runnerPath, densePath, ownUid });
    this.#isolation = isolation;
    this.#spares = new SparePool(
      { ...ports, isolation, disposed },
      { size: limits.spareRunners, directory: state.sparesDirectory, cgroupPath: init.spareCgroup },
    );
    this.#authorities = new TrustedAuthorities(log, init.caFile);
    const ofRuns = {
      ...{ ...ports, state, isolation, disposed },
      onChange: (uid: string): void => this.#pods.changed(uid),
      onExit: (): void => this.#spares.wakeUp(),
    };
    this.#dense = new DenseOnDemand(ofRuns, {
      ...{ directory: state.denseDirectory, cgroupPath: init.denseCgroup, startTimeout, turnTimeout, cgroupSettings },
    });
    this.#starter = new ContainerStarter(
      {
        ...{ ...ofRuns, images, transpiler: this.#transpiler, spares: this.#spares, authorities: this.#authorities },
        dense: () => this.#dense.starts(),
      },
      { cgroupSettings, startTimeout, runnerPath, p3: init.p3 ?? false, logLimit: init.logLimit },
    );
    this.#starts = new PendingStarts({ pods: this.#pods, starter: this.#starter, services: this.#services });
  }

  /** The greatest resident size of any transpilation so far, KiB; 0 before the first. */
  get transpilePeakRssKiB(): number {
    return this.#transpiler.peakRssKiB;
  }

  /** The number of runners that wait for a container. */
  get spareRunners(): number {
    return this.#spares.waiting;
  }

  /** Resolves when nothing is being made ready. */
  get sparesSettled(): Promise<void> {
    return this.#spares.settled;
  }

  /** Memory is short: what is only kept ready goes, and does not come back for five minutes. */
  shed(): void {
    this.#spares.shed();
  }

  async status(signal: AbortSignal): Promise<RuntimeStatus> {
    checkCancelled(signal, "the status of the runtime");
    const problem = await this.#open().then(
      () => missingProgram(this.#init),
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    );
    await this.#authorities.check();
    const notes = [
      this.#isolation.problem && `components are less isolated than they should be: ${this.#isolation.problem}`,
      this.#authorities.problem && `components that ask by https cannot start: ${this.#authorities.problem}`,
    ];
    return componentRuntimeStatus(
      problem,
      notes.filter((each) => each !== undefined),
    );
  }

  async list(signal: AbortSignal): Promise<readonly PodListing[]> {
    checkCancelled(signal, "the list of pods");
    await this.#open();
    const how = this.#howThorough();
    for (const run of this.#pods.runs()) await run.check(how);
    // A pod's status contains them.
    const addresses = this.#components.hostIps().join(" ");
    return this.#pods.all().map(({ uid, version }) => ({ uid, version: `${version} ${addresses}` }));
  }

  async inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod> {
    checkCancelled(signal, "the inspection of a pod");
    await this.#open();
    return this.#pods.observed(uid, this.#components.hostIps());
  }

  isolationLevel(): string | undefined {
    return this.#isolation.summary;
  }

  async isolation(uid: PodUid, signal: AbortSignal): Promise<readonly ContainerIsolation[]> {
    checkCancelled(signal, "the isolation of a pod");
    await this.#open();
    const { isolationOf } = await import("./isolation/kernel-isolation.ts");
    return this.#pods
      .runs()
      .filter(({ file, state, process }) => file.uid === uid && state.kind === "running" && process !== undefined)
      .flatMap(({ file, process }) => {
        const found = isolationOf(process?.pid ?? 0);
        if (found === undefined) return [];
        const { measures, missing } = "problem" in found ? { measures: [], missing: [found.problem] } : found;
        const shared = file.dense === undefined ? [] : ["a process of its own (wasm.picolet.io/mode: dense)"];
        return [{ container: file.name, measures, missing: [...shared, ...missing] }];
      });
  }

  async apply(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    checkCancelled(signal, action.kind);
    await this.#open();
    try {
      await this.#carryOut(pod, action, signal);
    } catch (error) {
      throw isPicoletError(error) ? error : fileError(error, `cannot carry out ${action.kind}`);
    }
  }

  /** Checks whether a container of this pod would start, without starting it. @throws why not */
  async check(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    await this.#open();
    checkComponentPod(pod.pod);
    await this.#starter.check(pod, launch, signal);
  }

  /** Checks requests for memory and users too; the images are not known yet. */
  refusal(pod: Pod): string | undefined {
    try {
      checkComponentPod(pod);
      for (const { name } of [...(pod.spec.initContainers ?? []), ...pod.spec.containers])
        memoryLimitOf(pod, containerSpec(pod, name));
      return undefined;
    } catch (error) {
      return describeError(error);
    }
  }

  hints(signal: AbortSignal): AsyncIterable<PodUid> {
    return this.#pods.hints(signal);
  }

  /** The runner checks the file's name before each write: a new file is all that it needs. */
  async reopenLog(uid: PodUid, containerId: string, signal: AbortSignal): Promise<void> {
    checkCancelled(signal, "the reopening of a log");
    await this.#open();
    const run = this.#pods.container(uid, containerId);
    if (run === undefined || run.hasEnded) {
      throw new PicoletError("not_found", `cannot reopen the log of container ${containerId}: it does not run`);
    }
    createLog(run.file);
  }

  async stream(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream> {
    checkCancelled(signal, "the opening of a stream");
    await this.#open();
    return openStream(this.#pods, uid, request);
  }

  async sharedUsage(signal: AbortSignal): Promise<ReadonlyMap<string, SharedUsage>> {
    checkCancelled(signal, "the usage of containers");
    await this.#open();
    return this.#dense.usage();
  }

  execSync(): Promise<ExecResult> {
    return Promise.reject(execRefusal());
  }

  /** Runners run on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort();
    this.#pods[Symbol.dispose]();
    await this.#services[Symbol.asyncDispose]();
    await this.#dense.dispose();
    await this.#transpiler[Symbol.asyncDispose]();
  }

  async #open(): Promise<void> {
    await this.#oneOffs.clear(this.#disposed.signal);
    await this.#pods.open();
  }

  #makeImages(): ImageStore {
    const { clock, log, cgroups } = this.#components;
    const { rootDirectory, limits, p3 } = this.#init;
    return new ImageStore(
      {
        ...{ clock, log, cgroups },
        prepare: () => this.#oneOffs.clear(this.#disposed.signal),
        onRemoved: (sha256) => this.#transpiler.remove(sha256),
        used: () => this.#usedComponents(),
        derived: (hashes) => this.#transpiler.keepOnly(hashes),
      },
      { rootDirectory, maxComponentBytes: limits?.maxComponentBytes, pulls: pullsOf(this.#init), p3 },
    );
  }

  /** By their digests. */
  async #usedComponents(): Promise<string[]> {
    await this.#open();
    return this.#pods.runs().map(({ file }) => file.imageId.replace(/^sha256:/, ""));
  }

  async #carryOut(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    switch (action.kind) {
      case "createSandbox":
        return this.#createSandbox(pod, action.sandbox);
      case "startContainer":
        return this.#starts.start(pod, action.container, signal);
      case "stopContainer":
        return this.#stopContainer(pod, action, signal);
      case "updateContainer": {
        const run = this.#pods.container(pod.uid, action.containerId);
        if (run !== undefined) return await this.#starter.update(run, pod, action);
        throw new PicoletError("not_found", `cannot update container ${action.containerId}: it is not there`);
      }
      // Only a pod's cgroup and its containers have resources.
      case "updateSandbox":
        return;
      case "removeContainer":
        return this.#pods.removeContainer(pod.uid, action.containerId);
      case "stopSandbox":
        return this.#pods.stopSandbox(pod.uid, action.sandboxId, signal);
      case "removeSandbox":
        return this.#pods.removeSandbox(pod.uid, action.sandboxId, signal);
    }
  }

  /** A container with the stop signal SIGKILL gets no grace period. */
  async #stopContainer(
    { uid, pod }: DesiredPod,
    { containerId, gracePeriod }: Stop,
    signal: AbortSignal,
  ): Promise<void> {
    const run = this.#pods.container(uid, containerId);
    if (run === undefined) return;
    const isKilled = findContainer(pod, run.file.name)?.lifecycle?.stopSignal === "SIGKILL";
    await run.stop(isKilled ? millis(0) : gracePeriod, signal);
  }

  #createSandbox(desired: DesiredPod, launch: SandboxLaunch): void {
    checkComponentPod(desired.pod);
    if (!this.#pods.addSandbox(desired, launch, this.#components.clock.wall().getTime())) return;
    const ignored = ignoredPodFields(desired.pod);
    if (isDense(desired.pod)) this.#components.warn(desired, "LessIsolated", SHARES_PROCESS);
    if (ignored.length > 0) {
      this.#components.warn(desired, "FieldsIgnored", `WebAssembly components do without: ${ignored.join("; ")}`);
    }
  }

  #howThorough(): "quick" | "thorough" {
    const now = this.#components.clock.monotonic();
    if (now - this.#lastThoroughAt < THOROUGH_INTERVAL) return "quick";
    this.#lastThoroughAt = now;
    return "thorough";
  }
}

function makeTranspiler({ clock, log, cgroups }: WasmAdapterComponents, init: WasmAdapterInit): Transpiler {
  const { transpileTimeout: timeout, transpileMemoryLimitBytes: memoryLimitBytes } = limitsOf(init);
  const { nodePath, transpilePath, rootDirectory, transpileCgroup: cgroupPath } = init;
  return new Transpiler(
    { clock, log, cgroups },
    { nodePath, transpilePath, cacheDirectory: `${rootDirectory}/transpiled`, timeout, memoryLimitBytes, cgroupPath },
  );
}
