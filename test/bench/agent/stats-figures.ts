/** The cost of collecting usage: real cgroups, and only the collection in a process with the agent's flags. */
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { CgroupTree } from "@picolet/agent/resources/cgroup-tree.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../../support/unit/ports/recorders.ts";
import { mapValues, percentile, round, type Spread, spreadOf } from "../measure/process-usage.ts";
import { forkWithAgentFlags, messageOf } from "./agent-fork.ts";
import type { StatsAnswer, StatsOrder } from "./stats-main.ts";

export interface StatsFigures {
  /** Percent of one core: a sample of cgroups every ten seconds, of the pods' disk usage every minute. */
  readonly cpuPercentAt50Pods: number;
  readonly lookMs: { readonly p50: number; readonly p99: number };
  readonly lookCpuMs: number;
  /** With the processes that measure. */
  readonly diskCpuMs: number;
  /** How long the event loop was held, of a hundred times the worst but one. */
  readonly stallMs: number;
  readonly spread: Readonly<Record<"lookMs" | "lookCpuMs" | "stallMs", Spread>>;
}

const PODS = 50;
const LOOK_PERIOD_MS = 10_000;
const DISK_PERIOD_MS = 60_000;
const LOOKS = 200;
/** CPU time of children comes in ticks of 10 ms. */
const MEASUREMENTS = 20;
const ROOT = `/picolet-test-bench-${process.pid}`;
/** Files in each pod's volume. */
const FILES = 10;

export async function statsFigures(): Promise<StatsFigures> {
  const tree = new CgroupTree({ log: new RecordedLog(), clock: systemClock }, { hierarchies: await detectCgroups() });
  using folder = new TempFolder();
  try {
    for (let index = 0; index < PODS; index += 1) {
      const pod = `pod${index}`;
      // A sandbox exists too, and is never read.
      for (const name of [`c${index}`, "sandbox"]) await tree.create(`${ROOT}/${pod}/${name}`, {});
      const volume = folder.at("pods", pod, "volumes/kubernetes.io~empty-dir/data");
      for (const path of [volume, folder.at("logs", pod, `c${index}`)]) {
        mkdirSync(path, { recursive: true });
        for (let file = 0; file < FILES; file += 1) writeFileSync(`${path}/${file}`, "x");
      }
    }
    return figuresOf(
      await measure({ root: ROOT, pods: PODS, looks: LOOKS, measurements: MEASUREMENTS, folder: folder.path }),
    );
  } finally {
    await tree.remove(ROOT);
  }
}

async function measure(order: StatsOrder): Promise<StatsAnswer> {
  const child = forkWithAgentFlags(new URL("stats-main.ts", import.meta.url));
  child.send(order);
  const answer = await messageOf<StatsAnswer>(child);
  if (child.exitCode === null) await once(child, "exit");
  return answer;
}

function figuresOf({ lookCpuMs: samples, lookMs, diskCpuMs, stallMs }: StatsAnswer): StatsFigures {
  const lookCpuMs = samples.reduce((sum, each) => sum + each, 0) / samples.length;
  const { p99: stalled, ...stalls } = stallMs;
  return {
    cpuPercentAt50Pods: round((lookCpuMs / LOOK_PERIOD_MS + diskCpuMs / DISK_PERIOD_MS) * 100),
    lookMs: { p50: round(percentile(lookMs, 0.5)), p99: round(percentile(lookMs, 0.99)) },
    ...{ lookCpuMs: round(lookCpuMs), diskCpuMs: round(diskCpuMs), stallMs: round(stalled) },
    spread: { lookMs: spreadOf(lookMs), lookCpuMs: spreadOf(samples), stallMs: mapValues(stalls, round) },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(JSON.stringify(await statsFigures(), undefined, 2));
