import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { isCancelled } from "../errors.ts";
import { type CancelSignal, type Millis, millis } from "../ports.ts";
import { Alarm } from "./alarm.ts";

function waiting(alarm: Alarm, signal = new AbortController().signal): { rang: boolean; error: unknown } {
  const seen = { rang: false, error: undefined as unknown };
  alarm.ring(signal).then(
    () => {
      seen.rang = true;
    },
    (error) => {
      seen.error = error;
    },
  );
  return seen;
}

test("an alarm rings when its time has come, once", async () => {
  const clock = new VirtualClock();
  const alarm = new Alarm(clock);
  alarm.set(millis(100));
  const first = waiting(alarm);
  await clock.advance(millis(99));
  assert.equal(first.rang, false);
  await clock.advance(millis(1));
  assert.equal(first.rang, true);
  assert.equal(alarm.isSet, false);
  const second = waiting(alarm);
  await clock.advance(millis(1000));
  assert.equal(second.rang, false);
  assert.equal(clock.sleeping, 0, "no timer while it is not set");
});

test("it is brought forward during a wait, never put off", async () => {
  const clock = new VirtualClock();
  const alarm = new Alarm(clock);
  const seen = waiting(alarm);
  await clock.settle();
  alarm.set(millis(1000));
  await clock.settle();
  alarm.set(millis(10));
  alarm.set(millis(500));
  await clock.advance(millis(10));
  assert.equal(seen.rang, true);
  assert.equal(clock.sleeping, 0);
});

test("waiting ends with `cancelled` when the signal aborts, with and without a time set", async () => {
  const clock = new VirtualClock();
  for (const isSet of [true, false]) {
    const alarm = new Alarm(clock);
    if (isSet) alarm.set(millis(10));
    const stop = new AbortController();
    const seen = waiting(alarm, stop.signal);
    await clock.settle();
    stop.abort(new Error("any reason"));
    await clock.settle();
    assert.ok(isCancelled(seen.error));
    assert.equal(clock.sleeping, 0);
    const late = waiting(alarm, stop.signal);
    await clock.settle();
    assert.ok(isCancelled(late.error));
  }
});

/** Its first sleep ends a millisecond early, as a timer may; `onAwake` is called then, before the sleeper continues. */
class EarlyClock extends VirtualClock {
  onAwake: (() => void) | undefined;

  override sleep(duration: Millis, signal: CancelSignal): Promise<void> {
    const { onAwake } = this;
    this.onAwake = undefined;
    const slept = super.sleep(onAwake === undefined ? duration : millis(duration - 1), signal);
    slept.then(onAwake, () => undefined);
    return slept;
  }
}

test("a sleep that ends at the moment at which the alarm is brought forward takes no later ring away", async () => {
  const clock = new EarlyClock();
  const alarm = new Alarm(clock);
  alarm.set(millis(100));
  clock.onAwake = () => {
    alarm.set(millis(0));
    alarm.set(millis(50));
  };
  const first = waiting(alarm);
  await clock.advance(millis(99));
  assert.equal(first.rang, true);
  const second = waiting(alarm);
  await clock.advance(millis(50));
  assert.equal(second.rang, true);
  assert.equal(clock.sleeping, 0);
});
