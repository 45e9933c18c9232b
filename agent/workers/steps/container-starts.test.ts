import assert from "node:assert/strict";
import { test } from "node:test";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { runWithGrace } from "./container-starts.ts";

function bench() {
  const clock = new VirtualClock();
  const [signal, life] = [new AbortController(), new AbortController()];
  const end = Promise.withResolvers<string>();
  let cut = false;
  const task = (cutOff: AbortSignal): Promise<string> => {
    cutOff.addEventListener("abort", () => {
      cut = true;
      end.reject(new Error("cut off"));
    });
    return end.promise;
  };
  const result = (): Promise<string> =>
    runWithGrace(clock, millis(100), task, { signal: signal.signal, life: life.signal });
  return { clock, signal, life, end, result, isCut: () => cut };
}

test("what is not wanted any more may still end well in its time", async () => {
  const { clock, signal, end, result } = bench();
  const ended = result();
  signal.abort();
  await clock.advance(millis(99));
  end.resolve("done");
  assert.equal(await ended, "done");
});

test("what takes longer is cut off", async () => {
  const { clock, signal, result, isCut } = bench();
  const ended = assert.rejects(result(), /cut off/);
  signal.abort();
  await clock.advance(millis(99));
  assert.equal(isCut(), false);
  await clock.advance(millis(1));
  await ended;
});

test("the worker's end cuts it off at once; what nobody wants is not begun", async () => {
  const first = bench();
  const ended = assert.rejects(first.result(), /cut off/);
  first.life.abort();
  await ended;
  const second = bench();
  second.signal.abort();
  await assert.rejects(second.result(), (error) => isCancelled(error));
  assert.equal(second.isCut(), false);
});
