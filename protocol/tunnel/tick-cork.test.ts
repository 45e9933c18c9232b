import assert from "node:assert/strict";
import { test } from "node:test";
import { TickCork } from "./tick-cork.ts";

test("writes of one task are released together, and the next is held again", async () => {
  const calls: string[] = [];
  const cork = new TickCork({ cork: () => void calls.push("cork"), uncork: () => void calls.push("uncork") });
  for (const word of ["status", "event"]) {
    cork.hold();
    calls.push(word);
  }
  await Promise.resolve();
  cork.hold();
  calls.push("pong");
  await Promise.resolve();
  assert.deepEqual(calls, ["cork", "status", "event", "uncork", "cork", "pong", "uncork"]);
});
