/**
 * `npm run bench:fleet`: a real hub process with the embedded API server, and thousands of agents' tunnel ends in this
 * process, over TLS on loopback. One JSON document of figures on standard output, progress on standard error.
 *
 * --agents N  how many; 5,000 unless --quick, which takes 500
 * --quick     shorter windows as well: for a look, not for a record
 * --no-judge  figures alone; otherwise it exits with 1 when the hub takes more than its goal for an agent
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { describeError } from "@picolet/protocol/errors.ts";
import { fleetFigures } from "@picolet/test/bench/hub/fleet-figures.ts";
import { buildPrograms } from "../build/build.ts";

/** KiB of resident memory of the hub for an agent at rest, with 5,000 of them. */
const GOAL_KIB = 80;

const { values } = parseArgs({
  options: {
    agents: { type: "string" },
    quick: { type: "boolean", default: false },
    judge: { type: "boolean", default: true },
  },
  allowNegative: true,
});
const { quick, judge } = values;
const agents = Number(values.agents ?? (quick ? 500 : 5000));
if (!Number.isInteger(agents) || agents < 1) {
  console.error("bench:fleet: --agents takes a whole number of at least 1");
  process.exit(64);
}
await buildPrograms();
const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stop.abort());
const measured = fleetFigures({
  agents,
  pods: quick ? 100 : 1000,
  statusWindowMs: quick ? 5000 : 20_000,
  signal: stop.signal,
  progress: (text) => void process.stderr.write(`${text}\n`),
});
const hub = await measured.catch((error: unknown) => {
  console.error(`bench:fleet: ${describeError(error)}`);
  process.exit(1);
});
const goals = { rssKiBPerAgent: GOAL_KIB };
console.log(JSON.stringify({ node: process.version, cores: availableParallelism(), goals, hub }, undefined, 2));
const isMissed = hub.rssKiBPerAgent > GOAL_KIB;
if (judge && isMissed) console.error(`bench:fleet: ${hub.rssKiBPerAgent} KiB for an agent, the goal is ${GOAL_KIB}`);
process.exit(judge && isMissed ? 1 : 0);
