/**
 * `npm run soak -- --minutes N`: the real agent while pods come, go, crash and are probed, its anonymous memory over time as
 * an SVG, and the slope of it with its standard error. Leaves with 1 when it grows.
 *
 * --minutes N  how long (10)
 * --out PATH   where the plot goes (.picolet/soak.svg)
 * --seed N     of what happens
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { parseArgs } from "node:util";
import { plotSamples } from "../test/soak/plot.ts";
import { judge, soak } from "../test/soak/soak.ts";
import { buildPrograms } from "./build.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    out: { type: "string", default: ".picolet/soak.svg" },
    seed: { type: "string", default: "1" },
  },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) {
  console.error(`--minutes must be a number above 0, not ${values.minutes}`);
  process.exit(64);
}
await buildPrograms();
let toldAt = 0;
const samples = await soak({
  seed: Number(values.seed),
  isOver: (all) => {
    const last = all.at(-1);
    if (last === undefined) return false;
    if (last.minutes - toldAt >= 1) {
      toldAt = last.minutes;
      console.error(`${last.minutes.toFixed(0)} min: ${last.pods} pods, ${last.anonMiB.toFixed(1)} MiB`);
    }
    return last.minutes >= minutes;
  },
});
const { perHour, grows } = judge(samples);
const slope =
  perHour === undefined
    ? "too short to tell a slope"
    : `${perHour.slope.toFixed(2)} ± ${perHour.slopeError.toFixed(2)} MiB an hour`;
const out = resolve(values.out);
mkdirSync(dirname(out), { recursive: true });
writeFileSync(out, plotSamples(samples, perHour, `picolet: ${slope}`));
const last = samples.at(-1);
console.log(
  JSON.stringify({
    minutes: last?.minutes,
    pods: last?.pods,
    anonMiB: last?.anonMiB,
    slopeMiBPerHour: perHour?.slope,
    slopeError: perHour?.slopeError,
    grows,
    plot: out,
  }),
);
console.error(grows ? `the agent's memory grows: ${slope}` : slope);
process.exitCode = grows ? 1 : 0;
