/** A component runtime of its own for a test: folders, cgroups where they can be had; its end is the end of all it ran. */
import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { systemClock } from "../../agent/core/system-clock.ts";
import { detectCgroups } from "../../agent/resources/cgroup-hierarchies.ts";
import { CgroupTree } from "../../agent/resources/cgroup-tree.ts";
import type { DesiredPod, SandboxLaunch } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { killGroup, type ProcessId } from "../../runtime-adapters/wasm/state/process-id.ts";
import { StateFolder } from "../../runtime-adapters/wasm/state/state-folder.ts";
import { WasmAdapter, type WasmLimits } from "../../runtime-adapters/wasm/wasm-adapter.ts";
import { testPrograms } from "./components.ts";
import { RecordedLog } from "./recorders.ts";
import { TempFolder } from "./temp-folder.ts";

const SETTINGS = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 };

export interface WasmRuntimeOptions {
  /** Default true: where this process may make them. */
  readonly cgroups?: boolean;
  readonly limits?: WasmLimits;
  /** Images and transpiled components, where several tests share them; else the test's own. */
  readonly rootDirectory?: string;
}

export class WasmRuntime implements AsyncDisposable {
  readonly log = new RecordedLog();
  readonly state: StateFolder;
  /** Undefined where the test wants none. */
  readonly cgroups: CgroupTree | undefined;
  readonly folder = new TempFolder();
  readonly #cgroupRoot = `/picolet-test-${randomBytes(4).toString("hex")}`;
  readonly #programs: Awaited<ReturnType<typeof testPrograms>>;
  readonly #options: WasmRuntimeOptions;

  private constructor(
    programs: Awaited<ReturnType<typeof testPrograms>>,
    cgroups: CgroupTree | undefined,
    options: WasmRuntimeOptions,
  ) {
    this.#programs = programs;
    this.#options = options;
    this.cgroups = cgroups;
    this.state = new StateFolder(this.folder.at("state"));
  }

  static async create(options: WasmRuntimeOptions = {}): Promise<WasmRuntime> {
    const programs = await testPrograms();
    const hierarchies = options.cgroups === false ? undefined : await detectCgroups();
    const log = new RecordedLog();
    const cgroups =
      hierarchies === undefined ? undefined : new CgroupTree({ log, clock: systemClock }, { hierarchies });
    return new WasmRuntime(programs, cgroups, options);
  }

  /** One life of an agent on this runtime. */
  adapter(): WasmAdapter {
    return new WasmAdapter(
      { clock: systemClock, log: this.log, cgroups: this.cgroups },
      {
        rootDirectory: this.#options.rootDirectory ?? this.folder.at("root"),
        stateDirectory: this.state.path,
        nodePath: process.execPath,
        ...this.#programs,
        cgroupSettings: SETTINGS,
        transpileCgroup: `${this.#cgroupRoot}/transpile`,
        limits: this.#options.limits,
      },
    );
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

  runner(containerId: string): ProcessId | undefined {
    return this.#find(containerId, (uid) => this.state.runner(uid, containerId));
  }

  reaper(containerId: string): ProcessId | undefined {
    return this.#find(containerId, (uid) => this.state.reaper(uid, containerId));
  }

  #find<T>(containerId: string, look: (uid: string) => T | undefined): T | undefined {
    const uid = this.state.podUids().find((each) => this.state.containerIds(each).includes(containerId));
    return uid === undefined ? undefined : look(uid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.state.open("");
    for (const uid of this.state.podUids()) {
      for (const id of this.state.containerIds(uid)) {
        const reaper = this.state.reaper(uid, id);
        const runner = this.state.runner(uid, id);
        if (reaper !== undefined) killGroup(reaper);
        if (runner !== undefined) killGroup(runner);
      }
    }
    await this.cgroups?.kill(this.#cgroupRoot, AbortSignal.timeout(10_000));
    await this.cgroups?.remove(this.#cgroupRoot);
    this.folder[Symbol.dispose]();
  }
}
