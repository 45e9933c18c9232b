/**
 * Component runtimes for tests: folders and cgroups of their own, and pods in them. Their end is the end of all they
 * ran.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, watch } from "node:fs";
import { dirname } from "node:path";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { CgroupTree } from "@picolet/agent/resources/cgroup-tree.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Clock, millis, podUid } from "@picolet/protocol/ports.ts";
import type { BoardServices } from "@picolet/runtime-contract/board-services.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  ObservedContainer,
  RuntimeAdapter,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type {
  WasmAdapterComponents,
  WasmAdapterInit,
  WasmLimits,
} from "@picolet/runtime-wasm/adapter/adapter-settings.ts";
import { ProcessFolder } from "@picolet/runtime-wasm/adapter/dense/process-folder.ts";
import { ProcessLink } from "@picolet/runtime-wasm/adapter/dense/process-link.ts";
import { killGroup, type ProcessId } from "@picolet/runtime-wasm/adapter/state/process-id.ts";
import { StateFolder } from "@picolet/runtime-wasm/adapter/state/state-folder.ts";
import { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { WasmOnDemand } from "@picolet/runtime-wasm/adapter/wasm-on-demand.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";
import { settled } from "../unit/ports/settled.ts";
import { keepingPrograms, type TestPrograms } from "./components.ts";

const SETTINGS = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 };

export interface WasmRuntimeOptions {
  /** Default true: where this process may make them. */
  readonly cgroups?: boolean;
  readonly limits?: WasmLimits;
  readonly services?: BoardServices;
  readonly pullLimits?: WasmAdapterInit["pullLimits"];
  readonly registries?: WasmAdapterInit["registries"];
  readonly proxies?: WasmAdapterInit["proxies"];
  readonly p3?: WasmAdapterInit["p3"];
  /** Default: logs grow without end, as nothing rotates them. */
  readonly logLimit?: WasmAdapterInit["logLimit"];
  readonly caFile?: WasmAdapterInit["caFile"];
  /** Default: the machine's. */
  readonly clock?: Clock;
  /** Images and transpiled components, where several tests share them; else the test's own. */
  readonly rootDirectory?: string;
  /** Default: made of the sources, with a transpiler that keeps what it made. */
  readonly programs?: TestPrograms;
}

export class WasmRuntime implements AsyncDisposable {
  readonly log = new RecordedLog();
  /** The node's. */
  addresses: readonly string[] = ["192.0.2.7", "2001:db8::7"];
  /** Warnings for the users of pods. */
  readonly warnings: string[] = [];
  readonly state: StateFolder;
  /** Undefined where the test wants none. */
  readonly cgroups: CgroupTree | undefined;
  readonly folder = new TempFolder();
  readonly #cgroupRoot = `/picolet-test-${randomBytes(4).toString("hex")}`;
  readonly #programs: TestPrograms;
  readonly #options: WasmRuntimeOptions;

  private constructor(programs: TestPrograms, cgroups: CgroupTree | undefined, options: WasmRuntimeOptions) {
    this.#programs = programs;
    this.#options = options;
    this.cgroups = cgroups;
    this.state = new StateFolder(this.folder.at("state"));
  }

  static async create(options: WasmRuntimeOptions = {}): Promise<WasmRuntime> {
    const programs = options.programs ?? (await keepingPrograms());
    const hierarchies = options.cgroups === false ? undefined : await detectCgroups();
    const log = new RecordedLog();
    const cgroups =
      hierarchies === undefined ? undefined : new CgroupTree({ log, clock: systemClock }, { hierarchies });
    return new WasmRuntime(programs, cgroups, options);
  }

  /** A cgroup of no container, for a test's own processes. */
  get floorCgroup(): string {
    return `${this.#cgroupRoot}/floor`;
  }

