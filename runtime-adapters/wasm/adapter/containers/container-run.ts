/** One container of this node, from the moment its state folder stands: who runs it, how it ended, how it is ended. */

import { checkCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, NEVER } from "@picolet/protocol/ports.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type { ContainerState } from "@picolet/runtime-contract/runtime-adapter.ts";
import { isAlive, killGroup, mayBeAlive, type ProcessId, signalProcess } from "../state/process-id.ts";
import type { ContainerFile, ExitedState } from "../state/state-files.ts";
import type { StateFolder } from "../state/state-folder.ts";

export interface ContainerRunComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly state: StateFolder;
  /** Once aborted, nothing is changed any more: the next agent may be at it already. */
  readonly disposed: AbortSignal;
  /** Something that `inspect` shows has changed. */
  readonly onChange: (uid: string) => void;
  /** One has ended, which is not written down yet. */
  readonly onExit: () => void;
}

interface Exit {
  readonly exitCode: number;
  readonly finishedAtMs: number;
}

type Phase =
  /** Its folder stands; the reaper may not have begun. */
  | { readonly kind: "starting" }
  | { readonly kind: "running"; readonly startedAtMs: number; readonly reaper: ProcessId }
  | { readonly kind: "exited"; readonly state: ExitedState };

/** An exit makes itself heard through inotify; this is how often a stop looks for itself, should that fail. */
const STOP_CHECK_INTERVAL = millis(1000);
/** Bounds the wait after SIGKILL. Only a process in an uninterruptible system call takes longer than a moment. */
const KILL_TIMEOUT = millis(10_000);
/** Between creating its file and writing it a reaper has one system call; one that was killed there never writes. */
const MAX_REAPER_CHECKS = 50;
const REAPER_CHECK_INTERVAL = millis(20);
/** A killed process is gone within some milliseconds, freeing its memory. Together 2 s. */
const MAX_RUNNER_CHECKS = 20;
const RUNNER_CHECK_INTERVAL = millis(100);
/**
 * A shell that has nothing more to do is gone within a millisecond or two; on a busy board in some more. Together 2 s.
 */
const MAX_LEAVE_CHECKS = 100;
const LEAVE_CHECK_INTERVAL = millis(20);
/** The shell's exit code: 128 and the number of SIGKILL. */
const KILLED = 137;

export class ContainerRun {
  #file: ContainerFile;
  protected readonly components: ContainerRunComponents;
  #phase: Phase = { kind: "starting" };
  #settling: Promise<void> | undefined;
  readonly #ended = Promise.withResolvers<void>();

  constructor(components: ContainerRunComponents, file: ContainerFile) {
    this.components = components;
    this.#file = file;
  }

  get file(): ContainerFile {
    return this.#file;
  }

