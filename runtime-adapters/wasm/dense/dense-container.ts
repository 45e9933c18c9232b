/** One container of several in this process, from its launch until nothing of it is left. */

import { closeSync, openSync, writeSync } from "node:fs";
import { ignore } from "@picolet/protocol/errors.ts";
import {
  loadOptionalModules,
  monotonicMs,
  monotonicNow,
  prepareRun,
  type Run,
  type Trap,
  trapOf,
} from "../shared/component/component-run.ts";
import { LogWriter } from "../shared/host/log-writer.ts";
import { openMounts, type Preopen } from "../shared/host/mounts.ts";
import type { TlsContexts } from "../shared/http/tls-contexts.ts";
import type { DenseEnd } from "../shared/messages/dense-messages.ts";
import { MAX_END_MESSAGE_LENGTH, type RunnerLaunch, TRAP_EXIT_CODE } from "../shared/messages/launch.ts";
import { LiveResources } from "../shared/resources/handles.ts";
import type { ServiceClient } from "../shared/services/service-client.ts";
import type { SharedCode } from "./shared-code.ts";
import { DenseWaiter, type Turns } from "./turns.ts";

export interface DenseContainerComponents {
  readonly turns: Turns;
  readonly code: SharedCode;
  readonly tls: TlsContexts;
  /** It has ended, and its end file is written. */
  readonly onEnd: () => void;
}

/** Bounds the time of a connection that still sends when its component has ended, as the kernel would continue it. */
const LAST_SENDING_MS = 1000;

/** Unwinds the component's stack, which is discarded. */
class ContainerEnded extends Error {}

export class DenseContainer {
  readonly id: string;
  readonly #components: DenseContainerComponents;
  readonly #launch: RunnerLaunch;
  readonly #codeKey: string;
  readonly #waiter: DenseWaiter;
  readonly #live = new LiveResources();
  readonly #timers = new Set<NodeJS.Timeout>();
  /** In the order of opening. */
  readonly #closing: (() => void)[] = [];
  #log: LogWriter | undefined;
  #run: Run | undefined;
  #hasEnded = false;

  constructor(id: string, codeKey: string, launch: RunnerLaunch, components: DenseContainerComponents) {
    this.id = id;
    this.#codeKey = codeKey;
    this.#launch = launch;
    this.#components = components;
    const after = (milliseconds: number, act: () => void): (() => void) => this.#after(milliseconds, act);
    this.#waiter = new DenseWaiter(id, { now: monotonicNow, after }, components.turns);
  }

  get ranMs(): number {
    return this.#waiter.ranMs;
  }

  get memoryBytes(): number {
    return this.#waiter.memoryBytes;
  }

  /** The number of resources and timers that it holds in the process. */
  get held(): number {
    return this.#live.size + this.#timers.size;
  }

  /**
   * Does everything up to the component's first own instruction.
   * @throws StaleMount, and other errors that keep it from running; nothing is left then
   */
  async prepare(): Promise<void> {
    try {
      await this.#prepare();
    } catch (error) {
      this.#hasEnded = true;
      this.#close(new ContainerEnded());
      throw error;
    }
  }

  async #prepare(): Promise<void> {
    const launch = this.#launch;
    const parts = await loadOptionalModules(launch);
    const limit = launch.logLimit && { ...launch.logLimit, now: monotonicMs, sleep: undefined };
    const log = new LogWriter(launch.logPath, Date.now, limit);
    this.#log = log;
    if (limit !== undefined) this.#waiter.mustPause = () => log.isFull;
    this.#closing.push(() => log.close());
    const preopens = openMounts(launch.mounts, launch.emptyDirectory);
    this.#closing.push(() => preopens.forEach(releasePreopen));
    const after = (milliseconds: number, act: () => void): (() => void) => this.#after(milliseconds, act);
    const connection: ServiceClient | undefined = launch.board && parts.board?.agentConnection(launch.board, after);
    if (connection !== undefined) this.#closing.push(() => connection.close());
    const instantiate = this.#components.code.take(this.#codeKey, launch);
    this.#closing.push(() => this.#components.code.release(this.#codeKey, launch));
    this.#components.turns.announce(this.#waiter);
    const run = await prepareRun(
      launch,
      {
        ...{
          preopens,
          connection,
          instantiate,
          log,
          after,
          waiter: this.#waiter,
          loop: this.#waiter,
          live: this.#live,
        },
        beforeWait: () => undefined,
        exit: (code) => {
          const ended = new ContainerEnded();
          this.#finish(code, undefined, ended);
          throw ended;
        },
        tls: this.#components.tls,
        onServing: (end) => this.#closing.push(end),
      },
      parts,
    );
    if (this.#hasEnded) this.#close(new ContainerEnded());
    else this.#run = run;
  }

  /** Starts the component. `onEnd` is called when it ends. */
  begin(): void {
    if (this.#run === undefined) return;
    this.#components.turns.announce(this.#waiter);
    const ended = (error: unknown): void => this.#finish(TRAP_EXIT_CODE, trapOf(error));
    try {
      const outcome = this.#run();
      outcome?.then((result) => this.#finish(result === "ok" ? 0 : 1), ended);
    } catch (error) {
      ended(error);
    }
  }

  /** At once, wherever it is. */
  stop(exitCode: number): void {
    this.#finish(exitCode);
  }

  #finish(exitCode: number, { end, report = "" }: Partial<Trap> = {}, error = new ContainerEnded()): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#log?.end(report);
    this.#close(error);
    this.#report({ ...end, ...(end && { message: end.message.slice(0, MAX_END_MESSAGE_LENGTH) }), exitCode });
    this.#components.onEnd();
  }

  /** One write: the agent takes no part of it. */
  #report(end: DenseEnd): void {
    try {
      const fd = openSync(this.#launch.endPath, "w", 0o600);
      writeSync(fd, JSON.stringify(end));
      closeSync(fd);
    } catch {
      ignore("the folder is full or gone: the agent learns of the end, and takes it as killed");
    }
  }

  #close(error: Error): void {
    this.#waiter.end(error);
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    this.#live.closeAll();
    for (const close of this.#closing.splice(0).reverse()) quietly(close);
    this.#run = undefined;
  }

  #after(milliseconds: number, act: () => void): () => void {
    if (this.#hasEnded) {
      const last = setTimeout(act, Math.min(milliseconds, LAST_SENDING_MS));
      return () => clearTimeout(last);
    }
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
    }, milliseconds);
    this.#timers.add(timer);
    return () => {
      clearTimeout(timer);
      this.#timers.delete(timer);
    };
  }
}

function releasePreopen({ directory, files }: Preopen): void {
  directory.release();
  for (const { file } of files.values()) file.release();
}

/** Closes it. A failure must not keep the next one from being closed. */
function quietly(close: () => void): void {
  try {
    close();
  } catch {
    ignore("it is closed, or was");
  }
}
