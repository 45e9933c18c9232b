/**
 * A runner that waits for its container, with its reaper. It ends with the agent, and is the container's once it has
 * one.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, renameSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { checkCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import {
  MAX_END_MESSAGE_LENGTH,
  SPARE_FD,
  STALE_WORD,
  STARTED_FD,
  STARTED_MESSAGE,
} from "../../shared/messages/launch.ts";
import { MOUNTED_WORD } from "../isolation/jail.ts";
import { SMALL_PROCESS_ENVIRONMENT } from "../processes/node-flags.ts";
import { REAPER_SHELL, type ReaperLaunch } from "../state/reaper.ts";
import { assignment, JOINED_WORD, SPARE_REAPER_SCRIPT, WAKE_UP_MESSAGE } from "./spare-reaper.ts";

export interface SpareLaunch {
  readonly command: readonly string[];
  /** The cgroup that it waits in. */
  readonly procsFiles: readonly string[];
  /** The file for the runner's standard error; becomes the container's. */
  readonly fatalPath: string;
}

export interface SpareAssignment {
  /** Makes its cgroup, while others mount what it sees. */
  readonly reaper: () => Promise<Omit<ReaperLaunch, "command">>;
  readonly fstab: string;
  readonly fatalPath: string;
  readonly timeout: Millis;
  readonly onReaperEnd: () => void;
}

/** The descriptor on which the shell reads what to mount (`adapter/isolation/jail.ts`). */
const MOUNTS_FD = 4;

export class SpareRunner {
  readonly #child: ChildProcess;
  readonly #fatalPath: string;
  #said = "";
  #onSaid: () => void = () => undefined;
  #over = false;

  constructor({ command, procsFiles, fatalPath }: SpareLaunch) {
    const fatalFd = openSync(fatalPath, "w", 0o600);
    const args = ["-c", SPARE_REAPER_SCRIPT, "picolet-reaper", String(procsFiles.length), ...procsFiles, ...command];
    this.#fatalPath = fatalPath;
    this.#child = spawn(REAPER_SHELL, args, {
      // A session of its own: no signal for the agent's reaches it, and its group can be killed as one.
      detached: true,
      cwd: "/",
      env: SMALL_PROCESS_ENVIRONMENT,
      stdio: ["pipe", "ignore", fatalFd, "pipe", "pipe", "pipe"],
    });
    closeSync(fatalFd);
    this.#child.unref();
    this.#child.on("error", () => this.#end());
    this.#child.once("exit", () => this.#end());
    for (const stream of this.#child.stdio) {
      stream?.on("error", ignore("a runner that has ended sends no answer, which is reported"));
      (stream as { unref?: () => void } | null)?.unref?.();
    }
    this.#pipe(STARTED_FD)
      ?.setEncoding("utf8")
      .on("data", (text: string) => {
        this.#said = (this.#said + text).slice(0, MAX_END_MESSAGE_LENGTH);
        this.#onSaid();
      })
      .once("close", () => this.#end());
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** It may soon have to be quick. */
  wakeUp(): void {
    if (!this.#over) this.#child.stdin?.write(WAKE_UP_MESSAGE);
  }

  /**
   * @returns false when it could not become the container's runner; what there is of it then has to be ended
   * @throws `failed` with what the runner says against the component, `deadline_exceeded`, `cancelled`
   */
  async become(clock: Pick<Clock, "sleep">, given: SpareAssignment, signal: AbortSignal): Promise<boolean> {
    renameSync(this.#fatalPath, given.fatalPath);
    this.#child.once("exit", given.onReaperEnd);
    this.#input(MOUNTS_FD)?.end(`${given.fstab}\n`);
    const reaper = await given.reaper();
    checkCancelled(signal, "the start");
    this.#child.stdin?.end(assignment(reaper));
    using done = joinSignals(signal);
    try {
      const time = clock.sleep(given.timeout, done.signal).then(
        () => "late" as const,
        () => "late" as const,
      );
      const fitted = (): boolean => this.#said.includes(JOINED_WORD) && this.#said.includes(MOUNTED_WORD);
      if ((await Promise.race([this.#until(fitted), time])) !== true) return this.#late(signal, given.timeout);
      this.#said = "";
      this.#input(SPARE_FD)?.end("\n");
      if ((await Promise.race([this.#until(() => this.#said.includes("\n")), time])) === "late") {
        return this.#late(signal, given.timeout);
      }
    } finally {
      done.abort();
      this.#pipe(STARTED_FD)?.destroy();
    }
    if (this.#said === STARTED_MESSAGE) return true;
    if (this.#said === STALE_WORD || this.#said === "") return false;
    throw new PicoletError("failed", this.#said.trim());
  }

  /** A spare without a container ends; a running one receives nothing any more. */
  giveUp(): void {
    for (const stream of this.#child.stdio) stream?.destroy();
  }

  #late(signal: AbortSignal, timeout: Millis): false {
    checkCancelled(signal, "the start");
    if (this.#over) return false;
    throw new PicoletError("deadline_exceeded", `the component has not started within ${timeout / 1000} s`);
  }

  /** @returns false when it ends before */
  #until(fits: () => boolean): Promise<boolean> {
    return new Promise((resolve) => {
      this.#onSaid = () => {
        if (fits()) resolve(true);
        else if (this.#over) resolve(false);
      };
      this.#onSaid();
    });
  }

  #end(): void {
    this.#over = true;
    this.#onSaid();
  }

  #pipe(fd: number): Readable | undefined {
    return (this.#child.stdio[fd] as Readable | null) ?? undefined;
  }

  #input(fd: number): Writable | undefined {
    return (this.#child.stdio[fd] as Writable | null) ?? undefined;
  }
}
