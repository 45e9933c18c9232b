import assert from "node:assert/strict";
import { test } from "node:test";
import { type FairSlot, FairSlots, type FairSlotsInit } from "./fair-slots.ts";

const NEVER = new AbortController().signal;
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Tasks by name, whose first letter is their group; `order` is that in which they got their places. */
class Bench {
  readonly order: string[] = [];
  readonly places = new Map<string, FairSlot>();
  readonly fair: FairSlots;

  constructor(init: Omit<FairSlotsInit, "what">) {
    this.fair = new FairSlots({ ...init, what: "task" });
  }

  async ask(names: string, signal = NEVER): Promise<void> {
    for (const name of names.split(" ")) {
      this.fair.take(name[0] ?? "", signal).then(
        (place) => {
          this.order.push(name);
          this.places.set(name, place);
        },
        () => this.order.push(`${name} left`),
      );
    }
    await settle();
  }

  async end(name: string): Promise<void> {
    this.places.get(name)?.[Symbol.dispose]();
    this.places.delete(name);
    await settle();
  }
}

test("slots are given in order of arrival, and never more than there are", async () => {
  const bench = new Bench({ total: 2 });
  await bench.ask("a1 a2 a3 a4");
  assert.deepEqual(bench.order, ["a1", "a2"]);
  assert.deepEqual([bench.places.get("a1")?.index, bench.places.get("a2")?.index], [0, 1]);
  await bench.end("a1");
  await bench.end("a1");
  assert.deepEqual(bench.order, ["a1", "a2", "a3"]);
  assert.equal(bench.places.get("a3")?.index, 0);
  assert.equal(bench.places.get("a3")?.isContended, false, "only its own group waits");
});

test("a group that holds fewer places goes before one that holds more, however many of that one wait", async () => {
  const bench = new Bench({ total: 3 });
  await bench.ask("a1 a2 a3 a4 a5 a6 b1 c1");
  assert.equal(bench.places.get("a1")?.isContended, true);
  await bench.end("a1");
  await bench.end("a2");
  assert.deepEqual(bench.order, ["a1", "a2", "a3", "b1", "c1"]);
});

test("a group has no more places than one may have", async () => {
  const bench = new Bench({ total: 3, perGroup: 2 });
  await bench.ask("a1 a2 a3 b1");
  assert.deepEqual(bench.order, ["a1", "a2", "b1"]);
  assert.equal(bench.places.get("a1")?.isContended, false);
});

test("a group that was demoted goes behind all others, and behind those demoted before it", async () => {
  const bench = new Bench({ total: 1 });
  await bench.ask("a1 a2 b1 b2 c1 c2");
  bench.places.get("a1")?.report(false);
  await bench.end("a1");
  bench.places.get("b1")?.report(false);
  await bench.end("b1");
  for (const name of ["c1", "c2"]) await bench.end(name);
  bench.places.get("a2")?.report(true);
  await bench.ask("b3 a3");
  for (const name of ["a2", "a3", "b2"]) await bench.end(name);
  assert.deepEqual(bench.order, ["a1", "b1", "c1", "c2", "a2", "a3", "b2", "b3"]);
});

test("one that leaves while it waits gets none", async () => {
  const bench = new Bench({ total: 1 });
  const stop = new AbortController();
  await bench.ask("a1");
  await bench.ask("b1", stop.signal);
  await bench.ask("c1");
  stop.abort();
  await bench.end("a1");
  assert.deepEqual(bench.order, ["a1", "b1 left", "c1"]);
  await bench.ask("d1", stop.signal);
  assert.deepEqual(bench.order.at(-1), "d1 left");
});
