/**
 * `npm run soak -- --minutes N`: the real agent while pods come, go, crash and are probed, its anonymous memory over
 * time as an SVG, and the slope of it with its standard error. Leaves with 1 when it grows.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { amountFlag, choiceFlag, countFlag, fileFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { anonGrowth } from "@picolet/test/bench/agent/agent-figures.ts";
import { describeMissed, GOALS, judge as judgeGoals } from "@picolet/test/bench/goals.ts";
import { idleWrites } from "@picolet/test/bench/hub/tunnel-figures.ts";
import { httpSoak } from "@picolet/test/soak/http-soak.ts";
import { plotSamples } from "@picolet/test/soak/plot.ts";
import { judge, type Sample, soak } from "@picolet/test/soak/soak.ts";
import { Containerd } from "@picolet/test/support/containerd/containerd.ts";
import { buildPrograms } from "../build/build.ts";
import { endWithUsageError, readOptions } from "../options.ts";

/** `growth` is the memory that so many leave behind. */
const CHURNED_PODS = 10_000;

const MINUTES = amountFlag({ name: "minutes", help: "how long", default: "10" });
const WHAT = choiceFlag({
  name: "what",
  help:
    "the agent while pods come, go, crash and are probed; the runner of a component that serves HTTP while clients ask it; " +
    "the memory that ten thousand pods leave behind; or the bytes that an agent with ten pods and a hub writes at rest",
  choices: ["agent", "http", "growth", "disk"],
  default: "agent",
});
const REQUESTS = countFlag({ name: "requests", help: "of --what http: how many, instead of how long", least: 1 });
const OUT = fileFlag({ name: "out", value: "PATH", help: "where the plot goes", default: ".picolet/soak.svg" });
const SEED = countFlag({ name: "seed", help: "of what happens", default: "1" });

const input = readOptions({
  name: "soak",
  summary: "memory of the agent or of a component over time; leaves with 1 when it grows",
  flags: [MINUTES, WHAT, REQUESTS, OUT, SEED],
});
const [minutes, what, requests] = [input.value(MINUTES), input.value(WHAT), input.value(REQUESTS)];
if (requests !== undefined && what !== "http")
  endWithUsageError("soak", usageError("--requests goes with --what http"));
await buildPrograms();
if (what === "growth" || what === "disk") process.exit(await measureOnce(what));
let loggedAt = 0;
const isOver = (all: readonly Sample[], done: string): boolean => {
  const last = all.at(-1);
  if (last === undefined) return false;
  if (last.minutes - loggedAt >= 1) {
    loggedAt = last.minutes;
    console.error(`${last.minutes.toFixed(0)} min: ${done}, ${last.anonMiB.toFixed(1)} MiB`);
  }
  return last.minutes >= minutes;
};
const samples: readonly (Sample & { readonly requests?: number })[] =
  what === "agent"
    ? await soak({ seed: input.value(SEED) ?? 1, isOver: (all) => isOver(all, `${all.at(-1)?.pods} pods`) })
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
const out = resolve(input.value(OUT));
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

/** One figure, judged by its goal. @returns the exit code */
async function measureOnce(part: "growth" | "disk"): Promise<number> {
  const document = { [part]: part === "growth" ? await growth() : await writes() };
  console.log(JSON.stringify(document));
  const missed = describeMissed(judgeGoals(document, GOALS, { parts: [part] }));
  for (const line of missed) console.error(`MISSED ${line}`);
  return missed.length > 0 ? 1 : 0;
}

async function growth(): Promise<{ readonly anonMiBPer10kPods: number }> {
  return { anonMiBPer10kPods: Number((await anonGrowth(CHURNED_PODS)).toFixed(3)) };
}

async function writes(): Promise<{ readonly bytesPerHourIdle: number }> {
  await using containerd = await Containerd.start();
  return { bytesPerHourIdle: await idleWrites(containerd, minutes * 60_000) };
}