  /** One life of an agent on this runtime. */
  adapter(): WasmAdapter {
    return new WasmAdapter(this.#components, this.adapterInit);
  }

  /** The same, as an agent has it until a component comes. */
  adapterOnDemand(): WasmOnDemand {
    return new WasmOnDemand(this.#components, this.adapterInit);
  }

  get #components(): WasmAdapterComponents {
    const { log, cgroups, warnings } = this;
    const hostIps = (): readonly string[] => this.addresses;
    const warn = (_: DesiredPod, reason: string, message: string): void => void warnings.push(`${reason}: ${message}`);
    const { services = {}, clock = systemClock } = this.#options;
    return { clock, log, cgroups, hostIps, warn, services };
  }

  get adapterInit(): WasmAdapterInit {
    return {
      rootDirectory: this.#options.rootDirectory ?? this.folder.at("root"),
      stateDirectory: this.state.path,
      nodePath: process.execPath,
      ...this.#programs,
      cgroupSettings: SETTINGS,
      transpileCgroup: `${this.#cgroupRoot}/transpile`,
      pullCgroup: `${this.#cgroupRoot}/pull`,
      pullLimits: this.#options.pullLimits,
      registries: this.#options.registries,
      proxies: this.#options.proxies,
      p3: this.#options.p3,
      logLimit: this.#options.logLimit,
      caFile: this.#options.caFile,
      spareCgroup: `${this.#cgroupRoot}/spare`,
      denseCgroup: `${this.#cgroupRoot}/dense`,
      limits: this.#options.limits,
    };
  }

  async preparePod(pod: DesiredPod): Promise<Pick<SandboxLaunch, "logDirectory" | "cgroupParent">> {
    const logDirectory = this.folder.at("logs", pod.uid);
    mkdirSync(logDirectory, { recursive: true });
    const cgroupParent = `${this.#cgroupRoot}/pod${pod.uid}`;
    const created = await this.cgroups?.create(cgroupParent, {});
    return { logDirectory, cgroupParent: created === undefined ? "" : cgroupParent };
  }

  cgroupOf(containerId: string): string | undefined {
    return this.#find(containerId, (uid) => this.state.readContainer(uid, containerId)?.cgroupPath);
  }

  /** The cgroup of the process that it shares. */
  denseCgroupOf(containerId: string): string | undefined {
    return this.#hostFolder(containerId).group()?.cgroupPath;
  }

  runner(containerId: string): ProcessId | undefined {
    return this.#find(containerId, (uid) => this.state.runner(uid, containerId));
  }

  reaper(containerId: string): ProcessId | undefined {
    return this.#find(containerId, (uid) => this.state.reaper(uid, containerId));
  }

  /** The containers that share this process. */
  containersOf(pid: number): string[] {
    const ids = this.state.podUids().flatMap((uid) => this.state.containerIds(uid));
    return ids.filter((id) => this.reaper(id)?.pid === pid && !this.#hasEnded(id));
  }

  /** Containers that shared processes say they have. */
  async heldByHosts(): Promise<string[]> {
    const directory = this.state.denseDirectory;
    const held: string[] = [];
    for (const name of existsSync(directory) ? readdirSync(directory) : []) {
      const { socketPath } = new ProcessFolder(`${directory}/${name}`);
      const link = new ProcessLink({ socketPath, onEnded: () => undefined, onClose: () => undefined });
      held.push(...(await link.hello));
      link.close();
    }
    return held;
  }

  /** The processes of a container's shared host: itself, the keeper of its mounts, its reaper. */
  processesOfHost(containerId: string): number[] {
    const folder = this.#hostFolder(containerId);
    return [folder.process(), folder.mounter(), folder.reaper()].flatMap((each) => each?.pid ?? []);
  }

  #hostFolder(containerId: string): ProcessFolder {
    const file = this.#find(containerId, (uid) => this.state.readContainer(uid, containerId));
    return new ProcessFolder(`${this.state.denseDirectory}/${file?.dense?.host}`);
  }

  /** Stops a container past the adapter, as kill(1) does with a process. */
  async stopInHost(containerId: string, exitCode: number): Promise<void> {
    const ended = Promise.withResolvers<void>();
    const link = new ProcessLink({
      socketPath: this.#hostFolder(containerId).socketPath,
      onEnded: (id) => id === containerId && ended.resolve(),
      onClose: ended.resolve,
    });
    await link.hello;
    link.stop(containerId, exitCode);
    await ended.promise;
    link.close();
  }

  #hasEnded(id: string): boolean {
    const end = this.#find(id, (uid) => readFileSync(this.state.endPath(uid, id), "utf8"));
    return end !== "";
  }

