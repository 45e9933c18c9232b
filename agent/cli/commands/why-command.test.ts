import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { WhyQuestion } from "@picolet/agent/core/node/why-answers.ts";
import type { WhyAnswer, WhyDecision } from "@picolet/protocol/local-api/why.ts";
import { EdgectlBench } from "@picolet/test/support/unit/agent/edgectl-bench.ts";

const decision = (second: number, sentence: string): WhyDecision => ({
  ...{ at: `2026-11-20T11:59:${String(second).padStart(2, "0")}.000Z`, uptimeMs: second * 1000, boot: 1, count: 1 },
  ...{ firstAt: null, sentence, decision: { kind: "revived" } },
});

/** Answers with `decisions`, and keeps what is asked. */
async function benchOf(t: TestContext, decisions: readonly WhyDecision[], isWell = false) {
  const asked: WhyQuestion[] = [];
  const ask = (question: WhyQuestion): Promise<WhyAnswer> => {
    asked.push(question);
    const pod = question.pod && { namespace: question.pod.namespace ?? "default", name: question.pod.name, uid: "u" };
    const now = "CrashLoopBackOff: back-off";
    return Promise.resolve({
      ...{ node: "edge-1", pod: pod ?? null, topic: question.topic ?? null, now, isWell, decisions, omitted: 0 },
      answeredAt: "2026-11-20T12:00:00.000Z",
    });
  };
  return { bench: await EdgectlBench.start(t, { why: { ask } }), asked };
}

test("the words that a user may say name a pod or the node, and a topic", async (t) => {
  const { bench, asked } = await benchOf(t, []);
  const web = { namespace: undefined, name: "web" };
  const rows: readonly (readonly [words: string, question: WhyQuestion])[] = [
    ["web", { pod: web, topic: undefined }],
    ["plant/web", { pod: { namespace: "plant", name: "web" }, topic: undefined }],
    ["restarted web", { pod: web, topic: "restarted" }],
    ["evicted web -n plant", { pod: { namespace: "plant", name: "web" }, topic: "evicted" }],
    ["not started web", { pod: web, topic: "started" }],
    ["web not started", { pod: web, topic: "started" }],
    ["pod/restarted", { pod: { namespace: undefined, name: "restarted" }, topic: undefined }],
    ["node", { pod: undefined, topic: undefined }],
    ["node not ready", { pod: undefined, topic: "notReady" }],
  ];
  for (const [words, question] of rows) {
    await bench.run(["why", ...words.split(" ")]);
    assert.deepEqual(asked.pop(), question, words);
  }
  const { code, error } = await bench.run(["why", "web", "pump"]);
  assert.equal(code, 64);
  assert.match(error, /cannot tell why "web pump": name one pod, or node/);
});

test("a page is shown, and the exit code is that of the pod", async (t) => {
  const many = Array.from({ length: 20 }, (_, index) => decision(index, "Something happened to the pod."));
  const { bench } = await benchOf(t, many);
  const { code, out } = await bench.run(["why", "web"]);
  assert.equal(code, 1);
  assert.equal(out.split("\n")[0], "default/web on edge-1: CrashLoopBackOff: back-off");
  assert.equal(out.match(/Something happened/g)?.length, 12);
  assert.match(out, /\n11:59:00 {2}Something happened to the pod\.\n/);
  assert.match(out, /\n8 earlier; --limit N shows more\.\n$/);
  assert.equal((await bench.run(["why", "web", "--limit", "20"])).out.match(/Something happened/g)?.length, 20);
  const { decisions } = JSON.parse((await bench.run(["why", "web", "-o", "json"])).out) as WhyAnswer;
  assert.equal(decisions.length, 20);
});

test("what is not known is said", async (t) => {
  const { bench } = await benchOf(t, [], true);
  const { code, out } = await bench.run(["why", "evicted", "web"]);
  assert.equal(code, 0);
  assert.match(out.replaceAll(/\s+/g, " "), /The black box has no such decision about it/);
});

test("no text of a record is a command to the terminal", async (t) => {
  const { bench } = await benchOf(t, [decision(1, "Container \u001b[2Japp\u0007 was started.")]);
  assert.doesNotMatch((await bench.run(["why", "web"])).out.replaceAll("\n", ""), /\p{Cc}/u);
});
