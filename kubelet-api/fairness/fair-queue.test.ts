import assert from "node:assert/strict";
import { test } from "node:test";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { FairQueue, type FairQueueInit, type LevelInit, type QueueRefusal, type Seat } from "./fair-queue.ts";

const never = new AbortController().signal;
const LEVEL: LevelInit = { name: "one", share: 1, seats: 4, flowSeats: 2, flowQueue: 10_000, queue: 100_000 };

/** A queue whose turns the test lets pass, and which notes who was started. */
class Bench {
  readonly clock = new VirtualClock();
  readonly queue: FairQueue;
  readonly started: string[] = [];
  readonly seats: Seat[] = [];
  readonly refused: string[] = [];
  #turns: (() => void)[] = [];

  constructor(init: Partial<FairQueueInit> = {}) {
    const later = (work: () => void): void => {
      this.#turns.push(work);
    };
    this.queue = new FairQueue({ clock: this.clock, later }, { levels: [LEVEL], ...init });
  }

  ask(flow: string, { level = "one", width = 1, signal = never } = {}): void {
    this.queue.take(level, flow, width, signal).then(
      (seat) => {
        this.started.push(flow);
        this.seats.push(seat);
      },
      (error: unknown) => {
        if (!isCancelled(error)) this.refused.push(`${flow}: ${(error as QueueRefusal).reason}`);
      },
    );
  }

  async turn(): Promise<void> {
    const due = this.#turns;
    this.#turns = [];
    for (const work of due) work();
    await this.clock.settle();
  }

  /** Ends the oldest work. */
  async end(): Promise<void> {
    this.seats.shift()?.release();
    await this.clock.settle();
  }
}

test("a flow with thousands of requests delays another's by one turn at most", async () => {
  const bench = new Bench({ widthPerTurn: 1 });
  for (let n = 0; n < 5000; n += 1) bench.ask("flood");
  await bench.clock.settle();
  bench.ask("other");
  await bench.turn();
  await bench.turn();
  assert.ok(bench.started.indexOf("other") <= 2, bench.started.join());
  // The flood holds its part of the seats and no more, so that the next one needs no seat to become free.
  for (let n = 0; n < 10; n += 1) await bench.turn();
  assert.equal(bench.started.filter((flow) => flow === "flood").length, LEVEL.flowSeats);
  bench.ask("third");
  await bench.turn();
  assert.equal(bench.started.at(-1), "third");
});

test("flows of one level take turns, however many requests each has", async () => {
  const bench = new Bench({ levels: [{ ...LEVEL, seats: 1, flowSeats: 1 }] });
  for (let n = 0; n < 300; n += 1) bench.ask("a");
  for (let n = 0; n < 3; n += 1) bench.ask("b");
  for (let n = 0; n < 3; n += 1) bench.ask("c");
  for (let n = 0; n < 9; n += 1) {
    await bench.clock.settle();
    await bench.end();
  }
  assert.equal(bench.started.slice(0, 9).join(""), "abcabcabc");
});

test("a wide request makes its flow sit out as many rounds, and the debt outlives an empty queue", async () => {
  const bench = new Bench({ levels: [{ ...LEVEL, seats: 1, flowSeats: 1 }] });
  bench.ask("wide", { width: 4 });
  for (let n = 0; n < 10; n += 1) bench.ask("a");
  await bench.clock.settle();
  await bench.end();
  bench.ask("wide", { width: 4 });
  for (let n = 0; n < 6; n += 1) {
    await bench.clock.settle();
    await bench.end();
  }
  assert.deepEqual(bench.started.slice(0, 6), ["wide", "a", "a", "a", "wide", "a"]);
});

test("levels have their own seats, and share the turns by their weight; none starves", async () => {
  const levels = [
    { ...LEVEL, name: "high", share: 3, seats: 100, flowSeats: 100 },
    { ...LEVEL, name: "low", share: 1, seats: 100, flowSeats: 100 },
  ];
  const bench = new Bench({ levels, widthPerTurn: 4 });
  for (let n = 0; n < 40; n += 1) bench.ask("low", { level: "low" });
  await bench.turn();
  for (let n = 0; n < 40; n += 1) bench.ask("high", { level: "high" });
  const before = bench.started.length;
  for (let n = 0; n < 4; n += 1) await bench.turn();
  const later = bench.started.slice(before);
  assert.equal(later.length, 16);
  assert.equal(later.filter((flow) => flow === "low").length, 4, later.join());
});

