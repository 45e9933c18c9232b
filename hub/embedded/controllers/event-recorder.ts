import type { KubeClient, KubeObject, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type Clock, type Log, millis, seconds } from "@picolet/protocol/ports.ts";
import { stableHash } from "./stable-hash.ts";

export const EVENTS: ResourceType = { group: "", version: "v1", plural: "events", kind: "Event", namespaced: true };

/** Bounds events that wait to be written; more are dropped. Events are for people, who could not read so many. */
const MAX_PENDING = 1000;
/** Remembered, so that a repeat counts up the event that is there. The one that was not repeated longest goes. */
const MAX_REMEMBERED = 2000;
/** An event that repeats is written no more often than this; the count says how often it was. */
const LEAST_INTERVAL = seconds(10);

export interface ObjectEvent {
  readonly type: "Normal" | "Warning";
  /** CamelCase, one word. */
  readonly reason: string;
  readonly message: string;
  /** Component that reports the event: `default-scheduler`, `daemonset-controller`. */
  readonly component: string;
}

interface Written {
  readonly namespace: string;
  readonly name: string;
  count: number;
  readonly firstTimestamp: string;
  writtenAtMs: number;
}

interface Pending {
  readonly regarding: KubeObject;
  readonly event: ObjectEvent;
  count: number;
}

/**
 * Writes core/v1 events about objects; one that repeats is counted up. Never fails: what cannot be written is dropped.
 */
export class EventRecorder implements Component {
  readonly name = "event recorder";
  readonly #client: KubeClient;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #alarm: Alarm;
  readonly #pending = new Map<string, Pending>();
  readonly #written = new Map<string, Written>();

  constructor({ client, clock, log }: { readonly client: KubeClient; readonly clock: Clock; readonly log: Log }) {
    this.#client = client;
    this.#clock = clock;
    this.#log = log;
    this.#alarm = new Alarm(clock);
  }

  record(regarding: KubeObject, event: ObjectEvent): void {
    const { kind, metadata } = regarding;
    const key = JSON.stringify([kind, metadata.namespace, metadata.name, metadata.uid, ...Object.values(event)]);
    const waiting = this.#pending.get(key);
    if (waiting !== undefined) waiting.count += 1;
    else if (this.#pending.size < MAX_PENDING) this.#pending.set(key, { regarding, event, count: 1 });
    this.#alarm.set(this.#untilDue(key));
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#alarm.ring(signal);
      for (const [key, pending] of this.#pending) {
        const wait = this.#untilDue(key);
        if (wait > 0) {
          this.#alarm.set(wait);
          continue;
        }
        this.#pending.delete(key);
        await this.#write(key, pending, signal);
      }
    }
  }

  #untilDue(key: string) {
    const writtenAt = this.#written.get(key)?.writtenAtMs;
    return millis(writtenAt === undefined ? 0 : Math.max(0, writtenAt + LEAST_INTERVAL - this.#clock.monotonic()));
  }

  async #write(key: string, pending: Pending, signal: AbortSignal): Promise<void> {
    try {
      const before = this.#written.get(key);
      if (before === undefined || !(await this.#countUp(before, pending, signal))) {
        await this.#create(key, pending, signal);
      }
    } catch (error) {
      if (signal.aborted || isCancelled(error)) return;
      this.#log.debug("cannot write an event", { reason: pending.event.reason, error: describeError(error) });
    }
  }

  /** @returns false when the event has gone since */
  async #countUp(before: Written, { count }: Pending, signal: AbortSignal): Promise<boolean> {
    const patch = { count: before.count + count, lastTimestamp: kubeTime(this.#clock.wall()) };
    before.writtenAtMs = this.#clock.monotonic();
    try {
      await this.#client.patch(EVENTS, before, "merge", patch, {}, signal);
    } catch (error) {
      if (isPicoletError(error, "not_found")) return false;
      throw error;
    }
    before.count += count;
    return true;
  }

  async #create(key: string, { regarding, event, count }: Pending, signal: AbortSignal): Promise<void> {
    const { metadata } = regarding;
    const namespace = metadata.namespace || "default";
    const now = this.#clock.wall();
    const name = `${metadata.name}.${now.getTime().toString(16)}${stableHash(key)}`;
    const time = kubeTime(now);
    await this.#client.create(
      EVENTS,
      { namespace, name },
      {
        apiVersion: "v1",
        kind: "Event",
        metadata: { name, namespace },
        involvedObject: {
          apiVersion: regarding.apiVersion,
          kind: regarding.kind,
          ...(metadata.namespace === undefined ? {} : { namespace: metadata.namespace }),
          name: metadata.name,
          uid: metadata.uid,
          resourceVersion: metadata.resourceVersion,
        },
        type: event.type,
        reason: event.reason,
        message: event.message,
        source: { component: event.component },
        reportingComponent: event.component,
        reportingInstance: "",
        count,
        firstTimestamp: time,
        lastTimestamp: time,
      },
      {},
      signal,
    );
    this.#written.delete(key);
    this.#written.set(key, {
      namespace,
      name,
      count,
      firstTimestamp: time,
      writtenAtMs: this.#clock.monotonic(),
    });
    const oldest = this.#written.size > MAX_REMEMBERED ? this.#written.keys().next().value : undefined;
    if (oldest !== undefined) this.#written.delete(oldest);
  }
}
