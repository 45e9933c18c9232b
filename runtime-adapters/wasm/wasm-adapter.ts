/**
 * The RuntimeAdapter for WebAssembly components: every container a process of its own that outlives the agent. What is
 * true of a pod is in the state folder (`state/state-folder.ts`) and in /proc; this object is a view of both, and the
 * only one that changes the folder.
 */
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, type FSWatcher, readFileSync, watch } from "node:fs";
import type { CgroupSettings } from "../../protocol/cgroup-values.ts";
import { describeError, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Pod } from "../../protocol/pod.ts";
import { type Clock, type Log, type Millis, millis, type PodUid, podUid, seconds } from "../../protocol/ports.ts";
import { VERSION } from "../../protocol/version.ts";
import type { BoardServices, ServicePeer } from "../contract/board-services.ts";
import type { CgroupPort } from "../contract/cgroups.ts";
import type {
  Action,
  ContainerLaunch,
  DesiredPod,
  ExecResult,
  ImageService,
  ObservedContainer,
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
import { checkCancelled } from "./cancellation.ts";
import { containerSpec, findContainer, memoryLimitOf } from "./container-launch.ts";
import type { ContainerRun } from "./container-run.ts";
import { ContainerStarter, createLog, type SandboxRecord } from "./container-starter.ts";
import type { DenseStarts } from "./dense/dense-starts.ts";
import { deviceServices } from "./devices/device-services.ts";
import { fileError } from "./files.ts";
import { HintFan } from "./hint-fan.ts";
import { ImageStore } from "./image/image-store.ts";
import { Isolation } from "./isolation/isolation.ts";
import type { Identity } from "./launch.ts";
import { type PodGrants, podGrants } from "./pod-grants.ts";
import type { ProxySettings } from "./pull/proxies.ts";
import type { RegistryConfiguration } from "./pull/registries.ts";
import type { RegistryPullsInit } from "./pull/registry-pulls.ts";
import type { PullLimits } from "./pull/request.ts";
import { ignoredByComponents, refuseWhatComponentsCannotBe } from "./refusals.ts";
import { SERVICE_SOCKET } from "./services/messages.ts";
import type { ServicePort } from "./services/service-port.ts";
import { SparePool } from "./spare/spare-pool.ts";
import { StateFolder } from "./state/state-folder.ts";
import { Transpiler } from "./transpile/transpiler.ts";

export interface WasmAdapterComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** Undefined: there are none; the limit on linear memory still holds. */
  readonly cgroups: CgroupPort | undefined;
  /** The node's addresses, which are its component pods' too: they have no network of their own. */
  readonly hostIps: () => readonly string[];
  /** Tells of a pod what its user should know. */
  readonly warn: (pod: DesiredPod, reason: string, message: string) => void;
  /** What components can ask of the agent. */
  readonly services: BoardServices;
}

export interface WasmAdapterInit {
  /** Images and what is transpiled from them; kept. `<root-dir>/wasm`. */
  readonly rootDirectory: string;
  /** What is known of pods; in memory where possible. */
  readonly stateDirectory: string;
  readonly nodePath: string;
  /** The bundled runner, or `runner-main.ts`. */
  readonly runnerPath: string;
  /** The bundled process of several components, or `dense/dense-main.ts`. */
  readonly densePath: string;
  /** The bundled transpile child, or `transpile-main.ts`. */
  readonly transpilePath: string;
  /** The bundled pull child, or `pull-main.ts`. */
  readonly pullPath: string;
  /** The bundled child that opens devices, or `devices-main.ts`. */
  readonly devicesPath: string;
  readonly cgroupSettings: CgroupSettings;
  /** cgroupfs path for transpilations; undefined: their memory is watched, not limited. */
  readonly transpileCgroup?: string | undefined;
  /** cgroupfs path for pulls, to which a number is added; undefined: their memory is watched, not limited. */
  readonly pullCgroup?: string | undefined;
  /** How registries are spoken to. */
  readonly registries?: readonly RegistryConfiguration[] | undefined;
  /** Through which they are reached; undefined: directly. */
  readonly proxies?: ProxySettings | undefined;
  readonly pullLimits?: Partial<PullLimits> | undefined;
  /** cgroupfs path for runners that wait for a container; undefined: the agent's own. */
  readonly spareCgroup?: string | undefined;
  /** cgroupfs path above those of processes with several components; undefined: they have none. */
  readonly denseCgroup?: string | undefined;
  readonly limits?: WasmLimits | undefined;
  /** Whether components of WASI 0.3 are run. */
  readonly p3?: boolean | undefined;
}

