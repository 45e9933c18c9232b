import assert from "node:assert/strict";
import { test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import { HintQueue } from "./hint-queue.ts";

test("each pod waits once, and the reader ends with the signal", async () => {
  const queue = new HintQueue();
  const abort = new AbortController();
  const [one, two] = [podUid("one"), podUid("two")];
  for (const uid of [one, two, one, one]) queue.add(uid);
  const reader = queue.take(abort.signal);
  assert.equal((await reader.next()).value, one);
  assert.equal((await reader.next()).value, two);
  const next = reader.next();
  queue.add(one);
  assert.equal((await next).value, one);
  const last = reader.next();
  abort.abort();
  assert.equal((await last).done, true);
});

test("a reader whose signal has fired already gets nothing", async () => {
  const queue = new HintQueue();
  queue.add(podUid("one"));
  assert.equal((await queue.take(AbortSignal.abort()).next()).done, true);
});
