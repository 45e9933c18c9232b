import { setImmediate as nextTurn } from "node:timers/promises";
import { Alarm } from "../../protocol/async/alarm.ts";
import type { Component } from "../../protocol/async/component.ts";
import type { Watch } from "../../protocol/async/watch.ts";
import { describeError, isCancelled } from "../../protocol/errors.ts";
import { type Clock, type Log, type PodUid, seconds } from "../../protocol/ports.ts";
import { type EventRecorder, nodeReference } from "../core/store.ts";
import type { KernelRecord } from "./kernel-log.ts";
import { type OomKill, OomKillReader } from "./oom-kills.ts";

/** A look is one read of /proc/vmstat. What is in a hurry comes with a change of a pod. */
const INTERVAL = seconds(30);
/** Of what follows a change, so that a burst of them is one look; and how long after the count the kernel may still be writing. */
const SETTLE = seconds(1);
/** Read without a pause; some 2 µs each on a PC, twenty times that on a small board. */
const RECORDS_A_TURN = 256;
/** The kernel's own buffer has some thousands; whoever writes faster than this reads is left for the next look. */
const MAX_RECORDS_A_LOOK = 65_536;
/** Kills within cgroups that one look writes into the log; the rest is a number. */
const MAX_TOLD = 10;

export interface OomWatchComponents {
  /** Opens the kernel's log. @throws PicoletError when that cannot be */
  readonly openLog: () => { next(): KernelRecord } & Disposable;
  /** Processes killed for want of memory since the machine's start (`oom_kill` of /proc/vmstat); undefined: not counted here. */
  readonly killCount: () => number | undefined;
  /** Fires when something may have happened to a pod. */
  readonly changes: Watch<unknown>;
  /** Whose cgroup that is; undefined: no pod's. */
  readonly podOf: (cgroup: string) => PodUid | undefined;
  /** A process of that pod was killed. */
  readonly killed: (uid: PodUid) => void;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Tells of processes that the kernel has killed for want of memory: of the whole machine's by the kubelet's event, of a cgroup's
 * in the log, and whose pod it hit to its worker. What was killed before this agent is not told.
 */
export class OomWatch implements Component {
  readonly name = "OOM watch";
  readonly #components: OomWatchComponents;
  readonly #nodeName: string;
  readonly #alarm: Alarm;
  readonly #reader = new OomKillReader();
  #kernelLog: ReturnType<OomWatchComponents["openLog"]> | undefined;
  #count: number | undefined;
  /** The kernel counts a kill a moment before it writes of it. */
  #mayFollow = false;
  #isLogRefused = false;
  #hasSaidLost = false;

  constructor(components: OomWatchComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#nodeName = init.nodeName;
    this.#alarm = new Alarm(components.clock);
  }

  /** Something has happened that may have been the OOM killer. */
  hint(): void {
    this.#alarm.set(SETTLE);
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#begin(signal);
      await Promise.all([this.#follow(signal), this.#keep(signal)]);
    } catch (error) {
      if (!isCancelled(error)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#kernelLog?.[Symbol.dispose]();
    this.#kernelLog = undefined;
  }

  /** Where nobody has been killed yet there is nothing in the log to be passed over. */
  async #begin(signal: AbortSignal): Promise<void> {
    this.#count = this.#components.killCount();
    if (this.#count !== 0) await this.#read(() => undefined, signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for await (const _ of this.#components.changes.changes(signal)) this.hint();
  }

  async #keep(signal: AbortSignal): Promise<void> {
    for (;;) {
      this.#alarm.set(INTERVAL);
      await this.#alarm.ring(signal);
      const count = this.#components.killCount();
      const hasKilled = count !== this.#count;
      this.#count = count;
      if (!hasKilled && !this.#mayFollow && count !== undefined) continue;
      this.#mayFollow = hasKilled;
      if (hasKilled) this.hint();
      await this.#tellNew(signal);
    }
  }

  async #tellNew(signal: AbortSignal): Promise<void> {
    let inCgroups = 0;
    await this.#read((kill) => {
      if (!kill.isSystem) inCgroups += 1;
      if (kill.isSystem || inCgroups <= MAX_TOLD) this.#tell(kill);
    }, signal);
    if (inCgroups > MAX_TOLD)
      this.#components.log.warn("more processes were killed for want of memory in their cgroups", {
        count: inCgroups - MAX_TOLD,
      });
  }

  #tell({ pid, process, isSystem, cgroup }: OomKill): void {
    const { events, log, podOf, killed } = this.#components;
    const pod = cgroup === undefined ? undefined : podOf(cgroup);
    const fields = { process, pid, ...(cgroup === undefined ? {} : { cgroup }), ...(pod === undefined ? {} : { pod }) };
    if (isSystem) {
      const named = process === "" || pid === 0 ? "" : `, victim process: ${process}, pid: ${pid}`;
      const message = `System OOM encountered${named}`;
      events.record({ regarding: nodeReference(this.#nodeName), type: "Warning", reason: "SystemOOM", message });
      log.warn("the machine was out of memory: the kernel has killed a process", fields);
    } else log.info("a cgroup was out of memory: the kernel has killed a process of it", fields);
    if (pod !== undefined) killed(pod);
  }

  async #read(each: (kill: OomKill) => void, signal: AbortSignal): Promise<void> {
    if (this.#isLogRefused) return;
    try {
      this.#kernelLog ??= this.#components.openLog();
      for (let count = 1; count <= MAX_RECORDS_A_LOOK && !signal.aborted; count += 1) {
        const record = this.#kernelLog.next();
        if (record.kind === "end") return;
        if (record.kind === "lost") this.#sayLost();
        else if (record.kind === "record") {
          const kill = this.#reader.read(record.text);
          if (kill !== undefined) each(kill);
        }
        if (count % RECORDS_A_TURN === 0) await nextTurn();
      }
    } catch (error) {
      this.#isLogRefused = true;
      this.#components.log.warn("the kernel's log cannot be read: nobody tells when the machine is out of memory", {
        error: describeError(error),
      });
    }
  }

  /** Not of the first reading, which begins where the kernel's log does. */
  #sayLost(): void {
    if (this.#hasSaidLost) return;
    this.#hasSaidLost = true;
    this.#components.log.info("records of the kernel's log were overwritten before they were read");
  }
}
