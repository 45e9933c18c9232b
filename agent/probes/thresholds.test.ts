import assert from "node:assert/strict";
import { test } from "node:test";
import { extendStreak, type Streak } from "./thresholds.ts";

/** `+` a success, `-` a failure; upper-case where it counts. */
const CASES: readonly (readonly [success: number, failure: number, results: string, verdicts: string])[] = [
  [1, 1, "+-+-", "SFSF"],
  [1, 3, "---", "..F"],
  [1, 3, "--+--+---", "..S..S..F"],
  [1, 3, "-----", "..FFF"],
  [3, 1, "++-+++", "..F..S"],
  [2, 2, "+-+-++--", ".....S.F"],
  [2, 3, "++++---+", ".SSS..F."],
];

for (const [successThreshold, failureThreshold, results, verdicts] of CASES) {
  test(`${successThreshold} to pass and ${failureThreshold} to fail: ${results} is ${verdicts}`, () => {
    let streak: Streak | undefined;
    const told = [...results].map((each) => {
      const result = each === "+" ? "success" : "failure";
      const judged = extendStreak(streak, result, { successThreshold, failureThreshold });
      streak = judged.streak;
      return judged.counts ? (result === "success" ? "S" : "F") : ".";
    });
    assert.equal(told.join(""), verdicts);
  });
}
