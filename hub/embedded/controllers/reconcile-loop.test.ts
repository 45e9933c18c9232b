import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { DueQueue, ReconcileLoop } from "./reconcile-loop.ts";

const drained = (queue: DueQueue, nowMs: number): number[] => {
  const times: number[] = [];
  for (let entry = queue.pop(nowMs); entry !== undefined; entry = queue.pop(nowMs)) times.push(entry.dueMs);
  return times;
};

test("gives out what is due, earliest first, and nothing before its time", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(100)), fc.nat(100), (times, now) => {
      const queue = new DueQueue();
      for (const [index, time] of times.entries()) queue.push(`key-${index}`, time);
      const sorted = times.toSorted((a, b) => a - b);
      assert.equal(queue.nextDueMs, sorted[0]);
      assert.deepEqual(
        drained(queue, now),
        sorted.filter((time) => time <= now),
      );
      assert.deepEqual(
        drained(queue, 100),
        sorted.filter((time) => time > now),
      );
      assert.equal(queue.nextDueMs, undefined);
    }),
  );
});

type Deed = (key: string) => Promise<Millis | undefined>;

class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly synced = new WatchSource(true);
  readonly done: string[] = [];
  readonly loop: ReconcileLoop;
  deed: Deed = async () => undefined;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(workers = 2, isSynced = true) {
    this.synced.set(isSynced);
    const ports = { clock: this.clock, random: seededRandom(1), log: this.log };
    this.loop = new ReconcileLoop(ports, {
      name: "bench",
      needs: [{ synced: this.synced }],
      workers,
      reconcile: (key) => {
        this.done.push(key);
        return this.deed(key);
      },
    });
    this.#running = endOfRun(this.loop.run(this.#stop.signal));
  }

  async pass(duration: Millis = millis(0)): Promise<void> {
    await this.clock.advance(duration);
    await this.clock.settle();
    await this.clock.settle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running.catch(() => undefined);
    assert.equal(this.clock.sleeping, 0, "no timer is left");
  }
}

test("nothing is concluded before everything has been listed", async () => {
  await using bench = new Bench(2, false);
  bench.loop.add("a");
  await bench.pass();
  assert.deepEqual(bench.done, []);
  bench.synced.set(true);
  await bench.pass();
  assert.deepEqual(bench.done, ["a"]);
});

test("a key that is added many times is worked on once, and once more if it changed meanwhile", async () => {
  await using bench = new Bench();
  const gate = Promise.withResolvers<undefined>();
  bench.deed = () => gate.promise;
  for (let times = 0; times < 3; times += 1) bench.loop.add("a");
  await bench.pass();
  for (let times = 0; times < 3; times += 1) bench.loop.add("a");
  await bench.pass();
  assert.deepEqual(bench.done, ["a"]);
  gate.resolve(undefined);
  await bench.pass();
  assert.deepEqual(bench.done, ["a", "a"]);
  assert.ok(bench.loop.isIdle);
});

test("one that hangs holds up no other, and only so many run at once", async () => {
  await using bench = new Bench(2);
  const gate = Promise.withResolvers<undefined>();
  bench.deed = (key) => (key === "slow" ? gate.promise : Promise.resolve(undefined));
  for (const key of ["slow", "b", "c", "d"]) bench.loop.add(key);
  await bench.pass();
  await bench.pass();
  assert.deepEqual(bench.done, ["slow", "b", "c", "d"]);
  bench.deed = () => gate.promise;
  for (const key of ["e", "f"]) bench.loop.add(key);
  await bench.pass();
  assert.deepEqual(bench.done.slice(4), ["e"]);
  gate.resolve(undefined);
});

test("a key that fails is tried again, each time after a longer wait, and is logged once", async () => {
  await using bench = new Bench();
  bench.deed = async () => {
    throw new PicoletError("unavailable", "cannot reach it");
  };
  bench.loop.add("a");
  await bench.pass(seconds(1));
  const early = bench.done.length;
  assert.ok(early >= 3 && early <= 20, `${early} in the first second`);
  await bench.pass(seconds(600));
  const before = bench.done.length;
  await bench.pass(seconds(600));
  const late = bench.done.length - before;
  assert.ok(late >= 10 && late <= 60, `${late} in ten minutes`);
  assert.equal(bench.log.problems.length, 2);
});

test("a key comes back at its time, sooner when it is added, and not twice", async () => {
  await using bench = new Bench();
  bench.deed = async () => seconds(10);
  bench.loop.add("a");
  await bench.pass(seconds(9));
  assert.equal(bench.done.length, 1);
  await bench.pass(seconds(1));
  assert.equal(bench.done.length, 2);
  await bench.pass(seconds(5));
  bench.loop.add("a");
  await bench.pass(seconds(9));
  assert.equal(bench.done.length, 3, "the hour that was asked for before has lapsed");
  await bench.pass(seconds(1));
  assert.equal(bench.done.length, 4);
});
