import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { isPicoletError } from "../errors.ts";
import { millis, seconds } from "../ports.ts";
import { withDeadline } from "./deadline.ts";

const forever = (): Promise<never> => new Promise(() => undefined);
const { signal: neverAborted } = new AbortController();

test("a task that answers in time is passed on, and leaves no timer", async () => {
  const clock = new VirtualClock();
  assert.equal(await withDeadline(clock, seconds(1), "ask", async () => 7, neverAborted), 7);
  await clock.settle();
  assert.equal(clock.sleeping, 0);
});

test("a task's own error is passed on", async () => {
  const clock = new VirtualClock();
  const failing = async (): Promise<never> => {
    throw new TypeError("a mistake");
  };
  await assert.rejects(withDeadline(clock, seconds(1), "ask", failing, neverAborted), TypeError);
});

test("a task that does not heed its signal is left behind at the deadline, and the message names it", async () => {
  const clock = new VirtualClock();
  let told = false;
  const task = (signal: AbortSignal): Promise<never> => {
    signal.addEventListener("abort", () => {
      told = true;
    });
    return forever();
  };
  const result = assert.rejects(
    withDeadline(clock, seconds(20), "inspect pod x", task, neverAborted),
    (error) => isPicoletError(error, "deadline_exceeded") && error.message === "cannot inspect pod x within 20 s",
  );
  await clock.advance(millis(20_000));
  await result;
  assert.ok(told, "its signal has fired");
});

test("a caller that gives up is heard at once", async () => {
  const clock = new VirtualClock();
  const caller = new AbortController();
  const result = withDeadline(clock, seconds(20), "ask", forever, caller.signal);
  caller.abort();
  await assert.rejects(result, (error) => isPicoletError(error, "cancelled"));
  assert.equal(clock.monotonic(), 0);
  await clock.settle();
  assert.equal(clock.sleeping, 0);
});

test("a caller that has given up before starts nothing", async () => {
  let started = false;
  const task = async (): Promise<void> => {
    started = true;
  };
  const result = withDeadline(new VirtualClock(), seconds(1), "ask", task, AbortSignal.abort());
  await assert.rejects(result, (error) => isPicoletError(error, "cancelled"));
  assert.equal(started, false);
});

test("a task that throws at once leaves no timer", async () => {
  const clock = new VirtualClock();
  const throwing = (): never => {
    throw new TypeError("a mistake");
  };
  await assert.rejects(withDeadline(clock, seconds(1), "ask", throwing, neverAborted), TypeError);
  await clock.settle();
  assert.equal(clock.sleeping, 0);
});
