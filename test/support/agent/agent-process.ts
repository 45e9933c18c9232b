/** The real agent as a process of its own, as a user starts it: `dist/board/bin/picolet` with a configuration file. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, watch, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { entriesBelow } from "../unit/machine/folder-tree.ts";
import { removeAbandoned, unmountWithin } from "../unit/machine/mount-folder.ts";
import { writeOwner } from "../unit/machine/owner-file.ts";
import { killAll, runningProcesses } from "../unit/machine/processes.ts";
import { cgroupProcesses, removeCgroups, untilCgroupEmpty } from "../unit/machine/test-cgroups.ts";
import { AgentClient, WAIT_LIMIT_MS } from "./agent-socket.ts";

/** Bounds the log that is kept for a failing test's message. */
const MAX_LOG_CHARACTERS = 100_000;

export interface AgentOptions {
  /** Fields of the configuration besides the paths, which lie below the agent's own folder. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Lines of the agent's log that a failed wait shows. */
  readonly logTail?: number;
  /** The command that the agent's arguments follow, given the node's folder. Default: `dist/board/bin/picolet`. */
  readonly program?: (directory: string) => readonly [program: string, ...args: string[]];
}

/** One node's folders; agents may come and go on it. */
export class AgentNode extends AgentClient implements AsyncDisposable {
  readonly directory = mkdtempSync(join(tmpdir(), "picolet-node-"));
  readonly manifests = join(this.directory, "manifests");
  readonly socketPath = join(this.directory, "run", "picolet.sock");
  readonly configPath = join(this.directory, "config.yaml");
  readonly cgroupRoot = `/picolet-test-${this.directory.slice(-6)}`;
  /** The output of the former agents and of this one; the oldest part is dropped at the limit. */
  #earlierLog = "";
  #currentLog = "";
  readonly #logTail: number;
  readonly #program: readonly [program: string, ...args: string[]];
  #process: ChildProcess | undefined;

  constructor(options: AgentOptions = {}) {
    super();
    removeAbandoned();
    writeOwner(this.directory);
    this.#logTail = options.logTail ?? 60;
    this.#program = options.program?.(this.directory) ?? ["dist/board/bin/picolet"];
    mkdirSync(this.manifests);
    mkdirSync(join(this.directory, "run"));
    const config = {
      nodeName: "node",
      staticPodPath: this.manifests,
      podLogsDir: join(this.directory, "logs"),
      containerRuntimeEndpoint: "",
      cgroupRoot: this.cgroupRoot,
      // Agents of other tests run on this machine.
      enableServer: false,
      ...options.config,
    };
    writeFileSync(this.configPath, JSON.stringify(config));
  }

  /** For the agents that are started from now on. */
  configure(changes: Readonly<Record<string, unknown>>): void {
    const config = JSON.parse(readFileSync(this.configPath, "utf8")) as object;
    writeFileSync(this.configPath, JSON.stringify({ ...config, ...changes }));
  }

  get pid(): number {
    const pid = this.#process?.pid;
    if (pid === undefined) throw new Error("no agent runs on this node");
    return pid;
  }

  get log(): string {
    return this.#earlierLog + this.#currentLog;
  }

  protected override latestLog(): string {
    return this.log.split("\n").slice(-this.#logTail).join("\n");
  }

  /** Starts an agent and waits until its socket answers. */
  async start(): Promise<void> {
    await this.#answers(this.spawn());
  }

  /** Starts an agent and waits for nothing. The agent ends with this process, however that ends. */
  spawn(): ChildProcess {
    const args = ["--config", this.configPath, "--root-dir", join(this.directory, "root"), "--socket", this.socketPath];
    const command = ["--pdeathsig", "KILL", ...this.#program, ...args];
    const child = spawn("setpriv", command, { stdio: ["ignore", "ignore", "pipe"] });
    this.#process = child;
    this.#earlierLog = this.log.slice(-MAX_LOG_CHARACTERS);
    this.#currentLog = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#currentLog = (this.#currentLog + text).slice(-MAX_LOG_CHARACTERS);
    });
    return child;
  }

  /** Waits until the agent has restarted by itself, in the same process, and its socket answers. */
  async waitForRestart(): Promise<void> {
    const child = this.#process;
    if (child === undefined) throw new Error("no agent runs on this node");
    this.#earlierLog = this.log.slice(-MAX_LOG_CHARACTERS);
    this.#currentLog = "";
    await this.#answers(child);
  }

