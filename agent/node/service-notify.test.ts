import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { millis } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { ServiceNotify, type ServiceNotifyInit, serviceNotifyInit } from "./service-notify.ts";

function running(init: ServiceNotifyInit) {
  const clock = new VirtualClock();
  const log = new RecordedLog();
  const messages: string[] = [];
  const state = { problem: undefined as string | undefined, fails: false };
  const readiness = Promise.withResolvers<void>();
  const abort = new AbortController();
  const notify = async (message: string): Promise<void> => {
    messages.push(message);
    if (state.fails) throw new Error("no such socket");
  };
  const component = new ServiceNotify(
    { clock, log, notify, ready: () => readiness.promise, problem: () => state.problem },
    init,
  );
  const ended = endOfRun(component.run(abort.signal));
  return { clock, log, messages, state, readiness, abort, ended };
}

test("an agent that can be asked is ready, and alive three times in the time that its unit allows", async () => {
  const { clock, messages, readiness, abort, ended } = running({ watchdog: millis(180_000) });
  await nextTurn();
  assert.deepEqual(messages, []);
  readiness.resolve();
  while (clock.sleeping === 0) await nextTurn();
  assert.deepEqual(messages, ["READY=1", "WATCHDOG=1"]);
  await clock.advance(millis(180_000));
  assert.deepEqual(messages.slice(2), ["WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
  abort.abort();
  await ended;
  assert.equal(clock.sleeping, 0);
});

test("an agent with pods that no worker has gives no sign of life", async () => {
  const { clock, messages, readiness, state, log, abort, ended } = running({ watchdog: millis(3_000) });
  readiness.resolve();
  state.problem = "2 wanted pods have no worker";
  while (clock.sleeping === 0) await nextTurn();
  assert.deepEqual(messages, ["READY=1"]);
  assert.match(JSON.stringify(log.entries), /2 wanted pods have no worker/);
  state.problem = undefined;
  await clock.advance(millis(1_000));
  assert.deepEqual(messages, ["READY=1", "WATCHDOG=1"]);
  abort.abort();
  await ended;
});

test("a service manager that cannot be reached is logged once, and asked on", async () => {
  const { clock, messages, readiness, state, log, abort, ended } = running({ watchdog: millis(3_000) });
  state.fails = true;
  readiness.resolve();
  while (clock.sleeping === 0) await nextTurn();
  await clock.advance(millis(2_000));
  assert.equal(messages.length, 4);
  assert.equal(log.entries.length, 1);
  abort.abort();
  await ended;
});

test("without a watchdog the agent is ready, and nothing more", async () => {
  const { clock, messages, readiness, abort, ended } = running({ watchdog: undefined });
  readiness.resolve();
  await nextTurn();
  assert.deepEqual(messages, ["READY=1"]);
  assert.equal(clock.sleeping, 0);
  abort.abort();
  await ended;
});

test("the environment decides who waits for notifications", () => {
  const socket = { NOTIFY_SOCKET: "/run/systemd/notify" };
  for (const [environment, expected] of [
    [{}, undefined],
    [{ NOTIFY_SOCKET: "" }, undefined],
    [socket, { watchdog: undefined }],
    [{ ...socket, WATCHDOG_USEC: "180000000" }, { watchdog: 180_000 }],
    [{ ...socket, WATCHDOG_USEC: "180000000", WATCHDOG_PID: "42" }, { watchdog: 180_000 }],
    [{ ...socket, WATCHDOG_USEC: "180000000", WATCHDOG_PID: "43" }, { watchdog: undefined }],
    [{ ...socket, WATCHDOG_USEC: "often" }, { watchdog: undefined }],
    [{ ...socket, WATCHDOG_USEC: "0" }, { watchdog: undefined }],
  ] as const)
    assert.deepEqual(serviceNotifyInit(environment, 42), expected, JSON.stringify(environment));
});
