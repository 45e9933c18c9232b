/**
 * `npm run bench:fleet`: a real hub process with the embedded API server, and thousands of agents' tunnel ends in this
 * process, over TLS on loopback. One JSON document of figures on standard output, progress on standard error.
 */
import { availableParallelism } from "node:os";
import { countFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { fleetFigures } from "@picolet/test/bench/hub/fleet-figures.ts";
import { buildPrograms } from "../build/build.ts";
import { readOptions } from "../options.ts";

/** KiB of resident memory of the hub for an agent at rest, with 5,000 of them. */
const GOAL_KIB = 80;

const AGENTS = countFlag({ name: "agents", help: "how many; 5000, or 500 with --quick", least: 1 });

const input = readOptions({
  name: "bench:fleet",
  summary: "a hub with thousands of agents",
  flags: [
    AGENTS,
    { name: "quick", help: "shorter windows as well: for a look, not for a record" },
    { name: "no-judge", help: "figures alone: no exit code for a goal that is missed" },
  ],
});
const [quick, judge] = [input.flag("quick"), !input.flag("no-judge")];
const agents = input.value(AGENTS) ?? (quick ? 500 : 5000);
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
