/** A container that shares its process with others: it is ended by asking that process, and ends with it. */
import { statSync } from "node:fs";
import type { Clock } from "@picolet/protocol/ports.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { MAX_END_BYTES } from "../../shared/messages/launch.ts";
import { ContainerRun, type ContainerRunComponents } from "../containers/container-run.ts";
import type { ProcessId } from "../state/process-id.ts";
import type { ContainerFile } from "../state/state-files.ts";
import { readUntrustedFields } from "../state/untrusted-file.ts";
import type { DenseTermination } from "./process-folder.ts";

/** The process that a container is in, as the container needs it. */
export interface ContainerProcess {
  readonly id: ProcessId | undefined;
  readonly blame: DenseTermination | undefined;
  /** The number of processes of its cgroup that the kernel has killed because memory ran out. */
  oomKills(): Promise<number>;
  /** @returns whether the process reports that it holds the container */
  holds(id: string): Promise<boolean>;
  stop(id: string, exitCode: number): void;
  /** It does not answer: ends it, when this container is why. */
  endIfHeldBy(id: string): void;
  /** Nothing of the container is in it any more. */
  left(id: string): Promise<void>;
}

/** The shell's exit code of a killed process: 128 and the number of the signal. */
const TERMINATED = 143;
const KILLED = 137;

export class DenseRun extends ContainerRun {
  readonly #process: ContainerProcess;
  readonly #clock: Pick<Clock, "wall">;
  /** It has ended, and could not say how. */
  #isLost = false;

  constructor(components: ContainerRunComponents, file: ContainerFile, process: ContainerProcess) {
    super(components, file);
    this.#process = process;
    this.#clock = components.clock;
  }

  override get process(): ProcessId | undefined {
    return this.#process.id;
  }

  /** The process says that it has ended. */
  async reportedEnd(): Promise<void> {
    this.#isLost = this.exit() === undefined;
    await this.takeExit();
  }

  /** The process has it: from here on it has begun, for this agent and for the next. */
  begun(): boolean {
    const { id } = this.#process;
    if (id === undefined) return false;
    const { uid } = this.file;
    if (this.components.state.reaper(uid, this.file.id) === undefined) {
      this.components.state.writeReaper(uid, this.file.id, id);
    }
    return this.markRunning();
  }

  /** Its end may be written before it is reported. */
  override async check(how: "quick" | "thorough"): Promise<void> {
    await this.takeExit();
    await super.check(how);
  }

  protected override async foundBegun(): Promise<boolean> {
    const { uid, id } = this.file;
    const has = this.components.state.reaper(uid, id) ?? this.exit();
    return (has !== undefined || (await this.#process.holds(id))) && this.begun();
  }

  protected override exit(): ReturnType<ContainerRun["exit"]> {
    const { uid, id } = this.file;
    const end = readEnd(this.components.state.endPath(uid, id));
    if (end !== undefined) return end;
    return this.#isLost ? { exitCode: KILLED, finishedAtMs: this.#clock.wall().getTime() } : undefined;
  }

  override oomKills(): Promise<number> {
    return this.exit() === undefined ? this.#process.oomKills() : Promise.resolve(0);
  }

  protected override lostMessage(): string {
    const { blame } = this.#process;
    if (blame === undefined) return "the process that it shared with others of its namespace was ended from outside";
    if (blame.container === this.file.id) return blame.message;
    // It is not to wait for what another one did.
    this.keep({ backoff: millis(0) });
    return `the process that it shared was ended for what another container of its namespace did (${blame.container.slice(0, 12)})`;
  }

  protected override signalRunner(signal: "SIGTERM" | "SIGKILL"): void {
    this.#process.stop(this.file.id, signal === "SIGTERM" ? TERMINATED : KILLED);
  }

  protected override async killAll(): Promise<void> {
    this.#process.endIfHeldBy(this.file.id);
  }

  protected override left(): Promise<void> {
    return this.#process.left(this.file.id);
  }

  override async destroy(): Promise<void> {
    await super.destroy();
    await this.#process.left(this.file.id);
  }
}

/** Undefined while nothing is there, or not all of it. */
function readEnd(path: string): { readonly exitCode: number; readonly finishedAtMs: number } | undefined {
  const { exitCode } = readUntrustedFields(path, MAX_END_BYTES);
  if (typeof exitCode !== "number" || !Number.isInteger(exitCode)) return undefined;
  if (exitCode < 0 || exitCode > MAX_EXIT_CODE) return undefined;
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats === undefined ? undefined : { exitCode, finishedAtMs: Math.floor(stats.mtimeMs) };
}

const MAX_EXIT_CODE = 255;
