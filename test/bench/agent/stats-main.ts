/**
 * The collection alone, over real cgroups, in a process with the agent's flags: looks as often as it can, and tells
 * what that cost.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { makeNodeUsageSampler } from "@picolet/agent/main/node/node-usage.ts";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { usagePod } from "../../support/unit/pods/usage-pods.ts";
import { RecordedLog } from "../../support/unit/ports/recorders.ts";
import { cpuSecondsOf, type Spread } from "../measure/process-usage.ts";

export interface StatsOrder {
  readonly root: string;
  readonly pods: number;
  readonly looks: number;
  readonly measurements: number;
  readonly folder: string;
}

/** Milliseconds. */
export interface StatsAnswer {
  /** The mean of so many that follow one another. */
  readonly lookCpuMs: readonly number[];
  readonly lookMs: readonly number[];
  /** With the processes that it starts. */
  readonly diskCpuMs: number;
  readonly stallMs: { readonly p99: number } & Spread;
}

const NEVER = new AbortController().signal;
const NEW = millis(0);
const WARM_UP_LOOKS = 5;
/** For the spread. */
const PARTS = 5;

process.once("message", async ({ root, pods: count, looks, measurements, folder }: StatsOrder) => {
  const volumes = [
    { name: "data", emptyDir: {} },
    { name: "config", configMap: { name: "c" } },
  ];
  const pods = Array.from({ length: count }, (_, index) => {
    const containers = [{ name: `c${index}`, image: "i" }];
    return usagePod(`pod${index}`, [`c${index}`], { containers, volumes }, `${folder}/logs/pod${index}`);
  });
  const hierarchies = await detectCgroups();
  const makeUsage = () =>
    makeNodeUsageSampler(
      {
        ...{ hierarchies, adapters: [], clock: systemClock, log: new RecordedLog() },
        pods: () => pods,
        podCgroup: ({ uid }) => `${root}/${uid}`,
      },
      { rootDir: folder, podLogsDir: `${folder}/logs`, allPodsCgroup: root, cgroupsPerQOS: true },
    );
  const usage = makeUsage();
  for (let look = 0; look < WARM_UP_LOOKS; look += 1) await usage.sample(NEW, NEVER);
  await usage.disk(NEW, NEVER);
  const delays = monitorEventLoopDelay({ resolution: 1 });
  delays.enable();
  const lookMs: number[] = [];
  const lookCpuMs: number[] = [];
  for (let part = 0; part < PARTS; part += 1) {
    const before = process.cpuUsage();
    for (let look = 0; look < looks / PARTS; look += 1) {
      const from = performance.now();
      await usage.sample(NEW, NEVER);
      lookMs.push(performance.now() - from);
    }
    const { user, system } = process.cpuUsage(before);
    lookCpuMs.push(((user + system) / 1000 / looks) * PARTS);
  }
  delays.disable();
  const diskFrom = cpuSecondsOf(process.pid, "with children");
  for (let measurement = 0; measurement < measurements; measurement += 1)
    // One that knows nothing yet measures at once; the same one would pace itself.
    await makeUsage().disk(NEW, NEVER);
  const diskSeconds = cpuSecondsOf(process.pid, "with children") - diskFrom;
  const answer: StatsAnswer = {
    lookCpuMs,
    lookMs,
    diskCpuMs: (diskSeconds * 1000) / measurements,
    stallMs: {
      p99: delays.percentile(99) / 1e6,
      ...{ min: delays.min / 1e6, median: delays.percentile(50) / 1e6, max: delays.max / 1e6 },
    },
  };
  process.send?.(answer);
  process.disconnect();
});
