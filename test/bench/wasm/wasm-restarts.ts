/** How soon a component runs, the first time and again. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { WasmPod, type WasmRuntime } from "../../support/wasm/wasm-runtime.ts";
import { type Quantiles, quantilesOf } from "../measure/process-usage.ts";
import type { KillTimes } from "./kill-watch-main.ts";

export interface WasmRestartFigures {
  /** From the call that starts a container to its first line in the log; the component is transpiled already. */
  readonly coldStart: Quantiles;
  /**
   * From when the kernel has done with a runner that was killed until the next one runs, by the spare that there is.
   */
  readonly warmRestart: Quantiles;
  /** The same from kill -9 on: the kernel takes the memory of a process back before it has exited. */
  readonly warmRestartFromKill: Quantiles;
  /** From kill -9 to its first line. */
  readonly warmRestartToFirstOutput: Quantiles;
}

export interface RestartRuns {
  readonly image: string;
  readonly runs: number;
  /** That a container runs before it is killed. */
  readonly restMs: number;
}

export async function restartFigures(
  runtime: WasmRuntime,
  adapter: WasmAdapter,
  { image, runs, restMs }: RestartRuns,
): Promise<WasmRestartFigures> {
  const killer = fork(fileURLToPath(new URL("kill-watch-main.ts", import.meta.url)));
  const times: Record<keyof WasmRestartFigures, number[]> = {
    coldStart: [],
    warmRestart: [],
    warmRestartFromKill: [],
    warmRestartToFirstOutput: [],
  };
  try {
    for (let run = 0; run < runs; run += 1) {
      await using pod = await WasmPod.create(runtime, adapter, { name: `latency-${run}`, image });
      const begunMs = Date.now();
      const first = await pod.start();
      times.coldStart.push((await firstLineAt(first, pod)) - begunMs);
      await adapter.sparesSettled;
      await new Promise((resolve) => setTimeout(resolve, restMs));
      const pid = runtime.runner(first.id)?.pid;
      if (pid === undefined) throw new Error("the component is not running");
      const told = once(killer, "message") as Promise<[KillTimes]>;
      killer.send(pid);
      await pod.exit(first.id);
      const next = await pod.start({ attempt: 1 });
      const runningMs = performance.timeOrigin + performance.now();
      const [{ killedMs, exitedMs }] = await told;
      times.warmRestart.push(runningMs - exitedMs);
      times.warmRestartFromKill.push(runningMs - killedMs);
      times.warmRestartToFirstOutput.push((await firstLineAt(next, pod)) - killedMs);
    }
  } finally {
    killer.disconnect();
  }
  const { coldStart, warmRestart, warmRestartFromKill, warmRestartToFirstOutput } = times;
  return {
    coldStart: quantiles(coldStart),
    warmRestart: quantiles(warmRestart),
    warmRestartFromKill: quantiles(warmRestartFromKill),
    warmRestartToFirstOutput: quantiles(warmRestartToFirstOutput),
  };
}

/** Milliseconds since the epoch, as the runner wrote it down. */
export async function firstLineAt(container: ObservedContainer, pod: WasmPod): Promise<number> {
  const [line] = await pod.lines(container, 1);
  return Date.parse(line?.time ?? "");
}

const quantiles = (milliseconds: readonly number[]): Quantiles => quantilesOf(milliseconds.map((each) => each / 1000));
