import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { Action } from "@picolet/runtime-contract/runtime-adapter.ts";
import { filePod, IMAGE } from "@picolet/test/support/unit/agent/small-agent.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { FakeAdapter } from "./fake-adapter.ts";
import { FakeRuntime } from "./fake-runtime.ts";

const pod = filePod("web");
const { signal } = new AbortController();
const createSandbox: Action = {
  kind: "createSandbox",
  sandbox: { attempt: 0, logDirectory: "/logs", cgroupParent: "", hostname: "web", dns: undefined },
};
const error = new PicoletError("failed", "cannot do it");

function world() {
  const clock = new VirtualClock();
  const runtime = new FakeRuntime({ clock });
  runtime.addImage(IMAGE);
  return { clock, runtime, adapter: new FakeAdapter(runtime) };
}

test("a refused call does nothing, one whose answer is lost does all of it", async () => {
  const { runtime, adapter } = world();
  runtime.faults.fault = () => ({ kind: "refuse", error });
  await assert.rejects(adapter.apply(pod, createSandbox, signal), error);
  assert.equal(runtime.inspect(pod.uid).sandboxes.length, 0);
  runtime.faults.fault = () => ({ kind: "loseAnswer", error });
  await assert.rejects(adapter.apply(pod, createSandbox, signal), error);
  assert.equal(runtime.inspect(pod.uid).sandboxes.length, 1);
});

test("a call that hangs ends with its signal, or never", async () => {
  const { clock, runtime, adapter } = world();
  const caller = new AbortController();
  runtime.faults.fault = ({ kind }) => ({ kind: "hang", heedsSignal: kind === "inspect" });
  let listed = false;
  adapter.list(caller.signal).finally(() => {
    listed = true;
  });
  const inspected = adapter.inspect(pod.uid, caller.signal);
  caller.abort();
  await assert.rejects(inspected, (thrown) => isPicoletError(thrown, "cancelled"));
  await clock.advance(millis(3_600_000));
  assert.equal(listed, false);
});

test("latency passes before and after the effect", async () => {
  const { clock, runtime, adapter } = world();
  runtime.faults.latency = () => millis(100);
  const created = adapter.apply(pod, createSandbox, signal);
  await clock.advance(millis(99));
  assert.equal(runtime.inspect(pod.uid).sandboxes.length, 0);
  await clock.advance(millis(1));
  assert.equal(runtime.inspect(pod.uid).sandboxes.length, 1);
  await clock.advance(millis(100));
  await created;
});

test("hints are late, doubled or lost as the faults say", async () => {
  const { clock, runtime, adapter } = world();
  const heard: number[] = [];
  const listener = new AbortController();
  const done = (async () => {
    for await (const _ of adapter.hints(listener.signal)) heard.push(clock.monotonic());
  })();
  runtime.faults.hintDelays = () => [millis(10), millis(500)];
  await adapter.apply(pod, createSandbox, signal);
  await clock.advance(millis(1000));
  runtime.faults.hintDelays = () => [];
  runtime.stopSandbox(runtime.inspect(pod.uid).sandboxes[0]?.id ?? "");
  await clock.advance(millis(1000));
  assert.deepEqual(heard, [10, 500]);
  listener.abort();
  await done;
});

test("a runtime that has gone away refuses everything and ends its hints, and its containers run on", async () => {
  const { runtime, adapter } = world();
  await adapter.apply(pod, createSandbox, signal);
  const hints = adapter.hints(signal)[Symbol.asyncIterator]();
  const next = hints.next();
  runtime.goAway();
  await assert.rejects(next, (thrown) => isPicoletError(thrown, "unavailable"));
  await assert.rejects(adapter.list(signal), (thrown) => isPicoletError(thrown, "unavailable"));
  runtime.comeBack();
  assert.equal((await adapter.inspect(pod.uid, signal)).sandboxes[0]?.state, "ready");
});

test("an exit shows later than its hint when the faults say so", async () => {
  const { clock, runtime, adapter } = world();
  await adapter.apply(pod, createSandbox, signal);
  const id = runtime.createContainer(pod, {
    ...{ name: "app", attempt: 0, hash: "h", backoff: millis(0), logPath: "app/0.log", workingDir: "" },
    ...{ command: ["run"], args: [], env: [], mounts: [], image: { requested: IMAGE, id: `sha256:${IMAGE}` } },
  });
  assert.ok(id);
  runtime.startContainer(id);
  runtime.faults.exitLag = () => millis(20);
  runtime.kill(id, "SIGKILL");
  const state = () => runtime.inspect(pod.uid).containers[0]?.state.kind;
  assert.equal(state(), "running");
  await clock.advance(millis(20));
  assert.equal(state(), "exited");
});
