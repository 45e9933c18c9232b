/**
 * The RuntimeAdapter for WebAssembly components: every container a process of its own that outlives the agent, unless its
 * pod shares one. What is true of a pod is in the state folder (`state/state-folder.ts`) and in /proc; `pod-records.ts` is
 * a view of both, and changes them together.
 */
import { describeError, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Pod } from "../../protocol/pod.ts";
import { millis, type PodUid, seconds } from "../../protocol/ports.ts";
import { VERSION } from "../../protocol/version.ts";
import type {
  Action,
  ContainerLaunch,
  DesiredPod,
  ExecResult,
  ImageService,
  ObservedPod,
  PodListing,
  RuntimeAdapter,
  RuntimeCondition,
  RuntimeHandler,
  RuntimeStatus,
  RuntimeStream,
  SandboxLaunch,
  SharedUsage,
  StreamRequest,
} from "../contract/runtime-adapter.ts";
import {
  limitsOf,
  missingProgram,
  pullsOf,
  type WasmAdapterComponents,
  type WasmAdapterInit,
} from "./adapter-settings.ts";
import { checkCancelled } from "./cancellation.ts";
import { containerSpec, findContainer, memoryLimitOf } from "./container-launch.ts";
import type { ContainerRun } from "./container-run.ts";
import { ContainerStarter, createLog, type SandboxRecord } from "./container-starter.ts";
import type { DenseStarts } from "./dense/dense-starts.ts";
import { fileError } from "./files.ts";
import { ImageStore } from "./image/image-store.ts";
import { Isolation } from "./isolation/isolation.ts";
import { type PodGrants, podGrants } from "./pod-grants.ts";
import { type PodRecord, PodRecords } from "./pod-records.ts";
import { ignoredByComponents, refuseWhatComponentsCannotBe } from "./refusals.ts";
import { ServiceHost } from "./services/service-host.ts";
import { SparePool } from "./spare/spare-pool.ts";
import { StateFolder } from "./state/state-folder.ts";
import { Transpiler } from "./transpile/transpiler.ts";
import { TrustedAuthorities } from "./trusted-authorities.ts";

/** How often a list makes sure that no pid was given away anew. */
const THOROUGH_INTERVAL = seconds(60);
/** Whoever may not write to a mount may not write to anything below it. */
const HANDLER: RuntimeHandler = { name: "wasm", recursiveReadOnlyMounts: true, userNamespaces: false };

const noSecondProgram = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "cannot exec into a WebAssembly component: it has no shell and no other program to start; see its logs, or attach to its output",
  );
const noAddress = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "cannot forward ports to a pod of WebAssembly components: it has no network address of its own",
  );
const noInput = (): PicoletError =>
  new PicoletError(
    "unimplemented",
    "a WebAssembly component takes no standard input and has no terminal: attach without -i and -t",
  );

const SHARES_PROCESS =
  "its components share one process, user, memory limit and CPU limit with other pods of this namespace (wasm.picolet.io/mode: dense); WebAssembly alone keeps them apart";

type Stop = Extract<Action, { kind: "stopContainer" }>;

export class WasmAdapter implements RuntimeAdapter {
  readonly name = "wasm";
  readonly images: ImageService;
  readonly #components: WasmAdapterComponents;
  readonly #init: WasmAdapterInit;
  readonly #state: StateFolder;
  readonly #transpiler: Transpiler;
  readonly #starter: ContainerStarter;
  readonly #isolation: Isolation;
  readonly #spares: SparePool;
  readonly #authorities: TrustedAuthorities;
  #dense: Promise<DenseStarts> | undefined;
  readonly #pods: PodRecords;
  readonly #services: ServiceHost;
  /** Starts under way, by pod, name and attempt. */
  readonly #starts = new Map<string, Promise<void>>();
  readonly #disposed = new AbortController();
  #lastThoroughAt: number;

