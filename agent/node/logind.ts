import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Backoff, type BackoffPolicy, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, ignore, isCancelled, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { NodeShutdownControl } from "../core/node/node-shutdown-control.ts";
import { DbusConnection } from "./dbus-connection.ts";
import type { DbusCall, DbusValue } from "./dbus-message.ts";

export interface LogindComponents {
  readonly shutdown: NodeShutdownControl;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export interface LogindInit {
  /** Socket of the system's message bus. */
  readonly busPath: string;
  /** Bounds the delay of the shutdown. */
  readonly delay: Millis;
  /** logind.conf(5)'s; where a file of ours raises logind's own limit when it is less than `delay`. */
  readonly dropInFolder: string;
}

/** Until the machine's next start: `/etc` is read-only on some, and nothing stays behind an agent that was removed. */
export const LOGIND_DROP_INS = "/run/systemd/logind.conf.d";
/** Sorted behind `99-picolet.conf`, which earlier agents have left in `/etc`. */
const DROP_IN = "99-picolet_shutdown.conf";

const LOGIND = "org.freedesktop.login1";
const LOGIND_PATH = "/org/freedesktop/login1";
const MANAGER = "org.freedesktop.login1.Manager";
const SIGNAL = "PrepareForShutdown";
const SIGHUP = 1;

/** logind reloads its files some time after the request; its setting is read so often. */
const RELOAD_CHECKS = 10;
const RELOAD_CHECK_GAP = millis(200);
/** A program that starts, asks logind and says so; on a board that is being loaded from a slow card. */
const LOCK_LIMIT = seconds(30);
/** A restarted bus is back within seconds. Without any bus the longest wait applies. */
const RETRY: BackoffPolicy = { first: seconds(1), max: seconds(300), jitter: EQUAL_JITTER };

/**
 * Follows logind: while this runs it holds a delay lock, so that a shutdown of the machine waits until the pods have
 * ended, or for logind's InhibitDelayMaxSec. Boards without logind only check for it now and then.
 */
export class LogindShutdown implements Component {
  readonly name = "logind";
  readonly #components: LogindComponents;
  readonly #init: LogindInit;
  #lock: ShutdownLock | undefined;

  constructor(components: LogindComponents, init: LogindInit) {
    this.#components = components;
    this.#init = init;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, random, log } = this.#components;
    const backoff = new Backoff(random, RETRY);
    let logged = "";
    try {
      for (;;) {
        const problem = await this.#followUntilBroken(signal, () => {
          backoff.reset();
          logged = "";
        });
        if (problem !== logged)
          log.warn("logind is not followed: a shutdown ends no pods by itself", { error: problem });
        logged = problem;
        await clock.sleep(backoff.next(), signal);
      }
    } finally {
      await this[Symbol.asyncDispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const lock = this.#lock;
    this.#lock = undefined;
    await lock?.release();
  }

  /** @returns what broke the connection */
  async #followUntilBroken(signal: AbortSignal, stands: () => void): Promise<string> {
    try {
      return await this.#follow(signal, stands);
    } catch (error) {
      if (signal.aborted && isCancelled(error)) throw error;
      return describeError(error);
    }
  }

