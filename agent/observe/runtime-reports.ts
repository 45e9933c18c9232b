import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { RuntimeReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter, RuntimeStatus } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";

/** A status takes a millisecond; a runtime that needs so long for it is not well. */
const STATUS_LIMIT = seconds(10);
/** At start nothing waits longer than this for a runtime's name. */
const FIRST_STATUS_LIMIT = seconds(2);
/** While all is well. A relist that fails asks at once; the kubelet asks every 5 s. */
const CALM_PERIOD = seconds(30);
const TROUBLED_PERIOD = seconds(5);

export interface RuntimeReportsComponents {
  readonly adapters: readonly RuntimeAdapter[];
  /** The health according to the relists. */
  readonly relists: Watch<readonly RuntimeHealth[]>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Reads what the runtimes report of themselves: name, version, and conditions that no relist shows, such as a missing
 * network configuration. With the relists' health they make the node's condition Ready.
 */
export class RuntimeReports implements Component {
  readonly name = "runtime reports";
  readonly #components: RuntimeReportsComponents;
  /** The last answer of each runtime that has ever answered. */
  readonly #answers = new Map<RuntimeAdapter, RuntimeStatus>();
  /** The runtimes that did not answer the last request. */
  readonly #silent = new Set<RuntimeAdapter>();
  readonly #health = new WatchSource<readonly RuntimeHealth[]>([]);
  readonly #alarm: Alarm;

  constructor(components: RuntimeReportsComponents) {
    this.#components = components;
    this.#alarm = new Alarm(components.clock);
  }

  get health(): Watch<readonly RuntimeHealth[]> {
    return this.#health;
  }

  /** The part before `://` in ids of this runtime's containers. */
  runtimeName(adapter: RuntimeAdapter): string {
    return this.#answers.get(adapter)?.runtime ?? adapter.name;
  }

  /** The runtime's last answer; undefined: none yet. */
  answer(adapter: RuntimeAdapter): RuntimeStatus | undefined {
    return this.#answers.get(adapter);
  }

  get reports(): readonly RuntimeReport[] {
    return this.#components.adapters.map((adapter) => {
      const answer = this.#answers.get(adapter);
      const health = this.#health.current.find(({ name }) => name === adapter.name);
      const isolation = adapter.isolationLevel?.();
      return {
        name: adapter.name,
        runtime: answer?.runtime ?? "",
        version: answer?.version ?? "",
        ready: health?.healthy ?? false,
        message: health === undefined ? "has not answered yet" : health.message || (answer?.notes ?? []).join("; "),
        ...(isolation === undefined ? {} : { isolation }),
      };
    });
  }

  /** For names in the first statuses; a runtime that is not there yet holds nothing up. */
  async askOnce(signal: AbortSignal): Promise<void> {
    await this.#askAll(FIRST_STATUS_LIMIT, signal);
  }

  async run(signal: AbortSignal): Promise<void> {
    const follow = async (): Promise<void> => {
      for await (const relists of this.#components.relists.changes(signal)) {
        // A runtime that is ill may not answer: bad news waits for nothing, good news for what the runtime says of
        // itself.
        if (relists.some(({ healthy }) => !healthy)) this.#join();
        this.#alarm.set(0 as Millis);
      }
    };
    const ask = async (): Promise<void> => {
      while (!signal.aborted) {
        await this.#alarm.ring(signal);
        await this.#askAll(STATUS_LIMIT, signal);
        this.#alarm.set(this.#health.current.every(({ healthy }) => healthy) ? CALM_PERIOD : TROUBLED_PERIOD);
      }
    };
    await Promise.all([follow(), ask()]);
  }

  async #askAll(limit: Millis, signal: AbortSignal): Promise<void> {
    const { adapters, clock, log } = this.#components;
    const asked = adapters.map(async (adapter) => {
      try {
        const ask = (inner: AbortSignal): Promise<RuntimeStatus> => adapter.status(inner);
        this.#answers.set(adapter, await withDeadline(clock, limit, `ask ${adapter.name} for its status`, ask, signal));
        this.#silent.delete(adapter);
      } catch (error) {
        this.#silent.add(adapter);
        if (!isCancelled(error))
          log.debug("cannot ask a runtime", { runtime: adapter.name, error: describeError(error) });
      }
    });
    await Promise.all(asked);
    this.#join();
  }

  /** A runtime that cannot be listed is that ill; one that can is as well as it says. */
  #join(): void {
    const { adapters, relists } = this.#components;
    const joined = relists.current.map((health): RuntimeHealth => {
      const adapter = adapters.find(({ name }) => name === health.name);
      const answer = adapter && this.#answers.get(adapter);
      const before = this.#health.current.find(({ name }) => name === health.name);
      // Its last answer is of before it fell ill.
      if (health.healthy && adapter && this.#silent.has(adapter) && before?.healthy === false) return before;
      const failing = answer?.conditions.filter(({ status }) => !status) ?? [];
      if (!health.healthy || failing.length === 0) return health;
      const said = failing.map(({ type, reason, message }) => `${type}=false reason:${reason} message:${message}`);
      return { ...health, healthy: false, reason: "RuntimeNotReady", message: said.join(", ") };
    });
    if (JSON.stringify(joined) !== JSON.stringify(this.#health.current)) this.#health.set(joined);
  }
}
