import assert from "node:assert/strict";
import { test } from "node:test";
import { applyDelta } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import { SentStatuses } from "./sent-statuses.ts";

const big = (text: string) => ({ phase: "Running", message: text.repeat(10_000) });

test("a status goes whole first, then as a delta against the one before", () => {
  const sent = new SentStatuses();
  const first = { ...big("a"), restarts: 0 };
  const second = { ...first, restarts: 1 };
  assert.equal(sent.bodyOf("u", first, 1).body.kind, "full");
  const { body, size } = sent.bodyOf("u", second, 2);
  assert.ok(body.kind === "delta" && size < 100);
  assert.deepEqual(applyDelta(first, body.delta), second);
});

test("a delta that saves little is not made", () => {
  const sent = new SentStatuses();
  sent.bodyOf("u", big("a"), 1);
  assert.equal(sent.bodyOf("u", big("b"), 2).body.kind, "full");
});

test("what was not acknowledged when the session ended goes whole again", () => {
  const sent = new SentStatuses();
  for (const [batch, uid] of ["a", "b"].entries()) sent.bodyOf(uid, { ...big(uid), n: 0 }, batch + 1);
  sent.endSession(1);
  assert.equal(sent.bodyOf("a", { ...big("a"), n: 1 }, 1).body.kind, "delta");
  assert.equal(sent.bodyOf("b", { ...big("b"), n: 1 }, 1).body.kind, "full");
});

test("what is remembered has a limit; the ones quiet longest are forgotten", () => {
  const sent = new SentStatuses();
  for (let pod = 0; pod < 100; pod += 1) {
    sent.bodyOf(`pod-${pod}`, { ...big("a"), n: 0 }, 1);
    sent.bodyOf("busy", { ...big("a"), n: pod }, 1);
  }
  assert.equal(sent.bodyOf("pod-0", { ...big("a"), n: 1 }, 2).body.kind, "full");
  assert.equal(sent.bodyOf("pod-99", { ...big("a"), n: 1 }, 2).body.kind, "delta");
  assert.equal(sent.bodyOf("busy", { ...big("a"), n: 1000 }, 2).body.kind, "delta");
});

test("a small status goes compact to a hub that takes it, a large one as a delta", () => {
  const sent = new SentStatuses();
  const pod = { namespace: "default", name: "web", uid: "u" };
  const form = (status: object): string => sent.bodyOf("u", { ...status }, 1, pod).body.kind;
  const forms = [{ phase: "Running" }, { phase: "Failed" }, { ...big("abcd"), n: 0 }, { ...big("abcd"), n: 1 }].map(
    form,
  );
  assert.deepEqual(forms, ["full", "compact", "full", "delta"]);
});
