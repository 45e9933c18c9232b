/**
 * One process of several containers, as the agent sees it: started or adopted here, commanded, watched, and cleared
 * away.
 */
import { openSync, writeFileSync } from "node:fs";
import { checkCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, NEVER, seconds } from "@picolet/protocol/ports.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type { DenseUsage } from "../../shared/messages/dense-messages.ts";
import type { RunnerLaunch } from "../../shared/messages/launch.ts";
import type { Isolation } from "../isolation/isolation.ts";
import { startRunner } from "../runners/start-runner.ts";
import { isAlive, killGroup, type ProcessId, signalProcess } from "../state/process-id.ts";
import type { ContainerProcess, DenseRun } from "./dense-run.ts";
import { MAX_COMPLAINT_LENGTH, mountInProcess } from "./late-mounts.ts";
import { cpuMsOf, residentBytesOf } from "./process-figures.ts";
import type { DenseGroupFile, DenseTermination, ProcessFolder } from "./process-folder.ts";
import { ProcessLink } from "./process-link.ts";
import { TurnWatch, type TurnWatchInit, type WatchedProcess } from "./turn-watch.ts";

export interface DenseProcessComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly isolation: Isolation;
  readonly disposed: AbortSignal;
  /** One of its containers is gone, or it has ended with all of them. */
  readonly onChange: (host: DenseProcess) => void;
}

export interface DenseProcessInit extends TurnWatchInit {
  readonly startTimeout: Millis;
}

/**
 * For a process that is asked what it has, by an agent that was just started. One that does not answer is asked nothing
 * more.
 */
const HELLO_TIMEOUT = seconds(5);
const RECONNECT_DELAY = seconds(1);
/** Bounds how long eviction waits for the usage. */
const USAGE_TIMEOUT = millis(250);
/** Between `started` and the shell's line in its file is a system call or two. */
const MAX_PROCESS_CHECKS = 100;
const PROCESS_CHECK_INTERVAL = millis(20);

export class DenseProcess implements ContainerProcess {
  readonly name: string;
  readonly group: DenseGroupFile;
  readonly runs = new Map<string, DenseRun>();
  /** The memory limit of its cgroup, as it was last set. */
  memoryLimitBytes = Number.POSITIVE_INFINITY;
  readonly #components: DenseProcessComponents;
  readonly #init: DenseProcessInit;
  readonly #folder: ProcessFolder;
  #link: ProcessLink | undefined;
  #held: Promise<readonly string[]> = Promise.resolve([]);
  readonly #turns: TurnWatch;
  #usages: readonly DenseUsage[] = [];
  #oomScore: number;

  private constructor(
    name: string,
    group: DenseGroupFile,
    folder: ProcessFolder,
    components: DenseProcessComponents,
    init: DenseProcessInit,
    oomScore: number,
  ) {
    this.name = name;
    this.group = group;
    this.#folder = folder;
    this.#components = components;
    this.#init = init;
    this.#oomScore = oomScore;
    this.#turns = new TurnWatch(components, init, this.#watched());
  }

  /** @throws what starting a runner throws; nothing is left of it then but its folder */
  static async start(
    { name, group, folder, oomScore }: { name: string; group: DenseGroupFile; folder: ProcessFolder; oomScore: number },
    components: DenseProcessComponents,
    init: DenseProcessInit,
    signal: AbortSignal,
  ): Promise<DenseProcess> {
    const { clock, isolation, cgroups } = components;
    const host = new DenseProcess(name, group, folder, components, init, oomScore);
    folder.make(group);
    const { command, own } = await isolation.dense(folder.path, group);
    folder.writeLaunch(group.identity, own);
    const cgroup = group.cgroupPath === undefined ? undefined : await cgroups?.create(group.cgroupPath, {});
    const reaper = {
      ...{ directory: folder.path, exitPath: `${folder.path}/exit`, oomScoreAdj: oomScore, command },
      procsFiles: cgroup?.procsFiles ?? [],
    };
    try {
      const onReaperEnd = (): void => host.#check();
      const fatalFd = openSync(folder.fatalPath, "a", 0o600);
      await startRunner(clock, { reaper, fatalFd, timeout: init.startTimeout, onReaperEnd }, signal);
      await host.#standing();
    } catch (error) {
      const complaint = folder.fatal().slice(0, MAX_COMPLAINT_LENGTH);
      host.kill();
      throw complaint === "" ? error : new PicoletError("failed", complaint, { cause: error, retryable: true });
    }
    host.#connect();
    return host;
  }

