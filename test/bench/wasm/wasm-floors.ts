/**
 * The cost of Node and the kernel by themselves, in the same run: the processes that start components cannot cost less.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import {
  PULLER_FLAGS,
  RUNNER_FLAGS,
  SMALL_PROCESS_ENVIRONMENT,
} from "@picolet/runtime-wasm/adapter/processes/node-flags.ts";
import { BareNodes, peakRssKiB } from "../../support/wasm/bare-node.ts";
import type { WasmRuntime } from "../../support/wasm/wasm-runtime.ts";
import { memoryOf, type Quantiles, quantilesOf, round, type Spread, spreadOf } from "../measure/process-usage.ts";

export interface WasmFloorFigures {
  readonly floors: {
    /** Memory of an idle Node with a runner's flags, with as many of them as there were pods. */
    readonly pssPerPodMiB: number;
    readonly anonPerPodMiB: number;
    /** Peak memory of an idle Node with the flags of a pull. */
    readonly pullPeakRssMiB: number;
    /** From the spawn of such a Node to its first word. */
    readonly nodeStart: Quantiles;
    /**
     * A process is put into another cgroup, and no process was for a while: the kernel waits for a grace period (RCU).
     * A runner that waits for its container cannot get into the container's cgroup in less. Undefined where there are
     * no cgroups.
     */
    readonly cgroupChange: Quantiles | undefined;
    /** Over the processes. */
    readonly spread: Readonly<Record<"pssPerPodMiB" | "anonPerPodMiB", Spread>>;
  };
}

export interface FloorRuns {
  readonly pods: number;
  /** Changes of a cgroup. */
  readonly runs: number;
  /** Between two changes of a cgroup. */
  readonly restMs: number;
}

export async function wasmFloorFigures(
  runtime: WasmRuntime,
  { pods, runs, restMs }: FloorRuns,
): Promise<WasmFloorFigures> {
  return { floors: { ...(await nodeFloors(pods)), cgroupChange: await cgroupChange(runtime, runs, restMs) } };
}

async function nodeFloors(pods: number): Promise<Omit<WasmFloorFigures["floors"], "cgroupChange">> {
  using nodes = new BareNodes();
  const pids: number[] = [];
  const seconds: number[] = [];
  for (let index = 0; index < pods; index += 1) {
    const begunMs = performance.now();
    pids.push(await nodes.start(RUNNER_FLAGS, SMALL_PROCESS_ENVIRONMENT));
    seconds.push((performance.now() - begunMs) / 1000);
  }
  const figures = pids.map(memoryOf);
  const mean = (values: readonly number[]): number => round(values.reduce((sum, each) => sum + each, 0) / pods);
  return {
    pssPerPodMiB: mean(figures.map(({ pssMiB }) => pssMiB)),
    anonPerPodMiB: mean(figures.map(({ anonMiB }) => anonMiB)),
    pullPeakRssMiB: round(peakRssKiB(await nodes.start(PULLER_FLAGS, SMALL_PROCESS_ENVIRONMENT)) / 1024),
    nodeStart: quantilesOf(seconds),
    spread: {
      pssPerPodMiB: spreadOf(figures.map(({ pssMiB }) => pssMiB)),
      anonPerPodMiB: spreadOf(figures.map(({ anonMiB }) => anonMiB)),
    },
  };
}

async function cgroupChange(
  { cgroups, floorCgroup }: WasmRuntime,
  runs: number,
  restMs: number,
): Promise<Quantiles | undefined> {
  const group = await cgroups?.create(floorCgroup, {});
  const [procsFile] = group?.procsFiles ?? [];
  if (procsFile === undefined) return undefined;
  const seconds: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const child = spawn("sleep", ["infinity"], { stdio: "ignore" });
    await new Promise((resolve) => setTimeout(resolve, restMs));
    const begunMs = performance.now();
    writeFileSync(procsFile, String(child.pid));
    seconds.push((performance.now() - begunMs) / 1000);
    child.kill("SIGKILL");
  }
  return quantilesOf(seconds);
}