export interface WasmLimits {
  /** Default 64 MiB. */
  readonly maxComponentBytes?: number | undefined;
  /** Resident memory of one transpilation. Default 512 MiB: a component of 12 MiB takes 174. */
  readonly transpileMemoryLimitBytes?: number | undefined;
  /** Default 300 s: a component of 12 MiB takes 2 s on a PC, and boards are up to twenty times slower. */
  readonly transpileTimeout?: Millis | undefined;
  /** Of starting the runner and all that a component does before it runs. Default 60 s. */
  readonly startTimeout?: Millis | undefined;
  /** Runners that are kept ready for restarts, some 10 MiB each; none before the first start of a container. Default 1. */
  readonly spareRunners?: number | undefined;
  /** CPU time that a component which shares its process may take without ever coming back to its host. Default 10 s. */
  readonly denseTurnTimeout?: Millis | undefined;
}

const DEFAULT_TRANSPILE_MEMORY_BYTES = 512 * 1024 * 1024;
const DEFAULT_TRANSPILE_TIMEOUT = seconds(300);
const DEFAULT_START_TIMEOUT = seconds(60);
const DEFAULT_SPARE_RUNNERS = 1;
/** Far beyond what any answer takes that somebody waits for. */
const DEFAULT_DENSE_TURN_TIMEOUT = seconds(10);
/** How often a list makes sure that no pid was given away anew. */
const THOROUGH_INTERVAL = seconds(60);
/** UIDs name folders. Kubernetes' are UUIDs or hashes. */
/** Whoever may not write to a mount may not write to anything below it. */
const HANDLER: RuntimeHandler = { name: "wasm", recursiveReadOnlyMounts: true, userNamespaces: false };

const UID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

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

const pullsOf = ({
  nodePath,
  pullPath,
  pullCgroup,
  registries,
  proxies,
  pullLimits,
}: WasmAdapterInit): RegistryPullsInit => ({
  ...{ nodePath, pullPath, registries, proxies },
  cgroupPath: pullCgroup,
  limits: pullLimits,
});

const SHARES_PROCESS =
  "its components share one process, user, memory limit and CPU limit with other pods of this namespace (wasm.picolet.io/mode: dense); WebAssembly alone keeps them apart";

type Stop = Extract<Action, { kind: "stopContainer" }>;

