import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { MemoryWatch } from "@picolet/agent/budget/memory-watch.ts";
import { ownMemory } from "@picolet/agent/budget/own-memory.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";

const LOOK = 5;
const HOUR = 3600;

class Bench {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly store = new Store({ clock: this.clock, log: this.log }, { path: ":memory:" });
  anonMib = 20;
  heapMib = 10;
  /** The memory that shedding frees. */
  cachesMib = 0;
  sheds = 0;
  restarts = 0;
  bootId = "first";
  #stop = new AbortController();
  #running: Promise<void>;

  constructor(t: TestContext) {
    this.#running = this.#start();
    t.after(async () => {
      await this.#end();
      await this.store[Symbol.asyncDispose]();
    });
  }

  async look(times = 1): Promise<void> {
    await this.clock.advance(seconds(LOOK * times));
  }

  async restart(): Promise<void> {
    await this.#end();
    this.#stop = new AbortController();
    this.#running = this.#start();
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  #start(): Promise<void> {
    const { clock, events, log, store, bootId } = this;
    const shed = (): void => {
      this.sheds += 1;
      this.anonMib -= this.cachesMib;
      this.cachesMib = 0;
    };
    const watch = new MemoryWatch(
      {
        ...{ clock, events, log, bootId, kept: store.kept },
        read: () => ({
          anonBytes: this.anonMib * MEBIBYTE,
          heapUsedBytes: this.heapMib * MEBIBYTE,
          heapLimitBytes: 50 * MEBIBYTE,
        }),
        shedders: [{ name: "caches", shed }],
        restart: () => {
          this.restarts += 1;
        },
        uptime: () => 1000 + clock.monotonic() / 1000,
      },
      { nodeName: "node", budgetBytes: 64 * MEBIBYTE },
    );
    return endOfRun(watch.run(this.#stop.signal));
  }
}

test("below four fifths of the budget nothing happens", async (t) => {
  const bench = new Bench(t);
  bench.anonMib = 51;
  await bench.look(1000);
  assert.deepEqual([bench.sheds, bench.restarts, bench.events.lines], [0, 0, []]);
});

test("near the budget caches are shed, and that is said once with the figures; what comes back is said too", async (t) => {
  const bench = new Bench(t);
  bench.anonMib = 52;
  bench.cachesMib = 4;
  await bench.look();
  assert.equal(bench.sheds, 1);
  assert.deepEqual(bench.events.lines, [
    "Warning AgentMemoryTight: picolet takes 52 MiB of its 64 MiB; 48 MiB after shedding caches",
  ]);
  await bench.look(3);
  assert.equal(bench.sheds, 1, "it helped as far as it could");
  await bench.look(60);
  assert.equal(bench.sheds, 2, "five minutes later it is tried again");
  bench.anonMib = 44;
  await bench.look();
  assert.ok(bench.log.entries.some(({ message }) => message === "the agent's memory is within its budget again"));
  assert.equal(bench.events.all.length, 1);
  assert.equal(bench.restarts, 0);
});

test("above the budget for long, and after shedding, the agent begins anew; once an hour at most", async (t) => {
  const bench = new Bench(t);
  bench.anonMib = 80;
  await bench.look(3);
  assert.equal(bench.restarts, 0, "a burst would be over by now");
  await bench.look();
  assert.equal(bench.restarts, 1);
  const [, last] = bench.events.lines;
  assert.equal(
    last,
    "Warning AgentMemoryExceeded: picolet takes 80 MiB, more than its budget of 64 MiB, and starts again; pods run on",
  );
  await bench.restart();
  await bench.look(200);
  assert.equal(bench.restarts, 1, "no better after the restart");
  assert.equal(bench.log.entries.filter(({ message }) => message.includes("so soon after")).length, 1);
  await bench.look(HOUR / LOOK);
  assert.equal(bench.restarts, 2);
});

test("another start of the machine knows nothing of the last restart", async (t) => {
  const bench = new Bench(t);
  bench.anonMib = 80;
  await bench.look(4);
  bench.bootId = "second";
  await bench.restart();
  await bench.look(4);
  assert.equal(bench.restarts, 2);
});

test("a heap that comes near V8's limit counts like the budget", async (t) => {
  const bench = new Bench(t);
  bench.heapMib = 37;
  await bench.look();
  assert.equal(bench.sheds, 1);
  bench.heapMib = 46;
  await bench.look(3);
  assert.equal(bench.restarts, 1);
});

test("a burst that is over leaves the agent alone", async (t) => {
  const bench = new Bench(t);
  for (let n = 0; n < 20; n += 1) {
    bench.anonMib = 70;
    await bench.look(2);
    bench.anonMib = 50;
    await bench.look();
  }
  assert.equal(bench.restarts, 0);
});

test("this process's anonymous memory is what smaps says, swap with it", () => {
  const rollup = readFileSync("/proc/self/smaps_rollup", "utf8");
  const anonymous = Number(/^Anonymous:\s+(\d+) kB$/m.exec(rollup)?.[1]) * 1024;
  const { anonBytes, heapUsedBytes, heapLimitBytes } = ownMemory();
  assert.ok(Math.abs(anonBytes - anonymous) < 8 * MEBIBYTE, `${anonBytes} and ${anonymous}`);
  assert.ok(heapUsedBytes > MEBIBYTE && heapUsedBytes < heapLimitBytes);
  assert.ok(ownMemory("/nowhere").anonBytes > 0);
});
