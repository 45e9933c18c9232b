import assert from "node:assert/strict";
import { test } from "node:test";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { OpeningPace } from "./opening-pace.ts";

const { signal } = new AbortController();

test("a component that opens in a loop waits, and no other one for it", async () => {
  const clock = new VirtualClock();
  const pace = new OpeningPace(clock);
  let opened = 0;
  const loop = async (): Promise<void> => {
    for (; opened < 40; opened += 1) await pace.wait("greedy", signal);
  };
  const looping = loop();
  await clock.advance(millis(0));
  assert.equal(opened, 32);
  await pace.wait("modest", signal);
  assert.equal(clock.monotonic(), 0);
  await clock.advance(seconds(16));
  await looping;
  assert.equal(opened, 40);
  // All that it may have at once is there again.
  await clock.advance(seconds(64));
  opened = 8;
  await loop();
  assert.equal(clock.monotonic(), 80_000);
});

test("containers that come and go take a bounded number of places", async () => {
  const clock = new VirtualClock();
  const pace = new OpeningPace(clock);
  for (let count = 0; count < 33; count += 1) void pace.wait("greedy", signal).catch(() => undefined);
  for (let count = 0; count < 200; count += 1) await pace.wait(`short-${count}`, signal);
  let isOpen = false;
  void pace.wait("greedy", signal).then(() => {
    isOpen = true;
  });
  await clock.advance(seconds(1));
  assert.equal(isOpen, false, "it is still known");
});
