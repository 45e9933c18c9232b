import { setImmediate as nextTurn } from "node:timers/promises";
import type { Component } from "@picolet/protocol/async/component.ts";
import { publicName } from "@picolet/protocol/decisions/public-text.ts";
import { type Clock, type Log, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import { type EventRecorder, nodeReference } from "../core/store/store-ports.ts";
import type { OomKillLog } from "./oom-kill-log.ts";
import type { OomKill } from "./oom-kills.ts";

/** The pause after a read, so that a process that floods the kernel's log costs one read a second. */
const PAUSE = seconds(1);
/** Records that are read without a pause; each takes about 2 µs on a PC, twenty times that on a small board. */
const RECORDS_A_TURN = 256;
/**
 * Bounds one read: the kernel's buffer has some thousand records. A writer that is faster than the reader waits for the
 * next read.
 */
const MAX_TURNS_PER_READ = 256;

export interface OomWatchComponents {
  /** Ends with the watch. */
  readonly kills: OomKillLog;
  /** Whose cgroup that is; undefined: no pod's. */
  readonly podOf: (cgroup: string) => PodUid | undefined;
  /** A process of that pod was killed. */
  readonly killed: (uid: PodUid) => void;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Reports processes that the kernel's OOM killer kills: those of the whole machine by the kubelet's event, those of a
 * cgroup in the log, and the pod to its worker. Kills before the start of this agent are not reported.
 */
export class OomWatch implements Component {
  readonly name = "OOM watch";
  readonly #components: OomWatchComponents;
  readonly #nodeName: string;

  constructor(components: OomWatchComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#nodeName = init.nodeName;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { kills, clock } = this.#components;
    await this.#readAll(signal);
    kills.takeUnreported();
    for await (const _ of kills.more.changes(signal)) {
      await this.#readAll(signal);
      this.#reportNew();
      await clock.sleep(PAUSE, signal);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#components.kills[Symbol.dispose]();
  }

  async #readAll(signal: AbortSignal): Promise<void> {
    for (let turn = 0; turn < MAX_TURNS_PER_READ && !signal.aborted; turn += 1) {
      if (!this.#components.kills.read(RECORDS_A_TURN)) return;
      await nextTurn();
    }
  }

  #reportNew(): void {
    const { kills, more } = this.#components.kills.takeUnreported();
    for (const kill of kills) this.#report(kill);
    if (more > 0) this.#components.log.warn("more processes were OOM killed in their cgroups", { count: more });
  }

  #report({ pid, process, isSystem, cgroup }: OomKill): void {
    const { events, decisions, log, podOf, killed } = this.#components;
    const pod = cgroup === undefined ? undefined : podOf(cgroup);
    const fields = { process, pid, ...(cgroup === undefined ? {} : { cgroup }), ...(pod === undefined ? {} : { pod }) };
    if (isSystem) {
      const named = process === "" || pid === 0 ? "" : `, victim process: ${process}, pid: ${pid}`;
      const message = `System OOM encountered${named}`;
      events.record({ regarding: nodeReference(this.#nodeName), type: "Warning", reason: "SystemOOM", message });
      decisions?.record({ kind: "systemOom", process: publicName(process === "" ? "a process" : process) });
      log.warn("the machine was out of memory: the kernel has killed a process", fields);
    } else log.info("a cgroup was out of memory: the kernel has killed a process of it", fields);
    if (pod !== undefined) killed(pod);
  }
}
