import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { Slots } from "./slots.ts";

const { signal } = new AbortController();

/** Tasks that run until they are let go. */
function tasks(clock: VirtualClock, slots: Slots) {
  const running: string[] = [];
  const letGo = new Map<string, () => void>();
  const start = (name: string, own: AbortSignal = signal): Promise<void> =>
    slots.use(async () => {
      running.push(name);
      await new Promise<void>((resolve) => letGo.set(name, resolve));
      running.splice(running.indexOf(name), 1);
    }, own);
  const end = (name: string): Promise<void> => {
    letGo.get(name)?.();
    return clock.settle();
  };
  return { running, start, end };
}

test("so many run at once, the others in turn", async () => {
  const clock = new VirtualClock();
  const { running, start, end } = tasks(clock, new Slots({ clock }, { count: 2, patience: millis(1000) }));
  const all = ["a", "b", "c", "d"].map((name) => start(name));
  await clock.settle();
  assert.deepEqual(running, ["a", "b"]);
  await end("b");
  assert.deepEqual(running, ["a", "c"]);
  await end("a");
  await end("c");
  await end("d");
  await Promise.all(all);
  assert.equal(clock.sleeping, 0);
});

test("one that takes too long goes on, but makes way", async () => {
  const clock = new VirtualClock();
  const { running, start, end } = tasks(clock, new Slots({ clock }, { count: 1, patience: millis(1000) }));
  const all = [start("slow"), start("next"), start("last")];
  await clock.advance(millis(1000));
  assert.deepEqual(running, ["slow", "next"]);
  await end("slow");
  assert.deepEqual(running, ["next"], "its place is not given twice");
  await end("next");
  await end("last");
  await Promise.all(all);
});

test("one that gives up while it waits never runs, and takes nobody's turn", async () => {
  const clock = new VirtualClock();
  const { running, start, end } = tasks(clock, new Slots({ clock }, { count: 1, patience: millis(1000) }));
  const patience = new AbortController();
  const first = start("first");
  const second = start("second", patience.signal);
  const third = start("third");
  patience.abort();
  await assert.rejects(second, (error) => isPicoletError(error, "cancelled"));
  await end("first");
  assert.deepEqual(running, ["third"]);
  await end("third");
  await Promise.all([first, third]);
});

test("one that fails gives its place back", async () => {
  const clock = new VirtualClock();
  const slots = new Slots({ clock }, { count: 1, patience: millis(1000) });
  const failing = slots.use(async () => {
    throw new TypeError("a mistake");
  }, signal);
  await assert.rejects(failing, TypeError);
  assert.equal(await slots.use(async () => "next", signal), "next");
});
