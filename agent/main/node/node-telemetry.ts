/**
 * Components' telemetry on this node. Nothing of it is loaded, and no file made, before a component has handed some
 * over.
 */
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { TelemetryReport } from "@picolet/protocol/local-api/status.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { Tags } from "@picolet/protocol/telemetry/records.ts";
import type { BoardService } from "@picolet/runtime-contract/board-services.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { OutgoingBatch, OutgoingTelemetry } from "../../core/hub/outgoing-telemetry.ts";
import type { CorrectedClock } from "../../security/corrected-clock.ts";
import { Connection } from "../../store/connection.ts";
import { faultOf } from "../../store/faults.ts";
import type { BoardTime } from "../../telemetry/board-time.ts";
import type { QueueDatabases } from "../../telemetry/queue-database.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";

export interface NodeTelemetryInit {
  readonly rootDir: string;
  readonly settings: Configuration["telemetry"];
}

/** Separate from the store, so that damage and size of one do not affect the other. */
const FILE = "telemetry.db";
const QUEUE_BYTES = 8;

const databases: QueueDatabases = {
  open: (path, maxBytes) => new Connection(path, maxBytes),
  isDamage: (error) => faultOf(error) === "damaged",
};

export class NodeTelemetry implements Component, OutgoingTelemetry {
  readonly name = "telemetry";
  readonly #components: { readonly clock: CorrectedClock; readonly log: Log };
  readonly #init: NodeTelemetryInit;
  readonly #latest = new WatchSource(0);
  readonly #started = new WatchSource<Telemetry | undefined>(undefined);
  #loading: Promise<Telemetry> | undefined;
  #service: BoardService | undefined;
  #isForwarding = false;
  #stretch = 1;

  constructor(components: { readonly clock: CorrectedClock; readonly log: Log }, init: NodeTelemetryInit) {
    this.#components = components;
    this.#init = init;
  }

  /** @throws what keeps the queue's file from being opened; the next one tries again */
  load(): Promise<Telemetry> {
    this.#loading ??= this.#make().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }

  /** For components. @param labelsOf of a pod of this node, by its UID */
  async service(labelsOf: (uid: string) => Tags): Promise<BoardService> {
    const telemetry = await this.load();
    const { TelemetryService } = await import("../../telemetry/telemetry-service.ts");
    this.#service ??= new TelemetryService({ put: (handover) => telemetry.put(handover), labelsOf });
    return this.#service;
  }

  async #make(): Promise<Telemetry> {
    const { Telemetry } = await import("../../telemetry/telemetry.ts");
    const { clock, log } = this.#components;
    const { rootDir, settings } = this.#init;
    const telemetry = new Telemetry(
      { databases, time: boardTime(clock), clock, log },
      { ...settings, path: join(rootDir, FILE), queue: randomBytes(QUEUE_BYTES).toString("hex") },
    );
    telemetry.stretch(this.#stretch);
    telemetry.forwarding(this.#isForwarding);
    this.#latest.set(telemetry.latest.current);
    this.#started.set(telemetry);
    return telemetry;
  }

  async run(signal: AbortSignal): Promise<void> {
    if (existsSync(join(this.#init.rootDir, FILE))) await this.#loadWhatIsLeft();
    for await (const telemetry of this.#started.changes(signal)) {
      if (telemetry === undefined) continue;
      await Promise.all([telemetry.run(signal), this.#follow(telemetry.latest, signal)]);
    }
  }

  /** Opens the queue of an earlier agent. */
  async #loadWhatIsLeft(): Promise<void> {
    try {
      await this.load();
    } catch (error) {
      if (isCancelled(error)) return;
      this.#components.log.warn("cannot open the queue of telemetry", { error: describeError(error) });
    }
  }

  async #follow(latest: Watch<number>, signal: AbortSignal): Promise<void> {
    for await (const id of latest.changes(signal)) this.#latest.set(id);
  }

  get latest(): Watch<number> {
    return this.#latest;
  }

  pending(after: number, limit: number): readonly OutgoingBatch[] {
    return this.#started.current?.pending(after, limit) ?? [];
  }

  ack(id: number): void {
    this.#started.current?.ack(id);
  }

  untaken(reason: string): void {
    this.#started.current?.untaken(reason);
  }

  forwarding(isForwarding: boolean): void {
    this.#isForwarding = isForwarding;
    this.#started.current?.forwarding(isForwarding);
  }

  /** @param factor 1 and more: what is not urgent waits so much longer for the disk */
  stretch(factor: number): void {
    this.#stretch = factor;
    this.#started.current?.stretch(factor);
  }

  report(): TelemetryReport {
    const none = { queued: { records: 0, batches: 0, bytes: 0 }, dropped: 0, refused: 0, forwarded: 0 };
    const { maxBytes } = this.#init.settings;
    return this.#started.current?.report() ?? { ...none, maxBytes, lastForwardedAt: null, problem: "" };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started.current?.[Symbol.asyncDispose]();
  }
}

/** The monotonic clock is one for the agent and the runners of components. */
function boardTime(clock: CorrectedClock): BoardTime {
  return {
    bootId: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
    nowUs: () => Number(process.hrtime.bigint() / 1000n),
    wallUs: () => (clock.isConfirmed ? clock.wall().getTime() * 1000 : undefined),
  };
}
