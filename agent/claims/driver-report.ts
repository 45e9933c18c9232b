import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DraDriver } from "./dra-driver.ts";
import type { DraDriverTable } from "./dra-driver-table.ts";

/**
 * How long a driver may be away before its ResourceSlices are removed, as in the kubelet: longer than an update of the
 * driver takes. After a start of the agent drivers have as long to register.
 */
const AWAY_LIMIT = seconds(30);

interface Followed {
  readonly life: AbortController;
  readonly task: Promise<unknown>;
  /** False while its process is gone, although its socket is there. */
  isThere: boolean;
}

/** Tells the hub which drivers the node has: it removes the ResourceSlices of all others. */
export class DriverReport implements Component {
  readonly name = "DRA driver report";
  readonly #clock: Clock;
  readonly #table: DraDriverTable;
  readonly #report = new WatchSource<string | undefined>(undefined);
  readonly #alarm: Alarm;
  #registered: ReadonlySet<string> = new Set();
  readonly #awaySinceMs = new Map<string, number>();
  readonly #followed = new Map<DraDriver, Followed>();

  constructor({ clock, table }: { readonly clock: Clock; readonly table: DraDriverTable }) {
    this.#clock = clock;
    this.#table = table;
    this.#alarm = new Alarm(clock);
  }

  /** JSON of the names, sorted; undefined: drivers may still be registering. */
  get report(): ListenableWatch<string | undefined> {
    return this.#report;
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#table.onChange(() => this.#alarm.set(millis(0)));
    await this.#clock.sleep(AWAY_LIMIT, signal);
    try {
      for (;;) {
        this.#follow();
        this.#update();
        await this.#alarm.ring(signal);
      }
    } finally {
      const all = [...this.#followed.values()];
      for (const { life } of all) life.abort();
      await Promise.all(all.map(({ task }) => task));
    }
  }

  #follow(): void {
    const drivers = new Set(this.#table.all().map(({ driver }) => driver));
    for (const [driver, { life }] of this.#followed) {
      if (drivers.has(driver)) continue;
      life.abort();
      this.#followed.delete(driver);
    }
    for (const driver of drivers) {
      if (this.#followed.has(driver)) continue;
      const life = new AbortController();
      const report = (isThere: boolean): void => {
        followed.isThere = isThere;
        this.#alarm.set(millis(0));
      };
      const task = driver.follow(report, life.signal).catch(ignore("the driver has left, or the agent stops"));
      const followed: Followed = { life, task, isThere: true };
      this.#followed.set(driver, followed);
    }
  }

  #update(): void {
    const now = this.#clock.monotonic();
    const there = this.#table.all().filter(({ driver }) => this.#followed.get(driver)?.isThere !== false);
    const registered = new Set(there.map(({ name }) => name));
    for (const name of this.#registered) if (!registered.has(name)) this.#awaySinceMs.set(name, now);
    for (const [name, sinceMs] of this.#awaySinceMs) {
      const left = sinceMs + AWAY_LIMIT - now;
      if (left <= 0 || registered.has(name)) this.#awaySinceMs.delete(name);
      else this.#alarm.set(millis(left));
    }
    this.#registered = registered;
    const next = JSON.stringify([...registered, ...this.#awaySinceMs.keys()].sort());
    if (next !== this.#report.current) this.#report.set(next);
  }
}