  /** Stores new resources, or what follows its end. */
  keep(changed: Partial<Pick<ContainerFile, "resources" | "dense" | "backoff">>): void {
    this.#file = { ...this.#file, ...changed };
    this.components.state.rewriteContainer(this.#file);
    this.components.onChange(this.#file.uid);
  }

  /** The process that runs the component; undefined: none does. */
  get process(): ProcessId | undefined {
    return this.#runner();
  }

  get state(): ContainerState {
    return stateOf(this.#phase);
  }

  /** Undefined unless it runs. */
  get reaper(): ProcessId | undefined {
    return this.#phase.kind === "running" ? this.#phase.reaper : undefined;
  }

  get hasEnded(): boolean {
    return this.#phase.kind === "exited";
  }

  /** Resolves once it has ended; until then it never settles. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Adopts the state folder of an earlier agent. @returns false for a container that never ran */
  async adopt(sameBoot: boolean): Promise<boolean> {
    const { state } = this.components;
    const { uid, id, createdAtMs } = this.file;
    const exited = state.readExited(uid, id);
    if (exited !== undefined) {
      this.#endWith(exited);
      // The agent before may not have come so far.
      await this.#removeCgroup();
      return true;
    }
    if (!sameBoot) {
      await this.#settleAs(lostWithTheNode(state.startedAtMs(uid, id) ?? createdAtMs));
      return true;
    }
    if (!(await this.foundBegun())) {
      await this.#removeCgroup();
      return false;
    }
    await this.check("thorough");
    return true;
  }

  /** @returns whether its reaper has begun; otherwise it never will */
  protected async foundBegun(): Promise<boolean> {
    const { state, clock } = this.components;
    if (state.claim(this.file.uid, this.file.id)) return false;
    for (let check = 0; check < MAX_REAPER_CHECKS; check += 1) {
      if (this.markRunning()) return true;
      await clock.sleep(REAPER_CHECK_INTERVAL, NEVER);
    }
    return false;
  }

  /** The reaper has begun. @returns false when it has not. */
  markRunning(): boolean {
    const { state } = this.components;
    const { uid, id, createdAtMs } = this.file;
    const reaper = state.reaper(uid, id);
    if (reaper === undefined) return false;
    // The time of a file is that of the kernel's last tick, up to 10 ms ago.
    const startedAtMs = Math.max(state.startedAtMs(uid, id) ?? createdAtMs, createdAtMs);
    this.#phase = { kind: "running", startedAtMs, reaper };
    return true;
  }

  /**
   * Finds out whether it still runs, and if not, how it ended.
   * @param how `quick` is one system call and can mistake a reused pid for it
   */
  async check(how: "quick" | "thorough"): Promise<void> {
    if (this.#phase.kind !== "running" || this.components.disposed.aborted) return;
    const { reaper } = this.#phase;
    if (how === "quick" && mayBeAlive(reaper)) return;
    await this.takeExit();
    if (this.hasEnded || isAlive(reaper) || this.#runnerLives()) return;
    // It may have been written since.
    await this.takeExit();
    await this.#settle();
  }

  /**
   * Its reaper has ended. When it was killed together with its runner, that may take a moment longer; a runner that
   * goes on without it is left to `list`.
   */
  async reaperEnded(): Promise<void> {
    for (let check = 0; check < MAX_RUNNER_CHECKS && !this.components.disposed.aborted; check += 1) {
      await this.check("thorough");
      if (this.#phase.kind !== "running") return;
      await this.components.clock
        .sleep(RUNNER_CHECK_INTERVAL, this.components.disposed)
        .catch(ignore("the loop ends with the adapter"));
    }
  }

  /** Ends it here when its reaper has written an exit code. */
  async takeExit(): Promise<void> {
    if (this.#phase.kind !== "running" || this.components.disposed.aborted) return;
    if (this.exit() !== undefined) await this.#settle();
  }

  /** Waits for a check that is under way, for `inspect`. */
  async settled(): Promise<void> {
    await this.#settling;
  }

  /** SIGTERM, then SIGKILL after `gracePeriod`; returns when it has ended. */
  async stop(gracePeriod: Millis, signal: AbortSignal): Promise<void> {
    await this.check("thorough");
    if (gracePeriod > 0 && !this.hasEnded) {
      this.signalRunner("SIGTERM");
      await this.#endWithin(gracePeriod, signal);
    }
    if (this.hasEnded) return;
    this.signalRunner("SIGKILL");
    await this.#endWithin(KILL_TIMEOUT, signal);
    if (this.hasEnded) return;
    await this.killAll(signal);
    await this.#endWithin(KILL_TIMEOUT, signal);
    if (this.hasEnded) return;
    throw new PicoletError("deadline_exceeded", `cannot kill container ${this.file.id}`, { retryable: true });
  }

  /** Removes all of a container that never ran, or not as it should. */
  async destroy(): Promise<void> {
    if (this.#phase.kind !== "starting" || (await this.foundBegun())) await this.stop(millis(0), NEVER);
    await this.#removeCgroup();
    this.components.state.removeContainer(this.file.uid, this.file.id);
  }

  /** The exit that was written; undefined while there is none. */
  protected exit(): Exit | undefined {
    return this.components.state.exit(this.file.id);
  }

  /** The number of its processes that the kernel has killed because memory ran out. */
  async oomKills(): Promise<number> {
    const { cgroupPath } = this.file;
    return cgroupPath === undefined ? 0 : ((await this.components.cgroups?.oomKills(cgroupPath)) ?? 0);
  }

  /** The message for a container that ended without a written exit. */
  protected lostMessage(): string {
    return "its processes were killed from outside";
  }

  #runner(): ProcessId | undefined {
    return this.components.state.runner(this.file.uid, this.file.id);
  }

  #runnerLives(): boolean {
    const runner = this.#runner();
    return runner !== undefined && isAlive(runner);
  }

  protected signalRunner(signal: "SIGTERM" | "SIGKILL"): void {
    const runner = this.#runner();
    if (runner !== undefined) signalProcess(runner, signal);
    else if (signal === "SIGKILL" && this.#phase.kind === "running") killGroup(this.#phase.reaper);
  }

  /** Kills all its processes, the reaper too, whose runner hangs in the kernel. */
  protected async killAll(signal: AbortSignal): Promise<void> {
    if (this.#phase.kind === "running") killGroup(this.#phase.reaper);
    const { cgroupPath } = this.file;
    if (cgroupPath !== undefined) await this.components.cgroups?.kill(cgroupPath, signal);
  }

  async #endWithin(duration: Millis, signal: AbortSignal): Promise<void> {
    const { clock } = this.components;
    const deadline = clock.monotonic() + duration;
    using done = joinSignals(signal);
    void this.ended.then(() => done.abort());
    while (!this.hasEnded) {
      checkCancelled(signal, "the stop");
      const left = deadline - clock.monotonic();
      if (left <= 0) return;
      await clock
        .sleep(millis(Math.min(left, STOP_CHECK_INTERVAL)), done.signal)
        .catch(ignore("the loop checks its end"));
      await this.check("thorough");
    }
  }

  /** Once; a failure (a full disk) is tried again with the next check. */
  #settle(): Promise<void> {
    this.#settling ??= this.#findOut().catch((error: unknown) => {
      this.#settling = undefined;
      this.components.log.warn("the end of a container cannot be recorded", { container: this.file.id, error });
    });
    return this.#settling;
  }

  async #findOut(): Promise<void> {
    if (this.#phase.kind !== "running") return;
    // Before its cgroup's files are read: the next start waits for what this begins.
    this.components.onExit();
    const { startedAtMs } = this.#phase;
    const { clock } = this.components;
    const oomKills = await this.oomKills();
    const exit = this.exit();
    const exitCode = exit?.exitCode ?? KILLED;
    const finishedAtMs = Math.max(exit?.finishedAtMs ?? clock.wall().getTime(), startedAtMs);
    const message = exit === undefined ? this.lostMessage() : this.#message(exitCode);
    const outcome = outcomeOf(exitCode, oomKills, message);
    await this.#settleAs({ kind: "exited", startedAtMs, finishedAtMs, ...outcome });
  }

  /** The runner's message about its end; Node's own error output where there is none. */
  #message(exitCode: number): string {
    const { uid, id } = this.file;
    const { state } = this.components;
    if (exitCode === 0) return "";
    return state.endMessage(uid, id) ?? firstLine(state.fatal(uid, id));
  }

  async #settleAs(exited: ExitedState): Promise<void> {
    const { uid, id } = this.file;
    this.components.state.writeExited(uid, id, exited);
    const { reaper } = this;
    this.#endWith(exited);
    this.components.onChange(uid);
    // Not awaited: no caller depends on it, the next run least of all.
    void this.left(reaper);
  }

  /** The reaper's last act, telling the exit code, is done within the cgroup; then it needs a moment to be gone. */
  protected async left(reaper: ProcessId | undefined): Promise<void> {
    const { clock, disposed } = this.components;
    for (let check = 0; check < MAX_LEAVE_CHECKS && reaper !== undefined && isAlive(reaper); check += 1) {
      await clock.sleep(LEAVE_CHECK_INTERVAL, disposed).catch(ignore("the loop is bounded"));
      if (disposed.aborted) return;
    }
    await this.#removeCgroup();
  }

  #endWith(state: ExitedState): void {
    this.#phase = { kind: "exited", state };
    this.#ended.resolve();
  }

  async #removeCgroup(): Promise<void> {
    const { cgroupPath } = this.file;
    if (cgroupPath === undefined) return;
    try {
      await this.components.cgroups?.remove(cgroupPath);
    } catch (error) {
      this.components.log.warn("a container's cgroup could not be removed", { cgroup: cgroupPath, error });
    }
  }
}

function stateOf(phase: Phase): ContainerState {
  switch (phase.kind) {
    case "starting":
      return { kind: "created" };
    case "running":
      return { kind: "running", startedAtMs: phase.startedAtMs };
    case "exited":
      return phase.state;
  }
}

function outcomeOf(
  exitCode: number,
  oomKills: number,
  message: string,
): Pick<ExitedState, "exitCode" | "reason" | "message"> {
  if (oomKills > 0 && exitCode !== 0) return { exitCode: KILLED, reason: "OOMKilled", message: "" };
  return { exitCode, reason: exitCode === 0 ? "Completed" : "Error", message };
}

const lostWithTheNode = (startedAtMs: number): ExitedState => ({
  kind: "exited",
  startedAtMs,
  finishedAtMs: startedAtMs,
  exitCode: KILLED,
  reason: "ContainerStatusUnknown",
  message: "the node went down while it ran",
});

/** Node writes a fatal error over many lines, of which the one that names it stands out. */
function firstLine(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  return lines.find((line) => /error/i.test(line)) ?? lines.find((line) => line !== "") ?? "";
}
