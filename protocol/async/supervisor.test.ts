import assert from "node:assert/strict";
import { test } from "node:test";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { aborted, cancelled } from "./abort.ts";
import type { Component } from "./component.ts";
import { supervise } from "./supervisor.ts";

const ports = () => ({ clock: new VirtualClock(), log: new RecordedLog() });

test("a component may end with a cancellation, and need not dispose of anything", async () => {
  const stop = new AbortController();
  const ended: string[] = [];
  const rejecting: Component = {
    name: "rejecting",
    run: async (signal) => {
      await aborted(signal);
      throw cancelled("the loop");
    },
  };
  const resolving: Component = {
    name: "resolving",
    run: aborted,
    [Symbol.asyncDispose]: async () => {
      ended.push("resolving");
    },
  };
  const running = supervise([resolving, rejecting], ports(), stop.signal);
  stop.abort();
  await running;
  assert.deepEqual(ended, ["resolving"]);
});

test("a component that ends too early ends all of them, also with a cancellation", async () => {
  for (const end of [async () => undefined, () => Promise.reject(cancelled("the loop"))]) {
    const components: Component[] = [
      { name: "lasting", run: aborted },
      { name: "ending", run: end },
    ];
    const running = supervise(components, ports(), new AbortController().signal);
    await assert.rejects(running, /the ending ended by itself/);
  }
});
