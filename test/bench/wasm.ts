/** Figures of real components in real processes, through the adapter alone. Sizes in MiB, times in seconds. */
import type { ObservedContainer } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { WasmAdapter } from "../../runtime-adapters/wasm/wasm-adapter.ts";
import { buildExamples } from "../../scripts/build-examples.ts";
import { testComponent } from "../support/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm-runtime.ts";
import { memoryOf, percentile, round } from "./process-figures.ts";

export interface WasmFigures {
  /** A runner and its shell, with `pods` of them on the machine: shared pages are divided among them. */
  readonly pssPerPodMiB: number;
  readonly anonPerPodMiB: number;
  readonly pods: number;
  /** From the call that starts a container to its first line in the log; the component is transpiled already. */
  readonly spawnToFirstOutput: Quantiles;
  /** From kill -9 of a runner to the first line of the next one, which is started as soon as the hint comes. */
  readonly warmRestart: Quantiles;
  readonly transpilePeakRssMiB: number;
}

interface Quantiles {
  readonly p50: number;
  readonly p95: number;
}

const PODS = 10;
const HELLO = "picolet.example/hello:1";
const WORKLOAD = "localhost/workload:1";
const NEVER = new AbortController().signal;
/** A runner lets go of what starting took when it first sleeps, right after its first line. */
const REST_MS = 1000;

export async function wasmFigures(runs = 20): Promise<WasmFigures> {
  await using runtime = await WasmRuntime.create();
  await using adapter = runtime.adapter();
  await buildExamples();
  await adapter.images.import("dist/examples/hello.wasm", HELLO, NEVER);
  await adapter.images.import(await testComponent("workload.c"), WORKLOAD, NEVER);
  const memory = await memoryAtRest(runtime, adapter);
  const starts: number[] = [];
  const restarts: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    await using pod = await WasmPod.create(runtime, adapter, { name: `latency-${run}`, image: HELLO });
    const begun = Date.now();
    const first = await pod.start();
    starts.push((await firstLineAt(first, pod)) - begun);
    const killed = await pod.killAndAwaitHint(first.id);
    restarts.push((await firstLineAt(await pod.start({ attempt: 1 }), pod)) - killed);
  }
  return {
    ...memory,
    pods: PODS,
    spawnToFirstOutput: quantiles(starts),
    warmRestart: quantiles(restarts),
    transpilePeakRssMiB: round(adapter.transpilePeakRssKiB / 1024),
  };
}

async function memoryAtRest(
  runtime: WasmRuntime,
  adapter: WasmAdapter,
): Promise<Pick<WasmFigures, "pssPerPodMiB" | "anonPerPodMiB">> {
  await using pods = new AsyncDisposableStack();
  const running: ObservedContainer[] = [];
  for (let index = 0; index < PODS; index += 1) {
    const pod = pods.use(await WasmPod.create(runtime, adapter, { name: `memory-${index}`, image: HELLO }));
    const container = await pod.start();
    await firstLineAt(container, pod);
    running.push(container);
  }
  await new Promise((resolve) => setTimeout(resolve, REST_MS));
  let pssMiB = 0;
  let anonMiB = 0;
  for (const { id } of running) {
    for (const process of [runtime.runner(id), runtime.reaper(id)]) {
      if (process === undefined) throw new Error(`container ${id} is not running`);
      const memory = memoryOf(process.pid);
      pssMiB += memory.pssMiB;
      anonMiB += memory.anonMiB;
    }
  }
  return { pssPerPodMiB: round(pssMiB / PODS), anonPerPodMiB: round(anonMiB / PODS) };
}

/** Milliseconds since the epoch, as the runner wrote it down. */
async function firstLineAt(container: ObservedContainer, pod: WasmPod): Promise<number> {
  const [line] = await pod.lines(container, 1);
  return Date.parse(line?.time ?? "");
}

const quantiles = (milliseconds: readonly number[]): Quantiles => ({
  p50: round(percentile(milliseconds, 0.5) / 1000),
  p95: round(percentile(milliseconds, 0.95) / 1000),
});

if (import.meta.main) console.log(JSON.stringify(await wasmFigures(), null, 2));
