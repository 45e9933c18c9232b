/**
 * `npm run bench:fleet`: a real hub process with the embedded API server, and thousands of agents' tunnel ends in this
 * process, over TLS on loopback. One JSON document of figures on standard output, progress on standard error.
 *
 * --agents N  how many; 5,000 unless --quick, which takes 500
 * --quick     shorter windows as well: for a look, not for a record
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { describeError } from "../protocol/errors.ts";
import { fleetFigures } from "../test/bench/fleet.ts";
import { buildPrograms } from "./build.ts";

const { values } = parseArgs({ options: { agents: { type: "string" }, quick: { type: "boolean", default: false } } });
const { quick } = values;
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
console.log(JSON.stringify({ node: process.version, cores: availableParallelism(), hub }, undefined, 2));
process.exit(0);
