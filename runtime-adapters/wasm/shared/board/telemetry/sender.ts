import { randomBytes } from "node:crypto";
import type { TelemetryRecord } from "@picolet/protocol/telemetry/records.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { type Plain, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { packRecord, readTelemetryPutAnswer, type TelemetryPut } from "@picolet/runtime-contract/telemetry-message.ts";
import type { StartedOperation } from "../../resources/polling.ts";
import type { ServiceClient } from "../../services/service-client.ts";

interface Handover {
  readonly number: number;
  readonly records: readonly Plain[];
  readonly bytes: number;
  readonly isUrgent: boolean;
  outcome: "waits" | "taken" | ServiceRefusal;
}

export interface TelemetrySenderComponents {
  readonly client: Pick<ServiceClient, "call">;
  /** Nanoseconds since the machine's boot, of a clock that is the agent's too. */
  readonly now: () => bigint;
  /**
   * Does not keep the component from ending.
   * @returns a function that cancels it
   */
  readonly later: (milliseconds: number, act: () => void) => () => void;
}

/**
 * Bounds points that are sent but not stored. Above it the agent is asked to write at once. It is about a thousand
 * points.
 */
const MAX_UNKEPT_BYTES = 128 * KIBIBYTE;
/** While the agent keeps nothing, its disk being full, no more is taken than this: it is the component's memory too. */
const MOST_UNKEPT_BYTES = 512 * KIBIBYTE;
/** The wait that a component is advised then. */
const RETRY_MS = 5000;
/** The interval at which the agent is asked what it has stored. A restarted agent has lost the rest. */
const ASK_MS = 15_000;
const RUN_BYTES = 8;

/**
 * Sends records to the agent, in order, one message at a time. Records that the agent has received and not stored stay
 * here, and a restarted agent, which has lost them, gets them again.
 */
export class TelemetrySender {
  readonly #components: TelemetrySenderComponents;
  readonly #run = randomBytes(RUN_BYTES).toString("hex");
  /** In order; those that the agent keeps are gone. */
  #unkept: Handover[] = [];
  #last = 0;
  #taken = 0;
  #lastStampUs = 0;
  #isCalling = false;
  #isAsking = false;
  #cancelAsking: (() => void) | undefined;
  readonly #waking = new Set<() => void>();

  constructor(components: TelemetrySenderComponents) {
    this.#components = components;
  }

  /** Its result throws the ServiceRefusal of a handover that was not taken. @throws ServiceRefusal `full` */
  send(records: readonly TelemetryRecord[], bytes: number, isUrgent: boolean): StartedOperation<void> {
    const unkept = this.#unkept.reduce((sum, each) => sum + each.bytes, bytes);
    if (unkept > MOST_UNKEPT_BYTES) throw new ServiceRefusal("full", RETRY_MS);
    const packed = records.map((record) => packRecord({ record, stampUs: this.#stamp() }));
    this.#last += 1;
    const handover: Handover = {
      ...{ number: this.#last, records: packed, bytes, outcome: "waits" },
      isUrgent: isUrgent || unkept > MAX_UNKEPT_BYTES,
    };
    this.#unkept.push(handover);
    this.#pump();
    return {
      ready: () => handover.outcome !== "waits",
      onReady: (wake) => {
        this.#waking.add(wake);
        return () => this.#waking.delete(wake);
      },
      result: () => {
        if (handover.outcome instanceof ServiceRefusal) throw handover.outcome;
      },
    };
  }

  /** Grows with every record: no two of them are one to a time-series store. */
  #stamp(): number {
    this.#lastStampUs = Math.max(this.#lastStampUs + 1, Number(this.#components.now() / 1000n));
    return this.#lastStampUs;
  }

  #pump(): void {
    if (this.#isCalling) return;
    const next = this.#unkept.find(({ number }) => number > this.#taken);
    if (next === undefined && !this.#isAsking) {
      this.#askLater();
      return;
    }
    this.#isCalling = true;
    const { number, records, isUrgent } = next ?? { number: 0, records: [], isUrgent: false };
    const firstUnkept = this.#unkept[0]?.number ?? this.#last + 1;
    const value: TelemetryPut = { run: this.#run, number, firstUnkept, isUrgent, records };
    const call = this.#components.client.call(
      "telemetry.put",
      { value: { ...value }, bytes: [] },
      { repeatable: true },
    );
    const settle = (): void => {
      this.#isCalling = false;
      this.#isAsking = false;
      this.#settle(next, () => readTelemetryPutAnswer(call.result().value));
    };
    if (call.ready()) settle();
    else call.onReady?.(settle);
  }

  #settle(handover: Handover | undefined, answer: () => { readonly taken: number; readonly kept: number }): void {
    try {
      const { taken, kept } = answer();
      this.#taken = taken;
      for (const each of this.#unkept) if (each.number <= taken) each.outcome = "taken";
      this.#unkept = this.#unkept.filter(({ number }) => number > kept);
    } catch (error) {
      this.#failed(handover, error instanceof ServiceRefusal ? error : new ServiceRefusal("unavailable"));
    }
    const waking = [...this.#waking];
    this.#waking.clear();
    for (const wake of waking) wake();
    this.#pump();
  }

  /** Nothing more is sent until the agent has been asked how far it is. */
  #failed(handover: Handover | undefined, refusal: ServiceRefusal): void {
    const waiting = this.#unkept.find(({ outcome }) => outcome === "waits");
    if (waiting !== undefined) {
      waiting.outcome = refusal;
      // One that may have been taken keeps its number, and is handed over again.
      if (waiting !== handover || refusal.tag !== "unavailable") {
        this.#unkept = this.#unkept.filter((each) => each !== waiting);
        this.#last = waiting.number - 1;
      }
    }
    this.#taken = this.#last;
  }

  #askLater(): void {
    if (this.#unkept.length === 0 || this.#cancelAsking !== undefined) return;
    this.#cancelAsking = this.#components.later(ASK_MS, () => {
      this.#cancelAsking = undefined;
      this.#isAsking = true;
      this.#pump();
    });
  }
}
