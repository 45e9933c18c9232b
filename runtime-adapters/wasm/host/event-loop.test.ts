import assert from "node:assert/strict";
import { test } from "node:test";
import { LoopWaiter } from "./event-loop.ts";
import { Poller, type Readiness, WouldBlock } from "./polling.ts";

const MS = 1_000_000n;

class Timers {
  nowNs = 0n;
  readonly due: { readonly at: number; readonly act: () => void }[] = [];
  takenBack = 0;

  now(): bigint {
    return this.nowNs;
  }

  after(milliseconds: number, act: () => void): () => void {
    this.due.push({ at: milliseconds, act });
    return () => {
      this.takenBack += 1;
    };
  }
}

class Gate implements Readiness {
  isOpen = false;
  readonly wakes = new Set<() => void>();

  ready(): boolean {
    return this.isOpen;
  }

  onReady(wake: () => void): () => void {
    this.wakes.add(wake);
    return () => void this.wakes.delete(wake);
  }
}

test("what would have to wait is thrown with all that it waits for, and nothing is when it need not", () => {
  const waiter = new LoopWaiter(new Timers());
  let waits = 0;
  const poller = new Poller(waiter, () => {
    waits += 1;
  });
  const gate = new Gate();
  assert.throws(
    () => poller.until(gate),
    (error: unknown) => error instanceof WouldBlock && error.wanted[0] === gate,
  );
  assert.equal(waits, 1);
  gate.isOpen = true;
  poller.until(gate);
  assert.equal(waits, 1);
});

test("the first of several ends the wait, and the others are told that nobody waits for them", async () => {
  const timers = new Timers();
  const waiter = new LoopWaiter(timers);
  const poller = new Poller(waiter, () => undefined);
  const [one, other] = [new Gate(), new Gate()];
  const waited = waiter.whenAny([one, other, poller.timer(30n * MS), poller.timer(20n * MS)]);
  assert.deepEqual(
    timers.due.map(({ at }) => at),
    [20],
  );
  for (const wake of other.wakes) wake();
  await waited;
  assert.deepEqual([one.wakes.size, other.wakes.size, timers.takenBack], [0, 0, 1]);
});

test("time wakes, and so does what was ready before it was asked", async () => {
  const timers = new Timers();
  const waiter = new LoopWaiter(timers);
  const poller = new Poller(waiter, () => undefined);
  const waited = waiter.whenAny([poller.timer(20n * MS)]);
  timers.due[0]?.act();
  await waited;
  const gate = new Gate();
  gate.isOpen = true;
  await waiter.whenAny([gate]);
  assert.equal(gate.wakes.size, 0);
});
