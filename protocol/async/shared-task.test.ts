import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { isCancelled } from "../errors.ts";
import { millis } from "../ports.ts";
import { SharedSample, SharedTask } from "./shared-task.ts";

const NEVER = new AbortController().signal;

class Looks {
  readonly clock = new VirtualClock();
  readonly signals: AbortSignal[] = [];
  readonly answers: PromiseWithResolvers<number>[] = [];
  readonly look = new SharedSample(this, "the look", (signal) => {
    this.signals.push(signal);
    const answer = Promise.withResolvers<number>();
    this.answers.push(answer);
    return answer.promise;
  });
}

test("a caller during a sample shares it; later callers get it until it is older than maxAge", async () => {
  const looks = new Looks();
  const asked = [looks.look.get(millis(0), NEVER), looks.look.get(millis(1000), NEVER)];
  await looks.clock.advance(millis(100));
  looks.answers[0]?.resolve(1);
  assert.deepEqual(await Promise.all(asked), [1, 1]);
  assert.equal(await looks.look.get(millis(100), NEVER), 1);
  assert.equal(looks.answers.length, 1);
  const anew = looks.look.get(millis(99), NEVER);
  looks.answers[1]?.resolve(2);
  assert.equal(await anew, 2);
  const again = looks.look.get(millis(0), NEVER);
  looks.answers[2]?.resolve(3);
  assert.equal(await again, 3);
});

test("a caller that leaves does not end the others' sample; the last one does, and the next sample is a new one", async () => {
  const looks = new Looks();
  const [one, other] = [new AbortController(), new AbortController()];
  const [first, second] = [looks.look.get(millis(0), one.signal), looks.look.get(millis(0), other.signal)];
  one.abort();
  await assert.rejects(first, isCancelled);
  assert.equal(looks.signals[0]?.aborted, false);
  other.abort();
  await assert.rejects(second, isCancelled);
  assert.equal(looks.signals[0]?.aborted, true);
  const next = looks.look.get(millis(0), NEVER);
  looks.answers[0]?.reject(new Error("too late"));
  looks.answers[1]?.resolve(5);
  assert.equal(await next, 5);
});

test("a sample that fails is reported to all waiting callers, and not cached", async () => {
  const looks = new Looks();
  const asked = [looks.look.get(millis(0), NEVER), looks.look.get(millis(0), NEVER)];
  looks.answers[0]?.reject(new Error("no"));
  for (const each of asked) await assert.rejects(each, { message: "no" });
  const next = looks.look.get(millis(1_000_000), NEVER);
  looks.answers[1]?.resolve(7);
  assert.equal(await next, 7);
});

test("nothing begins for a caller that has left already", async () => {
  const task = new SharedTask<void>("the task");
  await assert.rejects(
    task.join(() => assert.fail(), AbortSignal.abort()),
    isCancelled,
  );
});