  #find<T>(containerId: string, look: (uid: string) => T | undefined): T | undefined {
    const uid = this.state.podUids().find((each) => this.state.containerIds(each).includes(containerId));
    return uid === undefined ? undefined : look(uid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.state.open("");
    for (const name of existsSync(this.state.denseDirectory) ? readdirSync(this.state.denseDirectory) : []) {
      const reaper = new ProcessFolder(`${this.state.denseDirectory}/${name}`).reaper();
      if (reaper !== undefined) killGroup(reaper);
    }
    for (const uid of this.state.podUids()) {
      for (const id of this.state.containerIds(uid)) {
        const reaper = this.state.reaper(uid, id);
        const runner = this.state.runner(uid, id);
        if (reaper !== undefined) killGroup(reaper);
        if (runner !== undefined) killGroup(runner);
      }
    }
    // A shell that was started a moment ago joins its cgroups whenever it gets to run, one after the other.
    assert.deepEqual(await settled(() => this.#busyCgroups()), []);
    this.folder[Symbol.dispose]();
  }

  async #busyCgroups(): Promise<readonly string[]> {
    await this.cgroups?.kill(this.#cgroupRoot, AbortSignal.timeout(60_000));
    try {
      await this.cgroups?.remove(this.#cgroupRoot);
      return [];
    } catch (error) {
      if (!isPicoletError(error, "conflict")) throw error;
      return [describeError(error)];
    }
  }
}

export interface WasmPodOptions {
  readonly name?: string;
  readonly image: string;
  /** Annotations of the pod. */
  readonly annotations?: Readonly<Record<string, string>>;
  readonly namespace?: string;
  /** More of the pod's `spec`. */
  readonly spec?: Readonly<Record<string, unknown>>;
  /** More of its one container. */
  readonly container?: Readonly<Record<string, unknown>>;
}

type HintingAdapter = RuntimeAdapter & Required<Pick<RuntimeAdapter, "hints">>;

export interface LogLine {
  readonly time: string;
  readonly stream: string;
  readonly tag: string;
  readonly text: string;
}

export type Exit = Extract<ObservedContainer["state"], { kind: "exited" }>;

const NEVER = new AbortController().signal;
/** Real time, and only when something is broken. */
const PATIENCE_MS = 30_000;

/** A pod with one container, `main`, in a sandbox that is ready. */
export class WasmPod implements AsyncDisposable {
  readonly desired: DesiredPod;
  readonly #adapter: HintingAdapter;
  readonly #runtime: WasmRuntime;
  readonly #image: string;

  private constructor(runtime: WasmRuntime, adapter: HintingAdapter, desired: DesiredPod, image: string) {
    this.#runtime = runtime;
    this.#adapter = adapter;
    this.desired = desired;
    this.#image = image;
  }

  static async create(runtime: WasmRuntime, adapter: HintingAdapter, options: WasmPodOptions): Promise<WasmPod> {
    const name = options.name ?? "test";
    const uid = `${name}-6f2a`;
    const container = { name: "main", image: options.image, resources: {}, ...options.container };
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace: options.namespace ?? "default", uid, annotations: options.annotations ?? {} },
      spec: { restartPolicy: "Always", securityContext: {}, containers: [container], ...options.spec },
    } as unknown as Pod;
    const desired: DesiredPod = { uid: podUid(uid), source: "file", origin: `/manifests/${name}.yaml`, pod };
    const folders = await runtime.preparePod(desired);
    const sandbox = { attempt: 0, hostname: name, dns: undefined, ...folders };
    await adapter.apply(desired, { kind: "createSandbox", sandbox }, NEVER);
    return new WasmPod(runtime, adapter, desired, options.image);
  }

  async start(run: Partial<ContainerLaunch> = {}, signal = NEVER): Promise<ObservedContainer> {
    const info = await this.#adapter.images.status(this.#image, signal);
    assert.ok(info, `the image ${this.#image} is there`);
    const attempt = run.attempt ?? 0;
    const container: ContainerLaunch = {
      name: "main",
      hash: "hash",
      backoff: millis(0),
      image: { requested: this.#image, id: info.id },
      command: [],
      args: [],
      env: [],
      workingDir: "",
      mounts: [],
      logPath: `main/${attempt}.log`,
      ...run,
      attempt,
    };
    await this.#adapter.apply(this.desired, { kind: "startContainer", container }, signal);
    return this.container((each) => each.attempt === attempt);
  }

  async container(which: (each: ObservedContainer) => boolean): Promise<ObservedContainer> {
    const found = (await this.#adapter.inspect(this.desired.uid, NEVER)).containers.find(which);
    assert.ok(found, "the container is there");
    return found;
  }

  async stop(id: string, gracePeriod = millis(0)): Promise<void> {
    await this.#adapter.apply(this.desired, { kind: "stopContainer", containerId: id, gracePeriod }, NEVER);
  }

  /** Waits for hints until the container has ended. */
  async exit(id: string): Promise<Exit> {
    const ended = async (): Promise<Exit | undefined> => {
      const { state } = await this.container((each) => each.id === id);
      return state.kind === "exited" ? state : undefined;
    };
    return this.#hinted(ended);
  }

  /** @returns when it was killed, milliseconds since the epoch. */
  async killAndAwaitHint(id: string): Promise<number> {
    const runner = this.#runtime.runner(id);
    assert.ok(runner, "it has a runner");
    const at = Date.now();
    process.kill(runner.pid, "SIGKILL");
    await this.exit(id);
    return at;
  }

  async #hinted<T>(look: () => Promise<T | undefined>): Promise<T> {
    const enough = new AbortController();
    // It keeps the process alive too: a reader of hints does not.
    const patience = setTimeout(() => enough.abort(), PATIENCE_MS);
    const hints = this.#adapter.hints(enough.signal)[Symbol.asyncIterator]();
    try {
      // The reader stands before the first look, so that nothing falls between them.
      for (let next = hints.next(); ; next = hints.next()) {
        const found = await look();
        if (found !== undefined) return found;
        assert.notEqual((await next).done, true, "gave up waiting for a hint");
      }
    } finally {
      clearTimeout(patience);
      enough.abort();
    }
  }

  /** The whole lines of its log, waited for until there are `atLeast`. */
  async lines(container: Pick<ObservedContainer, "logPath">, atLeast: number): Promise<readonly LogLine[]> {
    const { logPath } = container;
    const { promise, reject } = Promise.withResolvers<never>();
    const patience = setTimeout(
      () => reject(new Error(`gave up waiting for ${atLeast} lines in ${logPath}`)),
      PATIENCE_MS,
    );
    let changed = Promise.withResolvers<void>();
    const watcher = watch(dirname(logPath), () => changed.resolve());
    try {
      for (;;) {
        const lines = parseLog(existsSync(logPath) ? readFileSync(logPath, "utf8") : "");
        if (lines.length >= atLeast) return lines;
        await Promise.race([changed.promise, promise]);
        changed = Promise.withResolvers();
      }
    } finally {
      watcher.close();
      clearTimeout(patience);
    }
  }

  async text(container: Pick<ObservedContainer, "logPath">, atLeast: number): Promise<string[]> {
    return (await this.lines(container, atLeast)).map((each) => each.text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { sandboxes } = await this.#adapter.inspect(this.desired.uid, NEVER);
    for (const { id } of sandboxes) {
      await this.#adapter.apply(this.desired, { kind: "removeSandbox", sandboxId: id }, NEVER);
    }
  }
}

function parseLog(content: string): LogLine[] {
  return content
    .split("\n")
    .slice(0, -1)
    .map((line) => {
      const [, time, stream, tag, text] = /^(\S+) (stdout|stderr) ([PF]) (.*)$/.exec(line) ?? [];
      assert.ok(time && stream && tag && text !== undefined, `a line in the CRI format: ${line.slice(0, 100)}`);
      return { time, stream, tag, text };
    });
}
