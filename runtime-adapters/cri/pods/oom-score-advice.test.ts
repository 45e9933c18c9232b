import assert from "node:assert/strict";
import { test } from "node:test";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { OomScoreAdvice } from "./oom-score-advice.ts";

const FAILURE = new PicoletError("failed", "runc create failed: can't get final child's PID from pipe: EOF: unknown");

test("a score that cannot be had is warned of once", () => {
  const log = new RecordedLog();
  const advice = new OomScoreAdvice({ log }, { score: 100, mayLower: false });
  advice.wanted(1000);
  assert.deepEqual(log.problems, []);
  advice.wanted(99);
  advice.wanted(-997);
  assert.equal(log.problems.length, 1);
});

test("an agent that may lower the score logs nothing", () => {
  const log = new RecordedLog();
  const advice = new OomScoreAdvice({ log }, { score: 0, mayLower: true });
  advice.wanted(-997);
  assert.deepEqual(log.problems, []);
  assert.equal(advice.explain(FAILURE), FAILURE);
});

test("runc's riddle is explained, other failures stay as they are", () => {
  const advice = new OomScoreAdvice({ log: new RecordedLog() }, { score: 0, mayLower: false });
  assert.match(describeError(advice.explain(FAILURE)), /restrict_oom_score_adj = true.*final child's PID/);
  const other = new PicoletError("failed", "no space left on device");
  assert.equal(advice.explain(other), other);
});
