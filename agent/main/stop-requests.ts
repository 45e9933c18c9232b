import { execFile } from "node:child_process";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { NodeShutdownControl } from "../core/node/node-shutdown-control.ts";

/** systemd answers from memory; one that does not must not hold the stop up. */
const SYSTEMCTL_LIMIT_MS = 3000;

/**
 * The signals that end the agent. As a rule the pods go on; only when the whole machine is going down, and the node may
 * take time for that, they are ended first.
 */
export class StopRequests {
  readonly #log: Log;
  readonly #stop = new AbortController();
  #shutdown: NodeShutdownControl | undefined;
  #isWaiting = false;
  #isRestarting = false;

  constructor(log: Log) {
    this.#log = log;
    process.on("SIGINT", () => this.#end("SIGINT"));
    process.on("SIGTERM", () => void this.#terminate());
    process.on("SIGPWR", () => void this.#begin("SIGPWR"));
  }

  /** Aborts when the agent is to end. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** True when another agent must start after this one ends. */
  get isRestarting(): boolean {
    return this.#isRestarting;
  }

  /** Ends the agent, as SIGTERM does, for another one to begin at once in the same process. */
  restart(): void {
    if (this.#stop.signal.aborted) return;
    this.#isRestarting = true;
    this.#stop.abort(cancelled("the agent"));
  }

  /** From now on the machine's shutdown is the node's. */
  through(shutdown: NodeShutdownControl): void {
    this.#shutdown = shutdown;
  }

  async #terminate(): Promise<void> {
    const shutdown = this.#shutdown;
    if (shutdown !== undefined && !this.#isWaiting) {
      this.#isWaiting = true;
      // One that is under way is waited for; asked a second time, the agent ends at once.
      if (shutdown.isShuttingDown || (await isSystemStopping())) await this.#begin("SIGTERM");
    }
    this.#end("SIGTERM");
  }

  #end(signal: NodeJS.Signals): void {
    if (this.#stop.signal.aborted) return;
    this.#log.info(this.#shutdown?.isShuttingDown ? "stopping" : "stopping; the pods go on", { signal });
    this.#stop.abort(cancelled("the agent"));
  }

  async #begin(why: string): Promise<void> {
    try {
      await this.#shutdown?.begin(why);
    } catch (error) {
      this.#log.warn("cannot shut the node down", { error: describeError(error) });
    }
  }
}

/** @returns whether systemd is stopping the system; false without systemd */
function isSystemStopping(): Promise<boolean> {
  return new Promise((resolve) => {
    // Its exit code is not 0 for any state but "running".
    execFile("systemctl", ["is-system-running"], { timeout: SYSTEMCTL_LIMIT_MS }, (_, stdout) => {
      resolve(stdout.trim() === "stopping");
    });
  });
}
