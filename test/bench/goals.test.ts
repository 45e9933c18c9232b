import assert from "node:assert/strict";
import { test } from "node:test";
import { describeMissed, GOALS, type Goal, isMissed, judge } from "./goals.ts";

const goals: readonly Goal[] = [
  { figure: "agent.pods0.anonMiB", atMost: 16, kind: "stable" },
  { figure: "agent.pods0.cpuPercent", atMost: 0.2, kind: "time", isJudgedWhenQuick: false },
  { figure: "disk.bytesPerHourIdle", atMost: 0, kind: "stable" },
];
const document = (anonMiB: unknown, cpuPercent = 0.1) => ({
  agent: { pods0: { anonMiB, cpuPercent } },
  disk: { bytesPerHourIdle: 5 },
});

test("a goal is met up to its limit, and missed by what is above it", () => {
  const missed = (anonMiB: number, cpuPercent?: number): string[] =>
    describeMissed(judge(document(anonMiB, cpuPercent), goals, { parts: ["agent"] }));
  assert.deepEqual(missed(16), []);
  assert.deepEqual(missed(17.2), ["agent.pods0.anonMiB is 17.2, 1.2 (8 %) above its goal of 16"]);
  assert.deepEqual(missed(1, 0.3), [
    "agent.pods0.cpuPercent is 0.3, 0.1 (50 %) above its goal of 0.2, which goes by the machine",
  ]);
});

test("a goal of nothing at all is missed by anything", () => {
  const verdicts = judge(document(1), goals, { parts: ["disk"] });
  assert.deepEqual(describeMissed(verdicts), ["disk.bytesPerHourIdle is 5, 5 above its goal of 0"]);
});

test("parts that were not measured are not judged, and what needs long windows not in short ones", () => {
  const judged = (options: Parameters<typeof judge>[2]): string[] =>
    judge(document(1), goals, options).map(({ figure }) => figure);
  assert.deepEqual(judged({ parts: [] }), []);
  assert.deepEqual(judged({ parts: ["agent"] }), ["agent.pods0.anonMiB", "agent.pods0.cpuPercent"]);
  assert.deepEqual(judged({ parts: ["agent"], quick: true }), ["agent.pods0.anonMiB"]);
});

test("a figure that is missing where its part was measured is a missed goal", () => {
  for (const anonMiB of [undefined, null, Number.NaN, "16"]) {
    const [verdict] = judge(document(anonMiB), goals, { parts: ["agent"] });
    assert.ok(verdict !== undefined && isMissed(verdict), String(anonMiB));
    assert.deepEqual(describeMissed([verdict]), ["agent.pods0.anonMiB was not measured, and is to be at most 16"]);
  }
});

test("each figure has one goal", () => {
  const figures = GOALS.map(({ figure }) => figure);
  assert.deepEqual([...new Set(figures)], figures);
});