  /** Follows logind until the connection breaks. @param stands called once logind is followed */
  async #follow(signal: AbortSignal, stands: () => void): Promise<never> {
    const { shutdown, clock, log } = this.#components;
    using bus = await DbusConnection.open(this.#init.busPath, clock, signal);
    await this.#raiseLimit(bus, signal);
    await bus.subscribe(`type='signal',sender='${LOGIND}',interface='${MANAGER}',member='${SIGNAL}'`, signal);
    await this.#takeLock(bus, signal);
    log.info("shutdowns of the machine wait for the pods", { seconds: this.#init.delay / 1000 });
    stands();
    // The shutdown may have begun before the subscription.
    if ((await property(bus, "PreparingForShutdown", signal)) === true) this.#begin();
    for (;;) {
      const { member, interface: from, body } = await bus.nextSignal(signal);
      if (member !== SIGNAL || from !== MANAGER || typeof body[0] !== "boolean") continue;
      if (body[0]) {
        this.#begin();
        continue;
      }
      await shutdown.cancel();
      await this.#takeLock(bus, signal);
    }
  }

  /** Not waited for: that the shutdown is cancelled has to be heard meanwhile. */
  #begin(): void {
    const { shutdown, log } = this.#components;
    const end = async (): Promise<void> => {
      try {
        await shutdown.begin("logind");
      } catch (error) {
        log.error("cannot end the pods for a shutdown", { error: describeError(error) });
      }
      if (shutdown.isShuttingDown) await this[Symbol.asyncDispose]();
    };
    void end();
  }

  async #takeLock(bus: DbusConnection, signal: AbortSignal): Promise<void> {
    if (this.#lock?.isHeld === true) return;
    const lock = await ShutdownLock.take(this.#components.clock, this.#init.busPath, signal);
    this.#lock = lock;
    // The lock was released by another process: connect again from the start.
    void lock.ended.then(() => {
      if (this.#lock === lock) bus[Symbol.dispose]();
    });
  }

  async #raiseLimit(bus: DbusConnection, signal: AbortSignal): Promise<void> {
    const { delay, dropInFolder } = this.#init;
    const { clock, log } = this.#components;
    if ((await limitOf(bus, signal)) >= delay) return;
    try {
      mkdirSync(dropInFolder, { recursive: true });
      const text = `# Made by picolet: shutdownGracePeriod takes so long.\n[Login]\nInhibitDelayMaxSec=${Math.ceil(delay / 1000)}\n`;
      writeFileSync(join(dropInFolder, DROP_IN), text);
      await bus.call(RELOAD, signal);
      for (let check = 0; check < RELOAD_CHECKS; check += 1) {
        if ((await limitOf(bus, signal)) >= delay) return;
        await clock.sleep(RELOAD_CHECK_GAP, signal);
      }
    } catch (error) {
      if (isCancelled(error)) throw error;
      log.warn("cannot raise logind's InhibitDelayMaxSec", { error: describeError(error) });
    }
    const allowed = (await limitOf(bus, signal)) / 1000;
    log.warn("logind waits for less than shutdownGracePeriod", { seconds: allowed, wanted: delay / 1000 });
  }
}

const RELOAD: DbusCall = {
  destination: "org.freedesktop.systemd1",
  path: "/org/freedesktop/systemd1",
  interface: "org.freedesktop.systemd1.Manager",
  member: "KillUnit",
  signature: "ssi",
  body: ["systemd-logind.service", "all", SIGHUP],
};

async function property(bus: DbusConnection, name: string, signal: AbortSignal): Promise<DbusValue | undefined> {
  const interface_ = "org.freedesktop.DBus.Properties";
  const call = { destination: LOGIND, path: LOGIND_PATH, interface: interface_, member: "Get" };
  const [value] = await bus.call({ ...call, signature: "ss", body: [MANAGER, name] }, signal);
  return value;
}

async function limitOf(bus: DbusConnection, signal: AbortSignal): Promise<Millis> {
  return millis(Number((await property(bus, "InhibitDelayMaxUSec", signal)) ?? 0) / 1000);
}

/**
 * Node cannot take over the file that such a lock is, so systemd-inhibit holds it: as long as its command runs, which
 * is as long as this process, or until it is released.
 */
class ShutdownLock {
  readonly #child: ChildProcess;
  readonly ended: Promise<void>;

  /** @throws PicoletError `unavailable`, `deadline_exceeded`, `cancelled` */
  static async take(clock: Clock, busPath: string, signal: AbortSignal): Promise<ShutdownLock> {
    const holder = ["--what=shutdown", "--who=picolet", "--why=Picolet needs time to end its pods", "--mode=delay"];
    const child = spawn("systemd-inhibit", [...holder, "sh", "-c", "echo held; exec cat"], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, DBUS_SYSTEM_BUS_ADDRESS: `unix:path=${busPath}` },
    });
    const lock = new ShutdownLock(child);
    let said = "";
    child.stderr.on("data", (bytes: Buffer) => {
      said = (said + bytes.toString("utf8")).slice(-MAX_COMPLAINT);
    });
    try {
      const held = new Promise<void>((resolve, reject) => {
        child.stdout.once("data", () => resolve());
        child.once("error", (error) => reject(toPicoletError(error, "unavailable", "cannot run systemd-inhibit")));
        child.once("close", () =>
          reject(new PicoletError("unavailable", "cannot hold shutdowns up", { cause: new Error(said.trim()) })),
        );
      });
      await withDeadline(clock, LOCK_LIMIT, "take logind's lock", () => held, signal);
      return lock;
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.ended = new Promise((resolve) => {
      child.once("close", () => resolve());
      child.once("error", () => resolve());
    });
    child.stdin?.on("error", ignore("its end says more than a broken pipe"));
  }

  get isHeld(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  async release(): Promise<void> {
    this.#child.stdin?.end();
    await this.ended;
  }
}

/** Bounds the text of systemd-inhibit's error, which is one line. */
const MAX_COMPLAINT = 500;