interface PodRecord {
  readonly uid: PodUid;
  readonly sandboxes: Map<number, SandboxRecord>;
  readonly containers: Map<string, ContainerRun>;
  /** Changes with what `inspect` shows. */
  version: number;
}

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
  #dense: Promise<DenseStarts> | undefined;
  readonly #hints = new HintFan();
  /** As many as there are component pods on the node. */
  readonly #pods = new Map<string, PodRecord>();
  /** Starts under way, by pod, name and attempt. */
  readonly #starts = new Map<string, Promise<void>>();
  /** Given out anew with every change, so that no pod ever has one that it had before. */
  #lastVersion = 0;
  readonly #disposed = new AbortController();
  #opened: Promise<void> | undefined;
  #watcher: FSWatcher | undefined;
  #lastThoroughAt: number;
  #servicePort: Promise<ServicePort> | undefined;

  constructor(components: WasmAdapterComponents, init: WasmAdapterInit) {
    const { clock, log, cgroups } = components;
    const limits = init.limits ?? {};
    this.#components = components;
    this.#init = init;
    this.#lastThoroughAt = clock.monotonic();
    this.#state = new StateFolder(init.stateDirectory);
    this.#transpiler = new Transpiler(
      { clock, log, cgroups },
      {
        nodePath: init.nodePath,
        transpilePath: init.transpilePath,
        cacheDirectory: `${init.rootDirectory}/transpiled`,
        timeout: limits.transpileTimeout ?? DEFAULT_TRANSPILE_TIMEOUT,
        memoryLimitBytes: limits.transpileMemoryLimitBytes ?? DEFAULT_TRANSPILE_MEMORY_BYTES,
        cgroupPath: init.transpileCgroup,
      },
    );
    const onRemoved = (sha256: string): Promise<void> => this.#transpiler.remove(sha256);
    const { maxComponentBytes } = limits;
    const used = (): Promise<Iterable<string>> => this.#usedComponents();
    const derived = (hashes: ReadonlySet<string>) => this.#transpiler.keepOnly(hashes);
    const images = new ImageStore(
      { clock, log, cgroups, onRemoved, used, derived },
      { rootDirectory: init.rootDirectory, maxComponentBytes, pulls: pullsOf(init), p3: init.p3 },
    );
    this.images = images;
    const onChange = (uid: string): void => this.#changed(uid);
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
        size: limits.spareRunners ?? DEFAULT_SPARE_RUNNERS,
        directory: this.#state.sparesDirectory,
        cgroupPath: init.spareCgroup,
      },
    );
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
        dense: () => this.#denseStarts(),
        onChange,
        disposed: this.#disposed.signal,
      },
      {
        cgroupSettings: init.cgroupSettings,
        startTimeout: limits.startTimeout ?? DEFAULT_START_TIMEOUT,
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
    const problem = await this.#open().then(
      () => missingProgram(this.#init),
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    );
    const isolationProblem = this.#isolation.problem;
    return {
      runtime: "picolet-wasm",
      version: VERSION,
      conditions: [condition("RuntimeReady", problem), condition("NetworkReady", undefined)],
      handlers: [HANDLER],
      // An image of a component names no groups, so that there is nothing to leave out.
      supplementalGroupsPolicy: true,
      notes:
        isolationProblem === undefined ? [] : [`components are less isolated than they should be: ${isolationProblem}`],
    };
  }

  async list(signal: AbortSignal): Promise<readonly PodListing[]> {
    checkCancelled(signal, "the list of pods");
    await this.#open();
    const how = this.#howThorough();
    for (const pod of this.#pods.values()) for (const run of pod.containers.values()) await run.check(how);
    // What a pod shows changes with them.
    const addresses = this.#components.hostIps().join(" ");
    return [...this.#pods.values()].map(({ uid, version }) => ({ uid, version: `${version} ${addresses}` }));
  }

  async inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod> {
    checkCancelled(signal, "the look at a pod");
    await this.#open();
    const pod = this.#pods.get(uid);
    if (pod === undefined) return { uid, sandboxes: [], containers: [], manifest: undefined };
    for (const run of pod.containers.values()) await run.settled();
    const sandboxes = [...pod.sandboxes.values()].sort((one, other) => other.attempt - one.attempt);
    const containers = [...pod.containers.values()].map(observedContainer);
    const [newest] = sandboxes;
    return {
      uid,
      sandboxes: sandboxes.map(({ id, attempt, createdAtMs, stopped }) => {
        return { id, attempt, state: stopped ? "notReady" : "ready", createdAtMs, ips: this.#components.hostIps() };
      }),
      containers: containers.sort((one, other) => other.attempt - one.attempt || other.createdAtMs - one.createdAtMs),
      manifest: newest === undefined ? undefined : this.#state.readManifest(uid, newest.attempt),
    };
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

  /** Whether a container of this pod would start, as far as that can be told without starting it. @throws why not */
  async check(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    await this.#open();
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
    return this.#hints.read(signal);
  }

  /** The runner looks at the file's name before each write: a new file is all that it needs. */
  async reopenLog(uid: PodUid, containerId: string, signal: AbortSignal): Promise<void> {
    checkCancelled(signal, "the reopening of a log");
    await this.#open();
    const run = this.#pods.get(uid)?.containers.get(containerId);
    if (run === undefined || run.hasEnded) {
      throw new PicoletError("not_found", `cannot reopen the log of container ${containerId}: it does not run`);
    }
    createLog(run.file);
  }

  /** A component has its two outputs, which it writes into its log; nothing can be started beside it. */
  async stream(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream> {
    checkCancelled(signal, "the opening of a stream");
    await this.#open();
    if (request.kind === "exec") throw noSecondProgram();
    if (request.kind === "portForward") throw noAddress();
    const run = this.#pods.get(uid)?.containers.get(request.containerId);
    if (run === undefined || run.hasEnded) {
      throw new PicoletError("not_found", `cannot attach to container ${request.containerId}: it does not run`);
    }
    if (request.stdin || request.tty) throw noInput();
    return { kind: "log", logPath: run.file.logPath };
  }

  async sharedUsage(signal: AbortSignal): Promise<ReadonlyMap<string, SharedUsage>> {
    checkCancelled(signal, "the look at what containers use");
    await this.#open();
    return (await (await this.#dense)?.usage()) ?? new Map();
  }

  execSync(): Promise<ExecResult> {
    return Promise.reject(noSecondProgram());
  }

  /** Runners run on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort();
    this.#watcher?.close();
    await (await this.#servicePort)?.[Symbol.asyncDispose]();
    (await this.#dense)?.dispose();
    await this.#transpiler[Symbol.asyncDispose]();
  }

  /** By their digests. */
  async #usedComponents(): Promise<string[]> {
    await this.#open();
    const containers = [...this.#pods.values()].flatMap((pod) => [...pod.containers.values()]);
    return containers.map(({ file }) => file.imageId.replace(/^sha256:/, ""));
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
        const run = this.#container(pod.uid, action.containerId);
        if (run !== undefined) return await this.#starter.update(run, pod, action);
        throw new PicoletError("not_found", `cannot update container ${action.containerId}: it is not there`);
      }
      case "removeContainer":
        return this.#removeContainer(pod.uid, action.containerId);
      case "stopSandbox":
        return this.#stopSandbox(pod.uid, action.sandboxId, signal);
      case "removeSandbox":
        return this.#removeSandbox(pod.uid, action.sandboxId, signal);
    }
  }

  /** Whoever wants SIGKILL in the place of SIGTERM gets it. */
  async #stopContainer(
    { uid, pod }: DesiredPod,
    { containerId, gracePeriod }: Stop,
    signal: AbortSignal,
  ): Promise<void> {
    const run = this.#container(uid, containerId);
    if (run === undefined) return;
    const isKilled = findContainer(pod, run.file.name)?.lifecycle?.stopSignal === "SIGKILL";
    await run.stop(isKilled ? millis(0) : gracePeriod, signal);
  }

  #createSandbox(desired: DesiredPod, launch: SandboxLaunch): void {
    if (!UID.test(desired.uid)) throw new PicoletError("invalid", `cannot use the uid ${JSON.stringify(desired.uid)}`);
    refuseWhatComponentsCannotBe(desired.pod);
    const pod = this.#pods.get(desired.uid) ?? newRecord(desired.uid);
    if (pod.sandboxes.has(launch.attempt)) return;
    const createdAtMs = this.#components.clock.wall().getTime();
    const id = sandboxId(desired.uid, launch.attempt, createdAtMs);
    const sandbox = { ...launch, id, createdAtMs };
    this.#state.writeSandbox(desired.uid, { ...sandbox, desired });
    pod.sandboxes.set(launch.attempt, { ...sandbox, stopped: false });
    this.#pods.set(desired.uid, pod);
    this.#changed(desired.uid);
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
        this.#serve(run);
      };
      await this.#starter.start(desired, sandbox, launch, onMade, signal);
    } catch (error) {
      if (made !== undefined) pod.containers.delete(made.file.id);
      throw error;
    } finally {
      this.#changed(desired.uid);
    }
  }

  #container(uid: PodUid, id: string): ContainerRun | undefined {
    return this.#pods.get(uid)?.containers.get(id);
  }

  async #removeContainer(uid: PodUid, id: string): Promise<void> {
    const run = this.#container(uid, id);
    if (run === undefined) return;
    await run.check("thorough");
    if (!run.hasEnded) throw new PicoletError("conflict", `cannot remove container ${id}: it runs`);
    this.#forgetContainer(uid, id);
  }

  #forgetContainer(uid: PodUid, id: string): void {
    this.#state.removeContainer(uid, id);
    this.#pods.get(uid)?.containers.delete(id);
    this.#changed(uid);
  }

  async #stopSandbox(uid: PodUid, id: string, signal: AbortSignal): Promise<void> {
    const pod = this.#pods.get(uid);
    const sandbox = sandboxOf(pod, id);
    if (pod === undefined || sandbox === undefined) return;
    if (!sandbox.stopped) {
      this.#state.markStopped(uid, sandbox.attempt);
      sandbox.stopped = true;
      this.#changed(uid);
    }
    for (const run of pod.containers.values()) if (run.file.sandboxId === id) await run.stop(millis(0), signal);
  }

  async #removeSandbox(uid: PodUid, id: string, signal: AbortSignal): Promise<void> {
    await this.#stopSandbox(uid, id, signal);
    const pod = this.#pods.get(uid);
    const sandbox = sandboxOf(pod, id);
    if (pod === undefined || sandbox === undefined) return;
    for (const run of [...pod.containers.values()]) {
      if (run.file.sandboxId === id) this.#forgetContainer(uid, run.file.id);
    }
    this.#state.removeSandbox(uid, sandbox.attempt);
    pod.sandboxes.delete(sandbox.attempt);
    if (pod.sandboxes.size === 0 && pod.containers.size === 0) this.#pods.delete(uid);
    this.#changed(uid);
  }

  #changed(uid: string): void {
    const pod = this.#pods.get(uid);
    this.#lastVersion += 1;
    if (pod !== undefined) pod.version = this.#lastVersion;
    this.#hints.hint(podUid(uid));
  }

  #howThorough(): "quick" | "thorough" {
    const now = this.#components.clock.monotonic();
    if (now - this.#lastThoroughAt < THOROUGH_INTERVAL) return "quick";
    this.#lastThoroughAt = now;
    return "thorough";
  }

  /** Takes up what agents before this one left, once. */
  #open(): Promise<void> {
    this.#opened ??= this.#takeUp().catch((error: unknown) => {
      this.#opened = undefined;
      throw fileError(error, `cannot use the state folder ${this.#state.path}`);
    });
    return this.#opened;
  }

  async #takeUp(): Promise<void> {
    const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const sameBoot = this.#state.open(bootId);
    this.#watcher?.close();
    this.#watcher = watch(this.#state.exitsDirectory, { persistent: false }, (_event, name) => {
      if (name !== null) this.#onExitFile(name);
    });
    this.#watcher.on("error", (error) => {
      this.#components.log.warn("exits of components are not seen at once, only with the next list", { error });
    });
    for (const uid of this.#state.podUids()) await this.#takeUpPod(podUid(uid), sameBoot);
    // Those too in which nobody is any more.
    if (existsSync(this.#state.denseDirectory)) await (await this.#denseStarts()).settle();
    const containers = [...this.#pods.values()].flatMap((pod) => [...pod.containers.keys()]);
    this.#state.removeStrayExits(new Set(containers));
    this.#state.markBoot(bootId);
  }

  async #takeUpPod(uid: PodUid, sameBoot: boolean): Promise<void> {
    const pod = newRecord(uid);
    this.#pods.set(uid, pod);
    for (const attempt of this.#state.sandboxAttempts(uid)) {
      const file = this.#state.readSandbox(uid, attempt);
      if (file === undefined) {
        this.#state.removeSandbox(uid, attempt);
        continue;
      }
      if (!sameBoot) this.#state.markStopped(uid, attempt);
      const { desired: _, ...sandbox } = file;
      pod.sandboxes.set(attempt, { ...sandbox, stopped: this.#state.isStopped(uid, attempt) });
    }
    for (const id of this.#state.containerIds(uid)) await this.#takeUpContainer(pod, id, sameBoot);
    if (pod.sandboxes.size > 0 || pod.containers.size > 0) return;
    this.#state.removePodIfEmpty(uid);
    this.#pods.delete(uid);
  }

  async #takeUpContainer(pod: PodRecord, id: string, sameBoot: boolean): Promise<void> {
    const file = this.#state.readContainer(pod.uid, id);
    const run = file === undefined ? undefined : await this.#starter.adopted(file);
    if (run !== undefined && (await run.adopt(sameBoot))) {
      pod.containers.set(id, run);
      this.#serve(run);
    } else this.#state.removeContainer(pod.uid, id);
  }

  #denseStarts(): Promise<DenseStarts> {
    this.#dense ??= this.#loadDense();
    return this.#dense;
  }

  async #loadDense(): Promise<DenseStarts> {
    const { clock, log, cgroups } = this.#components;
    const { cgroupSettings, denseCgroup: cgroupPath, limits = {} } = this.#init;
    const state = this.#state;
    const disposed = this.#disposed.signal;
    const { makeDenseStarts } = await import("./dense/dense-starts.ts");
    return makeDenseStarts(
      { clock, log, cgroups, state, disposed, isolation: this.#isolation, onChange: (uid) => this.#changed(uid) },
      {
        directory: state.denseDirectory,
        cgroupPath,
        startTimeout: limits.startTimeout ?? DEFAULT_START_TIMEOUT,
        turnTimeout: limits.denseTurnTimeout ?? DEFAULT_DENSE_TURN_TIMEOUT,
      },
      cgroupSettings,
    );
  }

  /** From the first container on that may ask for something; without one nothing of it is loaded. */
  #serve(run: ContainerRun): void {
    if (run.file.services === undefined || run.hasEnded) return;
    this.#servicePort ??= this.#openServicePort();
    this.#servicePort.catch((error: unknown) => {
      this.#servicePort = undefined;
      this.#components.log.error("components cannot ask the agent for anything", { error });
    });
  }

  async #openServicePort(): Promise<ServicePort> {
    const { clock, log } = this.#components;
    const { ServicePort } = await import("./services/service-port.ts");
    const services = { ...this.#components.services, ...this.#deviceServices() };
    const peerOf = (token: string): ServicePeer | undefined => this.#peerOf(token);
    return ServicePort.open({ clock, log, services, peerOf }, `${this.#state.servicesDirectory}/${SERVICE_SOCKET}`);
  }

  #deviceServices(): BoardServices {
    const { nodePath, devicesPath, runnerPath } = this.#init;
    const { servicesDirectory, path } = this.#state;
    const lockDirectory = `${path}/device-locks`;
    return deviceServices(this.#components, { nodePath, devicesPath, runnerPath, servicesDirectory, lockDirectory });
  }

  #peerOf(token: string): ServicePeer | undefined {
    for (const { containers } of this.#pods.values()) {
      for (const { file, hasEnded } of containers.values()) {
        if (file.services?.token === token && !hasEnded) return file.services.peer;
      }
    }
    return undefined;
  }

  #onExitFile(id: string): void {
    for (const pod of this.#pods.values()) void pod.containers.get(id)?.takeExit();
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

const newRecord = (uid: PodUid): PodRecord => ({ uid, sandboxes: new Map(), containers: new Map(), version: 0 });

const sandboxOf = (pod: PodRecord | undefined, id: string): SandboxRecord | undefined =>
  [...(pod?.sandboxes.values() ?? [])].find((each) => each.id === id);

const sandboxId = (uid: PodUid, attempt: number, createdAtMs: number): string =>
  createHash("sha256").update([uid, attempt, createdAtMs].join("\n")).digest("hex");

/** As container runtimes tell it: the group is one of the groups. */
const userOf = ({ uid, gid, groups }: Identity): ObservedContainer["user"] => ({
  uid,
  gid,
  supplementalGroups: [...new Set([gid, ...groups])],
});

function observedContainer({ file, state }: ContainerRun): ObservedContainer {
  const { id, name, attempt, sandboxId, createdAtMs, hash, backoff, image, imageId, logPath, resources } = file;
  const user = file.identity && userOf(file.identity);
  const own = { id, name, attempt, sandboxId, createdAtMs, state, hash, backoff, image, imageId, logPath, user };
  return resources === undefined ? own : { ...own, resources };
}

function missingProgram({ nodePath, runnerPath, transpilePath }: WasmAdapterInit): string | undefined {
  try {
    accessSync(nodePath, constants.X_OK);
    for (const path of [runnerPath, transpilePath]) accessSync(path, constants.R_OK);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

const condition = (type: string, problem: string | undefined): RuntimeCondition => ({
  type,
  status: problem === undefined,
  reason: problem === undefined ? "" : "ComponentRuntimeNotUsable",
  message: problem ?? "",
});
