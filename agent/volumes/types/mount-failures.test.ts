import assert from "node:assert/strict";
import { test } from "node:test";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MountFailures } from "./mount-failures.ts";

const uid = podUid("uid-1");
const failure = (message: string): PicoletError => new PicoletError("unavailable", message, { retryable: true });
const NONE = new Map<string, PicoletError>();

/** The message of each event. */
function told(error: PicoletError | undefined): readonly string[] {
  if (error === undefined) return [];
  const { cause } = error;
  if (!(cause instanceof AggregateError)) return [describeError(error)];
  const messages = cause.errors.map(describeError);
  assert.equal(describeError(error), messages.join("; "), "all of them are in one line too");
  return messages;
}

test("each volume that fails is told of by itself", () => {
  const failures = new MountFailures({ clock: new VirtualClock() });
  const several = new Map([
    ["b", failure("b failed")],
    ["a", failure("a failed")],
  ]);
  assert.deepEqual(told(failures.report(uid, several, NONE)), ["b failed", "a failed"]);
  assert.deepEqual(told(failures.report(uid, new Map([["a", failure("a failed")]]), NONE)), ["a failed"]);
  assert.deepEqual(told(failures.report(uid, several, new Map([["c", failure("who knows")]]))), [
    "b failed",
    "a failed",
    "Unable to attach or mount volumes: unmounted volumes=[a b c], unattached volumes=[], failed to process volumes=[c]: who knows",
  ]);
  assert.deepEqual(told(failures.report(uid, NONE, NONE)), []);
});

test("what is missing is summed up every two minutes and three seconds", async () => {
  const clock = new VirtualClock();
  const failures = new MountFailures({ clock });
  const two = new Map([
    ["b", failure("b failed")],
    ["a", failure("a failed")],
  ]);
  const summaries = (): number =>
    told(failures.report(uid, two, NONE)).filter(
      (line) =>
        line ===
        "Unable to attach or mount volumes: unmounted volumes=[a b], unattached volumes=[], failed to process volumes=[]: context deadline exceeded",
    ).length;
  assert.equal(summaries(), 0);
  await clock.advance(millis(122_000));
  assert.equal(summaries(), 0);
  await clock.advance(millis(1000));
  assert.equal(summaries(), 1);
  await clock.advance(millis(122_000));
  assert.equal(summaries(), 0);
  await clock.advance(millis(1000));
  assert.equal(summaries(), 1);
  failures.report(uid, NONE, NONE);
  await clock.advance(millis(600_000));
  assert.equal(summaries(), 0, "what worked meanwhile has its time again");
});