  async #answers(child: ChildProcess): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const onText = (): void => {
        if (this.#currentLog.includes("local API listens")) settle(resolve);
      };
      const fail = (what: string) => (): void => settle(() => reject(new Error(`the agent ${what}:\n${this.log}`)));
      const onExit = fail("ended");
      const timer = setTimeout(fail(`did not listen within ${WAIT_LIMIT_MS / 1000} s`), WAIT_LIMIT_MS);
      const settle = (verdict: () => void): void => {
        clearTimeout(timer);
        child.stderr?.off("data", onText);
        child.off("close", onExit);
        verdict();
      };
      child.stderr?.on("data", onText);
      // Not before all that it has said has been read.
      child.on("close", onExit);
    });
  }

  /** SIGKILL: as if the power was cut, but for what runs beside the agent. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** SIGTERM; resolves with the exit code. */
  async stop(): Promise<number | null> {
    return await this.#end("SIGTERM");
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    const exited = once(child, "exit");
    child.kill(signal);
    const [code] = await exited;
    return code as number | null;
  }

  /** Atomically, as a careful user does: written beside and renamed over. Returns the moment of the rename. */
  writeManifest(file: string, manifest: unknown): number {
    const hidden = join(this.manifests, `.${file}.new`);
    writeFileSync(hidden, typeof manifest === "string" ? manifest : JSON.stringify(manifest));
    const at = Date.now();
    renameSync(hidden, join(this.manifests, file));
    return at;
  }

  removeManifest(file: string): void {
    rmSync(join(this.manifests, file));
  }

  /**
   * As a power cut does: every component's process ends, and what is kept in memory is gone. The agent is dead already.
   */
  cutPower(): void {
    this.#killRunners();
    unmountWithin(this.directory);
    rmSync(join(this.directory, "run"), { recursive: true });
    mkdirSync(join(this.directory, "run"));
  }

  /** Waits until `folder` has a file whose name fits. */
  async waitForFile(folder: string, fits: (name: string) => boolean): Promise<void> {
    const limit = AbortSignal.timeout(WAIT_LIMIT_MS);
    const watcher = watch(folder);
    try {
      while (!readdirSync(folder).some(fits)) await once(watcher, "change", { signal: limit });
    } finally {
      watcher.close();
    }
  }

  /** Takes all manifests away and waits until every pod is gone. */
  async drain(): Promise<void> {
    for (const file of readdirSync(this.manifests)) rmSync(join(this.manifests, file));
    await this.waitForPods("an empty node", (pods) => pods.size === 0);
  }

  /** The processes that run this node's components. */
  runnerPids(containerId = ""): number[] {
    const isRunner = (words: readonly string[]): boolean =>
      words.some((word) => word.startsWith(this.directory) && word.includes(containerId)) &&
      words.some((word) => /runner/.test(word)) &&
      basename(words[0] ?? "") === "node";
    return runningProcesses()
      .filter(({ words }) => isRunner(words))
      .map(({ pid }) => pid);
  }

  /**
   * With who waits for them, and goes first: else that one writes down how they ended while its folder is being
   * removed.
   */
  #killRunners(): void {
    const reapers = runningProcesses().filter(
      ({ words }) => words.includes("picolet-reaper") && words.some((word) => word.startsWith(this.directory)),
    );
    killAll([...reapers.map((each) => each.pid), ...this.runnerPids(), ...this.#jailedRunners()]);
  }

  /** In a jail a runner's command line does not have the node's folder; its cgroup is the node's. */
  #jailedRunners(): number[] {
    const ours = new Set(cgroupProcesses(this.cgroupRoot));
    return runningProcesses()
      .filter(({ pid, words }) => ours.has(pid) && words.some((word) => word.startsWith("/runner/")))
      .map(({ pid }) => pid);
  }

  /** Names of the pods' cgroups that exist (v1's memory controller), the tiers left out. */
  podCgroups(): string[] {
    const folders = entriesBelow(join("/sys/fs/cgroup/memory", this.cgroupRoot)).filter(({ isFolder }) => isFolder);
    return folders.map(({ path }) => basename(path)).filter((name) => /^pod/.test(name));
  }

  /** The processes that a failed test left running go too; cgroups go when they are empty. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    const left = this.runnerPids();
    this.#killRunners();
    if (left.length === 0 && this.podCgroups().length === 0) {
      // The runner that was kept ready ends with the agent, by itself.
      await untilCgroupEmpty(this.cgroupRoot);
      await removeCgroups(this.cgroupRoot);
    }
    // Volumes in memory.
    unmountWithin(this.directory);
    rmSync(this.directory, { recursive: true, force: true });
  }
}

export const restartsOf = (pod: Pod | undefined): number =>
  pod?.status?.containerStatuses?.reduce((sum, container) => sum + container.restartCount, 0) ?? 0;
