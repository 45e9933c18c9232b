/**
 * `npm run attack [-- FILTER …]`: attacks real hubs as a stolen board, a stolen join token or a tenant's service
 * account would (test/attack/README.md). Prints each attack, for those that try to freeze the hub the longest wait of
 * another client, and `N passed, N failed`; leaves with 1 when one has succeeded. A FILTER is part of a file's name or
 * of a case's.
 */

import { allCases } from "@picolet/test/attack/all-cases.ts";
import { runAttacks } from "@picolet/test/attack/attack-case.ts";
import { buildPrograms } from "../build/build.ts";
import { readOptions } from "../options.ts";

const filters = readOptions({
  name: "attack",
  summary: "attacks real hubs; leaves with 1 when one attack succeeds",
  operands: "[FILTER...]",
  atMost: 100,
  flags: [],
  notes: ["A FILTER is part of a file's name or of a case's."],
}).positionals;
const isWanted = (...texts: readonly string[]): boolean =>
  filters.length === 0 || filters.some((filter) => texts.some((text) => text.includes(filter)));

await buildPrograms();
const counts = { passed: 0, failed: 0 };
for (const { name: file, cases, hubFlags = [] } of await allCases()) {
  const wanted = cases.filter(({ name }) => isWanted(file, name));
  if (wanted.length === 0) continue;
  console.log(`${file}:`);
  await runAttacks(
    { cases: wanted, hubFlags },
    {
      judgesTime: true,
      onOutcome: ({ name, problem, waitMs }) => {
        const wait = waitMs === undefined ? "" : ` (longest wait of another client ${Math.round(waitMs)} ms)`;
        console.log(`  ${problem === "" ? "failed as it should" : "SUCCEEDED"}: ${name}${wait}`);
        if (problem !== "") console.log(problem.replaceAll(/^/gm, "    "));
        counts[problem === "" ? "passed" : "failed"] += 1;
      },
    },
  );
}
if (counts.passed + counts.failed === 0) {
  console.error(`no attack matches ${filters.join(" ")}`);
  process.exit(64);
}
console.log(`${counts.passed} passed, ${counts.failed} failed`);
process.exit(counts.failed > 0 ? 1 : 0);
