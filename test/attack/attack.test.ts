/** The short attacks, each against a real hub. `npm run attack` has all of them, and measures how long others wait. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { allCases } from "./all-cases.ts";
import { runAttacks } from "./attack-case.ts";

for (const { name, cases, hubFlags = [] } of await allCases()) {
  const short = cases.filter(({ inTest }) => inTest);
  if (short.length === 0) continue;
  describe(`attacks: ${name}`, () => {
    it("fail, all of them", async (t) => {
      const problems: string[] = [];
      const onOutcome = ({ name: tried, problem }: { name: string; problem: string }): void => {
        t.diagnostic(tried);
        if (problem !== "") problems.push(`${tried}: ${problem}`);
      };
      await runAttacks({ cases: short, hubFlags }, { judgesTime: false, onOutcome });
      assert.deepEqual(problems, []);
    });
  });
}