test("a level that was busy long ago is not starved by one that was idle", async () => {
  const levels = [
    { ...LEVEL, name: "x", share: 1, seats: 1 },
    { ...LEVEL, name: "y", share: 1, seats: 1 },
  ];
  const bench = new Bench({ levels, widthPerTurn: 1 });
  for (let n = 0; n < 100; n += 1) {
    bench.ask("x", { level: "x" });
    await bench.turn();
    await bench.end();
    await bench.turn();
  }
  for (let n = 0; n < 10; n += 1) bench.ask("y", { level: "y" });
  bench.ask("x", { level: "x" });
  const before = bench.started.length;
  for (let n = 0; n < 3; n += 1) {
    await bench.turn();
    await bench.end();
  }
  assert.ok(bench.started.slice(before).includes("x"), bench.started.slice(before).join());
});

test("a full queue refuses the flow that fills it, and makes room for another by the longest", async () => {
  const bench = new Bench({ levels: [{ ...LEVEL, seats: 1, flowSeats: 1, flowQueue: 8, queue: 10 }] });
  for (let n = 0; n < 10; n += 1) bench.ask("flood");
  await bench.clock.settle();
  assert.deepEqual(bench.refused, ["flood: queue-full"]);
  for (const flow of ["a", "b", "c"]) bench.ask(flow);
  await bench.clock.settle();
  assert.deepEqual(bench.refused, ["flood: queue-full", "flood: queue-full"]);
  assert.equal(bench.queue.load.waiting, 10);
});

test("a request waits no longer than the limit", async () => {
  const bench = new Bench({ levels: [{ ...LEVEL, seats: 1, flowSeats: 1 }], waitLimit: seconds(15) });
  bench.ask("a");
  bench.ask("b");
  await bench.clock.advance(seconds(10));
  bench.ask("c");
  await bench.clock.advance(seconds(6));
  assert.deepEqual(bench.refused, ["b: time-out"]);
  await bench.end();
  assert.deepEqual(bench.started, ["a", "c"]);
});

test("for any order of arrivals, ends and aborts no seat is lost, no limit passed, nothing kept", async () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("ask" as const), flow: fc.nat(4), width: fc.nat(6), level: fc.nat(1) }),
    fc.record({ kind: fc.constantFrom("end" as const, "abort" as const, "turn" as const), at: fc.nat(30) }),
  );
  const limits = { ...LEVEL, seats: 3, flowSeats: 2, flowQueue: 5, queue: 12 };
  const levels = [
    { ...limits, name: "0" },
    { ...limits, name: "1", share: 3 },
  ];
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const bench = new Bench({ levels, widthPerTurn: 4, waitLimit: seconds(15) });
      const asked: AbortController[] = [];
      for (const each of steps) {
        if (each.kind === "ask") {
          const control = new AbortController();
          asked.push(control);
          bench.ask(`f${each.flow}`, { level: String(each.level), width: each.width, signal: control.signal });
        } else if (each.kind === "end") bench.seats.splice(each.at % (bench.seats.length || 1), 1)[0]?.release();
        else if (each.kind === "abort") asked[each.at % (asked.length || 1)]?.abort();
        else await bench.turn();
        await bench.clock.settle();
        const { seats, waiting } = bench.queue.load;
        assert.equal(seats, bench.seats.length);
        assert.ok(seats <= 6 && waiting <= 24);
      }
      // Everything that is left comes to its end.
      for (let n = 0; n < 200 && bench.queue.load.seats + bench.queue.load.waiting > 0; n += 1) {
        await bench.turn();
        await bench.end();
      }
      const { seats, waiting } = bench.queue.load;
      assert.deepEqual([seats, waiting, bench.seats.length], [0, 0, 0]);
    }),
    { numRuns: 200, seed: 12 },
  );
});
