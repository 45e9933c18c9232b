/**
 * A board's telemetry and a hub's, with a tunnel between them that comes and goes, on virtual time. Real SQLite files.
 */

import { copyFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Connection } from "@picolet/agent/store/connection.ts";
import { faultOf } from "@picolet/agent/store/faults.ts";
import type { TelemetryHandover } from "@picolet/agent/telemetry/handover.ts";
import { Telemetry } from "@picolet/agent/telemetry/telemetry.ts";
import { TelemetryLane } from "@picolet/agent/tunnel/lanes/telemetry-lane.ts";
import { TelemetryStore, type TelemetryStoreInit } from "@picolet/hub/telemetry/telemetry-store.ts";
import { TelemetryStreams } from "@picolet/hub/telemetry/telemetry-streams.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { TelemetryOrigin, TelemetryRecord } from "@picolet/protocol/telemetry/records.ts";
import { encodeDelivery } from "@picolet/protocol/telemetry/stream-messages.ts";
import type { TelemetryPutAnswer } from "@picolet/runtime-contract/telemetry-message.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import type { VirtualClock } from "../ports/virtual-clock.ts";
import { joinMuxes } from "./memory-link.ts";
import { SAMPLE_ORIGIN } from "./telemetry-samples.ts";

const LINE = { latencyMs: () => 20, bytesPerMs: 100 };

export interface BoardOptions {
  readonly maxBytes?: number;
  readonly boot?: string;
  /** Bounds the database, as a full disk does. */
  readonly diskBytes?: () => number | undefined;
  readonly knowsTime?: () => boolean;
  /** Since the boot, at the clock's start. */
  readonly bootedUs?: number;
}

export class TelemetryBoard {
  readonly log = new RecordedLog();
  readonly telemetry: Telemetry;
  readonly #clock: VirtualClock;
  readonly #life = new AbortController();
  #session = new AbortController();
  readonly #running: Promise<void>;
  #numbers = new Map<string, number>();

  constructor(clock: VirtualClock, folder: string, life: number, options: BoardOptions = {}) {
    const { maxBytes = 4 * 1024 * 1024, boot = "boot-1", diskBytes, knowsTime = () => true, bootedUs = 0 } = options;
    this.#clock = clock;
    this.telemetry = new Telemetry(
      {
        databases: {
          open: (path, most) => new Connection(path, diskBytes?.() ?? most),
          isDamage: (error) => faultOf(error) === "damaged",
        },
        time: {
          bootId: boot,
          nowUs: () => clock.monotonic() * 1000 + bootedUs,
          wallUs: () => (knowsTime() ? clock.wall().getTime() * 1000 : undefined),
        },
        clock,
        log: this.log,
      },
      {
        path: join(folder, "telemetry.db"),
        maxBytes,
        maxAge: seconds(7 * 86_400),
        flushInterval: seconds(60),
        queue: life.toString(16).padStart(16, "0"),
      },
    );
    this.#running = endOfRun(this.telemetry.run(this.#life.signal));
  }

  /** Hands over records as a sender that never repeats itself. */
  put(records: readonly TelemetryRecord[], more: Partial<TelemetryHandover> & { pod?: string } = {}) {
    const { pod = SAMPLE_ORIGIN.pod, run = `run of ${pod}` } = more;
    const number = more.number ?? (this.#numbers.get(run) ?? 0) + 1;
    this.#numbers.set(run, number);
    const origin: TelemetryOrigin = { ...SAMPLE_ORIGIN, pod };
    const stamped = records.map((record, at) => ({ record, stampUs: this.#clock.monotonic() * 1000 + at }));
    const handover = { origin, run, number, firstUnkept: 1, records: stamped, isUrgent: false, ...more };
    return this.telemetry.put(handover) as Promise<TelemetryPutAnswer>;
  }

  /** @returns what ends the session */
  connect(store: TelemetryStore, node = "edge-1"): () => void {
    this.#session = new AbortController();
    const { signal } = this.#session;
    const streams = new TelemetryStreams({ store, clock: this.#clock, log: this.log });
    const onMessage = (): void => undefined;
    const { agent, hub } = joinMuxes(
      this.#clock,
      this.log,
      LINE,
      {
        agent: { onMessage, onStream: onMessage },
        hub: { onMessage, onStream: (stream) => streams.receive(stream, node) },
      },
      this.#life.signal,
    );
    const lane = new TelemetryLane(
      { clock: this.#clock, log: this.log, outgoing: this.telemetry, opener: agent },
      { kind: "telemetry", encoder: () => encodeDelivery },
    );
    lane.run(signal).catch(() => undefined);
    return () => {
      const gone = new PicoletError("unavailable", "the line is cut");
      this.#session.abort();
      agent.close(gone);
      hub.close(gone);
    };
  }

  /** As SIGKILL does it: nothing is written any more. The file is what it was. */
  async kill(): Promise<void> {
    this.#session.abort();
    this.#life.abort();
    await this.#running;
  }

  async end(): Promise<void> {
    await this.kill();
    await this.telemetry[Symbol.asyncDispose]();
  }
}

export const openHub = (clock: VirtualClock, folder: string, init: Partial<TelemetryStoreInit> = {}): TelemetryStore =>
  new TelemetryStore(
    { clock, log: new RecordedLog() },
    { path: join(folder, "hub.db"), maxBytes: 64 * 1024 * 1024, maxAgeMs: 7 * 86_400_000, exporters: [], ...init },
  );

/** Until the tunnel has had time for all there is. */
export async function settle(clock: VirtualClock): Promise<void> {
  for (let round = 0; round < 100; round += 1) await clock.advance(millis(100));
}

/** Copies the files of a killed agent, which it could not close. */
export function copyOf(folder: string, to: string): void {
  const names = readdirSync(folder).filter((name) => name.startsWith("telemetry"));
  for (const name of names) copyFileSync(join(folder, name), join(to, name));
}