  constructor(components: WasmAdapterComponents, init: WasmAdapterInit) {
    const { clock, log, cgroups } = components;
    const limits = limitsOf(init);
    this.#components = components;
    this.#init = init;
    this.#lastThoroughAt = clock.monotonic();
    const state = new StateFolder(init.stateDirectory);
    this.#state = state;
    this.#services = new ServiceHost(
      { clock, log, cgroups, state, services: components.services, runs: () => this.#pods.runs() },
      init,
    );
    this.#pods = new PodRecords({
      ...{ log, state, adopted: (file) => this.#starter.adopted(file), onRun: (run) => this.#services.serve(run) },
      settleDense: async () => (await this.#denseStarts()).settle(),
    });
    this.#transpiler = new Transpiler(
      { clock, log, cgroups },
      {
        nodePath: init.nodePath,
        transpilePath: init.transpilePath,
        cacheDirectory: `${init.rootDirectory}/transpiled`,
        timeout: limits.transpileTimeout,
        memoryLimitBytes: limits.transpileMemoryLimitBytes,
        cgroupPath: init.transpileCgroup,
      },
    );
    const onRemoved = (sha256: string): Promise<void> => this.#transpiler.remove(sha256);
    const maxComponentBytes = init.limits?.maxComponentBytes;
    const used = (): Promise<Iterable<string>> => this.#usedComponents();
    const derived = (hashes: ReadonlySet<string>) => this.#transpiler.keepOnly(hashes);
    const images = new ImageStore(
      { clock, log, cgroups, onRemoved, used, derived },
      { rootDirectory: init.rootDirectory, maxComponentBytes, pulls: pullsOf(init), p3: init.p3 },
    );
    this.images = images;
    const onChange = (uid: string): void => this.#pods.changed(uid);
    const { nodePath, runnerPath, densePath } = init;
    const directory = this.#state.jailDirectory;
    this.#isolation = new Isolation(log, {
      directory,
      nodePath,
      runnerPath,
      densePath,
      ownUid: process.getuid?.() ?? 0,
    });
    this.#spares = new SparePool(
      { clock, log, cgroups, isolation: this.#isolation, disposed: this.#disposed.signal },
      {
        size: limits.spareRunners,
        directory: this.#state.sparesDirectory,
        cgroupPath: init.spareCgroup,
      },
    );
    this.#authorities = new TrustedAuthorities(log, init.caFile);
    this.#starter = new ContainerStarter(
      {
        clock,
        log,
        cgroups,
        state: this.#state,
        images,
        transpiler: this.#transpiler,
        isolation: this.#isolation,
        spares: this.#spares,
        authorities: this.#authorities,
        dense: () => this.#denseStarts(),
        onChange,
        onExit: () => this.#spares.rouse(),
        disposed: this.#disposed.signal,
      },
      {
        cgroupSettings: init.cgroupSettings,
        startTimeout: limits.startTimeout,
        runnerPath,
        p3: init.p3 ?? false,
      },
    );
  }

  /** The greatest resident size of any transpilation so far, KiB; 0 before the first. */
  get transpilePeakRssKiB(): number {
    return this.#transpiler.peakRssKiB;
  }

  /** How many runners wait for a container. */
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
    checkCancelled(signal, "the look at the runtime");
    const problem = await this.#pods.open().then(
      () => missingProgram(this.#init),
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    );
    await this.#authorities.look();
    const notes = [
      this.#isolation.problem && `components are less isolated than they should be: ${this.#isolation.problem}`,
      this.#authorities.problem && `components that ask by https cannot start: ${this.#authorities.problem}`,
    ];
    return {
      runtime: "picolet-wasm",
      version: VERSION,
      conditions: [condition("RuntimeReady", problem), condition("NetworkReady", undefined)],
      handlers: [HANDLER],
      // An image of a component names no groups, so that there is nothing to leave out.
      supplementalGroupsPolicy: true,
      notes: notes.filter((each) => each !== undefined),
    };
  }

  async list(signal: AbortSignal): Promise<readonly PodListing[]> {
    checkCancelled(signal, "the list of pods");
    await this.#pods.open();
    const how = this.#howThorough();
    for (const run of this.#pods.runs()) await run.check(how);
    // What a pod shows changes with them.
    const addresses = this.#components.hostIps().join(" ");
    return this.#pods.all().map(({ uid, version }) => ({ uid, version: `${version} ${addresses}` }));
  }

  async inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod> {
    checkCancelled(signal, "the look at a pod");
    await this.#pods.open();
    return this.#pods.observed(uid, this.#components.hostIps());
  }

  async apply(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    checkCancelled(signal, action.kind);
    await this.#pods.open();
    try {
      await this.#carryOut(pod, action, signal);
    } catch (error) {
      throw isPicoletError(error) ? error : fileError(error, `cannot carry out ${action.kind}`);
    }
  }

  /** Whether a container of this pod would start, as far as that can be told without starting it. @throws why not */
  async check(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    await this.#pods.open();
    refuseWhatComponentsCannotBe(pod.pod);
    await this.#starter.check(pod, launch, signal);
  }

  /** With what is asked of memory and users; what its images are nobody knows yet. */
  refusal(pod: Pod): string | undefined {
    try {
      refuseWhatComponentsCannotBe(pod);
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

  /** The runner looks at the file's name before each write: a new file is all that it needs. */
  async reopenLog(uid: PodUid, containerId: string, signal: AbortSignal): Promise<void> {
    checkCancelled(signal, "the reopening of a log");
    await this.#pods.open();
    const run = this.#pods.container(uid, containerId);
    if (run === undefined || run.hasEnded) {
      throw new PicoletError("not_found", `cannot reopen the log of container ${containerId}: it does not run`);
    }
    createLog(run.file);
  }

  /** A component has its two outputs, which it writes into its log; nothing can be started beside it. */
  async stream(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream> {
    checkCancelled(signal, "the opening of a stream");
    await this.#pods.open();
    if (request.kind === "exec") throw noSecondProgram();
    if (request.kind === "portForward") throw noAddress();
    const run = this.#pods.container(uid, request.containerId);
    if (run === undefined || run.hasEnded) {
      throw new PicoletError("not_found", `cannot attach to container ${request.containerId}: it does not run`);
    }
    if (request.stdin || request.tty) throw noInput();
    return { kind: "log", logPath: run.file.logPath };
  }

  async sharedUsage(signal: AbortSignal): Promise<ReadonlyMap<string, SharedUsage>> {
    checkCancelled(signal, "the look at what containers use");
    await this.#pods.open();
    return (await (await this.#dense)?.usage()) ?? new Map();
  }

  execSync(): Promise<ExecResult> {
    return Promise.reject(noSecondProgram());
  }

  /** Runners run on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort();
    this.#pods[Symbol.dispose]();
    await this.#services[Symbol.asyncDispose]();
    (await this.#dense)?.dispose();
    await this.#transpiler[Symbol.asyncDispose]();
  }

  /** By their digests. */
  async #usedComponents(): Promise<string[]> {
    await this.#pods.open();
    return this.#pods.runs().map(({ file }) => file.imageId.replace(/^sha256:/, ""));
  }

  async #carryOut(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    switch (action.kind) {
      case "createSandbox":
        return this.#createSandbox(pod, action.sandbox);
      case "startContainer":
        return this.#startContainer(pod, action.container, signal);
      case "stopContainer":
        return this.#stopContainer(pod, action, signal);
      case "updateContainer": {
        const run = this.#pods.container(pod.uid, action.containerId);
        if (run !== undefined) return await this.#starter.update(run, pod, action);
        throw new PicoletError("not_found", `cannot update container ${action.containerId}: it is not there`);
      }
      case "removeContainer":
        return this.#pods.removeContainer(pod.uid, action.containerId);
      case "stopSandbox":
        return this.#pods.stopSandbox(pod.uid, action.sandboxId, signal);
      case "removeSandbox":
        return this.#pods.removeSandbox(pod.uid, action.sandboxId, signal);
    }
  }

  /** Whoever wants SIGKILL in the place of SIGTERM gets it. */
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
    refuseWhatComponentsCannotBe(desired.pod);
    if (!this.#pods.addSandbox(desired, launch, this.#components.clock.wall().getTime())) return;
    const ignored = ignoredByComponents(desired.pod);
    if (podGrantsOf(desired.pod)?.dense === true) this.#components.warn(desired, "LessIsolated", SHARES_PROCESS);
    if (ignored.length > 0) {
      this.#components.warn(desired, "FieldsIgnored", `WebAssembly components do without: ${ignored.join("; ")}`);
    }
  }

  async #startContainer(desired: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    const pod = this.#pods.get(desired.uid);
    const ready = [...(pod?.sandboxes.values() ?? [])].filter((each) => !each.stopped);
    const sandbox = ready.sort((one, other) => other.attempt - one.attempt)[0];
    if (pod === undefined || sandbox === undefined) {
      throw new PicoletError(
        "not_found",
        `cannot start container ${launch.name}: its pod has no sandbox that is ready`,
      );
    }
    const key = `${desired.uid}/${launch.name}/${launch.attempt}`;
    const underway = this.#starts.get(key);
    if (underway !== undefined) return underway;
    const exists = [...pod.containers.values()].some(
      ({ file }) => file.name === launch.name && file.attempt === launch.attempt,
    );
    if (exists) return;
    const start = this.#start(pod, desired, sandbox, launch, signal).finally(() => this.#starts.delete(key));
    this.#starts.set(key, start);
    return start;
  }

  async #start(
    pod: PodRecord,
    desired: DesiredPod,
    sandbox: SandboxRecord,
    launch: ContainerLaunch,
    signal: AbortSignal,
  ): Promise<void> {
    let made: ContainerRun | undefined;
    try {
      const onMade = (run: ContainerRun): void => {
        // The one before came to nothing.
        if (made !== undefined) pod.containers.delete(made.file.id);
        made = run;
        pod.containers.set(run.file.id, run);
        this.#services.serve(run);
      };
      await this.#starter.start(desired, sandbox, launch, onMade, signal);
    } catch (error) {
      if (made !== undefined) pod.containers.delete(made.file.id);
      throw error;
    } finally {
      this.#pods.changed(desired.uid);
    }
  }

  #howThorough(): "quick" | "thorough" {
    const now = this.#components.clock.monotonic();
    if (now - this.#lastThoroughAt < THOROUGH_INTERVAL) return "quick";
    this.#lastThoroughAt = now;
    return "thorough";
  }

  #denseStarts(): Promise<DenseStarts> {
    this.#dense ??= this.#loadDense();
    return this.#dense;
  }

  async #loadDense(): Promise<DenseStarts> {
    const { clock, log, cgroups } = this.#components;
    const { cgroupSettings, denseCgroup: cgroupPath } = this.#init;
    const { startTimeout, denseTurnTimeout: turnTimeout } = limitsOf(this.#init);
    const state = this.#state;
    const disposed = this.#disposed.signal;
    const { makeDenseStarts } = await import("./dense/dense-starts.ts");
    return makeDenseStarts(
      {
        clock,
        log,
        cgroups,
        state,
        disposed,
        isolation: this.#isolation,
        onChange: (uid) => this.#pods.changed(uid),
        onExit: () => this.#spares.rouse(),
      },
      {
        directory: state.denseDirectory,
        cgroupPath,
        startTimeout,
        turnTimeout,
      },
      cgroupSettings,
    );
  }
}

/** Mistakes are told of where a container is started. */
function podGrantsOf(pod: DesiredPod["pod"]): PodGrants | undefined {
  try {
    return podGrants(pod);
  } catch {
    return undefined;
  }
}

const condition = (type: string, problem: string | undefined): RuntimeCondition => ({
  type,
  status: problem === undefined,
  reason: problem === undefined ? "" : "ComponentRuntimeNotUsable",
  message: problem ?? "",
});
