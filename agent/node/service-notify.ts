import { execFile } from "node:child_process";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis } from "@picolet/protocol/ports.ts";

/** systemd answers from memory; a notification that takes longer is lost, and the next one is sent in its time. */
const NOTIFY_LIMIT_MS = 10_000;
/** So many notifications fit into the time that the service manager allows between two of them: two may be lost. */
const NOTIFICATIONS_PER_TIMEOUT = 3;

export interface ServiceNotifyComponents {
  /** Resolves when the agent can be asked. */
  readonly ready: () => Promise<void>;
  /** Answers at once. @returns why the agent must be restarted; `undefined` while it works */
  readonly problem: () => string | undefined;
  /** Sends one message of sd_notify(3). */
  readonly notify: (message: string, signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface ServiceNotifyInit {
  /** `WatchdogSec=` of the unit; `undefined` where it has none. */
  readonly watchdog: Millis | undefined;
}

/**
 * Reports to the service manager that the agent is ready (`Type=notify`), then that it is alive, as often as
 * `WatchdogSec=` asks: an agent that hangs, or has pods without a worker, is restarted; its pods run on.
 */
export class ServiceNotify implements Component {
  readonly name = "service notification";
  readonly #components: ServiceNotifyComponents;
  readonly #watchdog: Millis | undefined;
  #isFailing = false;

  constructor(components: ServiceNotifyComponents, { watchdog }: ServiceNotifyInit) {
    this.#components = components;
    this.#watchdog = watchdog;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, ready, problem, log } = this.#components;
    await ready();
    await this.#notify("READY=1", signal);
    if (this.#watchdog === undefined) return await aborted(signal);
    const interval = millis(Math.max(1, Math.floor(this.#watchdog / NOTIFICATIONS_PER_TIMEOUT)));
    for (;;) {
      const why = problem();
      if (why === undefined) await this.#notify("WATCHDOG=1", signal);
      else log.error("the service manager gets no sign of life", { problem: why });
      await clock.sleep(interval, signal);
    }
  }

  /** A failure is logged once: the service manager's own time-out is the answer to it. */
  async #notify(message: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#components.notify(message, signal);
      this.#isFailing = false;
    } catch (error) {
      if (signal.aborted || this.#isFailing) return;
      this.#isFailing = true;
      this.#components.log.warn("cannot notify the service manager", { message, error: describeError(error) });
    }
  }
}

/**
 * The program systemd-notify: Node has no datagram sockets of the unix family. The unit needs `NotifyAccess=all`.
 * One call takes 10 ms of CPU.
 */
export function runSystemdNotify(message: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile("systemd-notify", [message], { signal, timeout: NOTIFY_LIMIT_MS, killSignal: "SIGKILL" }, (error) => {
      if (error === null) resolve();
      else reject(error);
    });
  });
}

/** @returns `undefined` where no service manager waits for notifications, or waits for another process's */
export function serviceNotifyInit(
  environment: Readonly<Record<string, string | undefined>>,
  pid: number,
): ServiceNotifyInit | undefined {
  if ((environment.NOTIFY_SOCKET ?? "") === "") return undefined;
  const { WATCHDOG_USEC: timeout = "", WATCHDOG_PID: watched = "" } = environment;
  const isWatched = /^[1-9]\d{0,15}$/.test(timeout) && (watched === "" || watched === String(pid));
  return { watchdog: isWatched ? millis(Math.max(1, Math.floor(Number(timeout) / 1000))) : undefined };
}