  /** One that an agent before this one started; it may have ended. */
  static adopt(
    { name, group, folder }: { name: string; group: DenseGroupFile; folder: ProcessFolder },
    components: DenseProcessComponents,
    init: DenseProcessInit,
  ): DenseProcess {
    const host = new DenseProcess(name, group, folder, components, init, Number.NEGATIVE_INFINITY);
    if (!host.isAlive) return host;
    host.#connect();
    return host;
  }

  get id(): ProcessId | undefined {
    return this.#folder.process();
  }

  get isAlive(): boolean {
    const { id } = this;
    return id !== undefined && isAlive(id);
  }

  get residentBytes(): number {
    return residentBytesOf(this.id?.pid);
  }

  get blame(): DenseTermination | undefined {
    return this.#folder.blame();
  }

  /**
   * Starts a container that stands already.
   * @returns false when the process does not see what is mounted for it
   * @throws `failed` with what keeps the component from running, or the process has ended; `deadline_exceeded`
   */
  async start(run: DenseRun, launch: RunnerLaunch, oomScore: number, signal: AbortSignal): Promise<boolean> {
    const { clock, isolation } = this.#components;
    const { uid, id } = run.file;
    const folder = launch.endPath.slice(0, launch.endPath.lastIndexOf("/"));
    this.#folder.makePlace(id);
    const { launch: inside, fstab } = await isolation.furnishDense(launch, folder, id);
    if (fstab !== undefined) await mountInProcess(this.#folder.mounter(), fstab);
    checkCancelled(signal, "the start");
    this.#raiseOomScore(oomScore);
    this.runs.set(id, run);
    using done = joinSignals(signal);
    const time = clock.sleep(this.#init.startTimeout, done.signal).then(
      () => "late" as const,
      () => "late" as const,
    );
    this.#turns.begin();
    try {
      const code = launch.component.directory;
      const outcome = await Promise.race([this.#link?.start({ kind: "start", id, code, launch: inside }), time]);
      if (outcome === "late") {
        checkCancelled(signal, "the start");
        const limit = this.#init.startTimeout / 1000;
        throw new PicoletError("deadline_exceeded", `the component has not started within ${limit} s`);
      }
      if (outcome === undefined) {
        throw new PicoletError("failed", "the process of its namespace ended meanwhile", { retryable: true });
      }
      if (outcome.kind === "started") {
        if (!run.begun()) throw new PicoletError("internal", `the container ${uid}/${id} started in no process`);
        await run.takeExit();
        return true;
      }
      if (outcome.stale) return false;
      throw new PicoletError("failed", outcome.message);
    } finally {
      done.abort();
    }
  }

  async oomKills(): Promise<number> {
    const { cgroupPath } = this.group;
    return cgroupPath === undefined ? 0 : ((await this.#components.cgroups?.oomKills(cgroupPath)) ?? 0);
  }

  async holds(id: string): Promise<boolean> {
    return (await this.#held).includes(id);
  }

  stop(id: string, exitCode: number): void {
    this.#link?.stop(id, exitCode);
  }

  endIfHeldBy(id: string): void {
    if (this.#folder.turn() === id) this.#endFor(id, "it does not release its process, and had to stop");
  }

  async left(id: string): Promise<void> {
    const run = this.runs.get(id);
    this.runs.delete(id);
    this.stop(id, 0);
    this.#folder.removePlace(id);
    if (run !== undefined) this.#components.onChange(this);
  }

  /** Ends containers that it holds but the agent does not know. */
  async endStrays(): Promise<void> {
    for (const id of await this.#held) if (!this.runs.has(id)) this.stop(id, 0);
    if (!this.isAlive) return;
    for (const id of this.#folder.places()) if (!this.runs.has(id)) this.#folder.removePlace(id);
    if (this.runs.size > 0) this.#turns.begin();
  }

  /** The usage; the last known one for a process that does not answer in time. */
  async usage(): Promise<readonly DenseUsage[]> {
    const done = new AbortController();
    const time = this.#components.clock.sleep(USAGE_TIMEOUT, done.signal).catch(ignore("the answer came first"));
    const usages = await Promise.race([this.#link?.usage(), time.then(() => undefined)]);
    done.abort();
    this.#usages = usages ?? this.#usages;
    return this.#usages.filter(({ id }) => this.runs.has(id));
  }

  /** Kills it together with the process that keeps its mounts and waits for it. */
  kill(): void {
    const { id } = this;
    if (id !== undefined) signalProcess(id, "SIGKILL");
    const reaper = this.#folder.reaper();
    if (reaper !== undefined) killGroup(reaper);
  }

  /** Removes a process that has ended. */
  async remove(): Promise<void> {
    this.kill();
    this.#link?.close();
    const { cgroupPath } = this.group;
    if (cgroupPath !== undefined) {
      await this.#components.cgroups?.kill(cgroupPath, NEVER);
      await this.#components.cgroups?.remove(cgroupPath);
    }
    this.#folder.remove();
  }

  /** Closes the link; the process runs on. */
  release(): void {
    this.#link?.close();
  }

  async #standing(): Promise<void> {
    for (let check = 0; check < MAX_PROCESS_CHECKS; check += 1) {
      if (this.id !== undefined) return;
      await this.#components.clock.sleep(PROCESS_CHECK_INTERVAL, this.#components.disposed);
    }
    throw new PicoletError("internal", "the pid of the process of several components is unknown", { retryable: true });
  }

  #connect(): void {
    const { clock } = this.#components;
    const link = new ProcessLink({
      socketPath: this.#folder.socketPath,
      onEnded: (id) => void this.runs.get(id)?.reportedEnd(),
      onClose: () => this.#check(),
    });
    const done = new AbortController();
    const time = clock.sleep(HELLO_TIMEOUT, done.signal).then(
      (): readonly string[] => [],
      (): readonly string[] => [],
    );
    this.#link = link;
    this.#held = Promise.race([link.hello, time]).finally(() => done.abort());
  }

  /** The way to it is gone: most likely it has ended, with all its containers. */
  #check(): void {
    if (!this.#components.disposed.aborted) void this.#lost().catch(ignore("the next inspection finds it"));
  }

  async #lost(): Promise<void> {
    const { clock, disposed } = this.#components;
    if (this.isAlive) await clock.sleep(RECONNECT_DELAY, disposed);
    if (this.isAlive) {
      this.#connect();
      const held = await this.#held;
      for (const [id, run] of this.runs) if (!held.includes(id)) await run.reportedEnd();
      return;
    }
    await Promise.all([...this.runs.values()].map((run) => run.reaperEnded()));
    this.#components.onChange(this);
  }

  /** The kernel takes the process as what the most dispensable of its containers is. */
  #raiseOomScore(wanted: number): void {
    const { id } = this;
    if (id === undefined || wanted <= this.#oomScore) return;
    this.#oomScore = wanted;
    try {
      writeFileSync(`/proc/${id.pid}/oom_score_adj`, String(wanted));
    } catch {
      ignore("it has just ended");
    }
  }

  #watched(): WatchedProcess {
    return {
      isAlive: () => this.isAlive,
      hasContainers: () => this.runs.size > 0,
      cpuMs: () => cpuMsOf(this.id?.pid),
      ping: () => this.#link?.ping(),
      stuck: () => {
        const limit = this.#init.turnTimeout / 1000;
        this.#endFor(this.#folder.turn(), `it computed for ${limit} s without letting others of its process run`);
      },
    };
  }

  #endFor(id: string, message: string): void {
    const run = this.runs.get(id);
    this.#components.log.warn("a process of several components is ended: one of them does not release it", {
      namespace: this.group.namespace,
      container: id,
      pod: run?.file.uid,
    });
    this.#folder.writeBlame({ container: id, message });
    const { id: own } = this;
    if (own !== undefined) signalProcess(own, "SIGKILL");
  }
}
