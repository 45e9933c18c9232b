/**
 * `npm run soak -- --minutes N`: the real agent while pods come, go, crash and are probed, its anonymous memory over time as
 * an SVG, and the slope of it with its standard error. Leaves with 1 when it grows.
 *
 * --what http  instead: the runner of a component that serves HTTP, while clients ask it
 * --minutes N  how long (10)
 * --requests N of http: how many, instead of how long
 * --out PATH   where the plot goes (.picolet/soak.svg)
 * --seed N     of what happens
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { parseArgs } from "node:util";
import { httpSoak } from "@picolet/test/soak/http-soak.ts";
import { plotSamples } from "@picolet/test/soak/plot.ts";
import { judge, type Sample, soak } from "@picolet/test/soak/soak.ts";
import { buildPrograms } from "../build/build.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    what: { type: "string", default: "agent" },
    requests: { type: "string" },
    out: { type: "string", default: ".picolet/soak.svg" },
    seed: { type: "string", default: "1" },
  },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) {
  console.error(`--minutes must be a number above 0, not ${values.minutes}`);
  process.exit(64);
}
const { what } = values;
if (what !== "agent" && what !== "http") {
  console.error(`--what must be agent or http, not ${what}`);
  process.exit(64);
}
const requests = values.requests === undefined ? undefined : Number(values.requests);
if (requests !== undefined && !(what === "http" && requests > 0)) {
  console.error("--requests must be a number above 0, and is for --what http");
  process.exit(64);
}
await buildPrograms();
let toldAt = 0;
const isOver = (all: readonly Sample[], done: string): boolean => {
  const last = all.at(-1);
  if (last === undefined) return false;
  if (last.minutes - toldAt >= 1) {
    toldAt = last.minutes;
    console.error(`${last.minutes.toFixed(0)} min: ${done}, ${last.anonMiB.toFixed(1)} MiB`);
  }
  return last.minutes >= minutes;
};
const samples: readonly (Sample & { readonly requests?: number })[] =
  what === "agent"
    ? await soak({ seed: Number(values.seed), isOver: (all) => isOver(all, `${all.at(-1)?.pods} pods`) })
    : await httpSoak({
        isOver: (all) => {
          const asked = all.at(-1)?.requests ?? 0;
          const late = isOver(all, `${asked} requests`);
          return requests === undefined ? late : asked >= requests;
        },
      });
const { perHour, grows } = judge(samples);
const slope =
  perHour === undefined
    ? "too short to tell a slope"
    : `${perHour.slope.toFixed(2)} ± ${perHour.slopeError.toFixed(2)} MiB an hour`;
const out = resolve(values.out);
mkdirSync(dirname(out), { recursive: true });
writeFileSync(out, plotSamples(samples, perHour, `picolet, ${what}: ${slope}`));
const last = samples.at(-1);
console.log(
  JSON.stringify({
    minutes: last?.minutes,
    pods: last?.pods,
    requests: last?.requests,
    anonMiB: last?.anonMiB,
    slopeMiBPerHour: perHour?.slope,
    slopeError: perHour?.slopeError,
    grows,
    plot: out,
  }),
);
console.error(grows ? `the memory of the ${what} grows: ${slope}` : slope);
process.exitCode = grows ? 1 : 0;
