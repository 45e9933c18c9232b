/** Figures of real components in real processes, through the adapter alone. Sizes in MiB, times in seconds. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { componentPrograms } from "@picolet/agent/main/node/component-programs.ts";
import { KeyvalueService } from "@picolet/agent/store/keyvalue/keyvalue-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { buildExamples } from "@picolet/scripts/build/build-examples.ts";
import { artifact } from "../../support/unit/images/oci-content.ts";
import { padded } from "../../support/unit/images/padded-component.ts";
import { ScriptedRegistry } from "../../support/unit/images/scripted-registry.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../../support/unit/ports/recorders.ts";
import { testComponent } from "../../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../../support/wasm/wasm-runtime.ts";
import { mapValues, memoryOf, percentile, round, type Spreads, spreadOf } from "../measure/process-usage.ts";
import { step } from "../measure/progress.ts";
import { type TelemetryFigures, telemetryFigures } from "./telemetry-figures.ts";
import { type WasmDenseFigures, wasmDenseFigures } from "./wasm-dense.ts";
import { type WasmFloorFigures, wasmFloorFigures } from "./wasm-floors.ts";
import { httpFigures, type WasmHttpFigures } from "./wasm-http.ts";
import { firstLineAt, restartFigures, type WasmRestartFigures } from "./wasm-restarts.ts";

export interface WasmFigures
  extends TelemetryFigures,
    WasmHttpFigures,
    WasmDenseFigures,
    WasmRestartFigures,
    WasmFloorFigures {
  /** The figures divided by those of bare Node in the same run. */
  readonly ofFloors: Readonly<Record<"pssPerPod" | "anonPerPod" | "pullPeakRss" | "coldStart", number>>;
  /** A runner and its shell, with `pods` of them on the machine: shared pages are divided among them. */
  readonly pssPerPodMiB: number;
  readonly anonPerPodMiB: number;
  readonly pods: number;
  readonly transpilePeakRssMiB: number;
  /** A component of 5 MiB from a registry on the loopback: from the call that pulls it to its first line in the log. */
  readonly pullTranspileStart5MiB: number;
  readonly pullPeakRssMiB: number;
  /**
   * A component that sets and reads values of 100 bytes one after the other; an acknowledged value is on the disk. The
   * spread has later ones of the same process too, whose code is warm.
   */
  readonly kvWritesPerSecond: number;
  readonly kvReadsPerSecond: number;
  /** The memory of a component that uses the key-value store; the components of `pssPerPodMiB` do not. */
  readonly kvPssMiB: number;
  readonly kvAnonMiB: number;
  /** Spreads of the figures that have none of their own. */
  readonly spread: Spreads;
}

const PODS = 10;
const HELLO = "picolet.example/hello:1";
const WORKLOAD = "localhost/workload:1";
const NEVER = new AbortController().signal;
/** A runner releases the memory of its start when it first sleeps, right after its first line. */
const REST_MS = 1000;
const PULLS = 5;
const BOARD = "localhost/board:1";
/** The figure's, and two more for the spread. */
const KEYVALUE_CALLS = [500, 100, 100];
/** In twenty of them the kernel took as long as in five. */
const CGROUP_CHANGES = 5;
const PULLED_BYTES = 5 * 1024 * 1024;

export async function wasmFigures(runs = 20): Promise<WasmFigures> {
  // As they are shipped: the tests' own transpiler keeps what it made, and runs without its flags.
  await using runtime = await WasmRuntime.create({ programs: componentPrograms(resolve("dist/board/lib")) });
  await using adapter = runtime.adapter();
  await buildExamples();
  await adapter.images.import("dist/examples/hello.wasm", HELLO, NEVER);
  await adapter.images.import(await testComponent("workload.c"), WORKLOAD, NEVER);
  const memory = await step("components at rest", () => memoryAtRest(runtime, adapter));
  const restarts = await step("starts of components", () =>
    restartFigures(runtime, adapter, { image: HELLO, runs, restMs: REST_MS }),
  );
  const { floors } = await step("floors of components", () =>
    wasmFloorFigures(runtime, { pods: PODS, runs: CGROUP_CHANGES, restMs: REST_MS }),
  );
  const pulls = await step("pulls of components", () => pullFigures(runtime, adapter));
  const http = await step("HTTP of a component", () => httpFigures(runtime, adapter));
  const keyvalue = await step("key-value store", () => keyvalueFigures());
  const telemetry = await step("telemetry of a component", () => telemetryFigures());
  const dense = await step("components that share a process", () => wasmDenseFigures(runtime, adapter));
  return {
    ...memory,
    pods: PODS,
    ...restarts,
    transpilePeakRssMiB: round(adapter.transpilePeakRssKiB / 1024),
    ...pulls,
    floors,
    ofFloors: {
      pssPerPod: round(memory.pssPerPodMiB / floors.pssPerPodMiB),
      anonPerPod: round(memory.anonPerPodMiB / floors.anonPerPodMiB),
      pullPeakRss: round(pulls.pullPeakRssMiB / floors.pullPeakRssMiB),
      coldStart: round(restarts.coldStart.p50 / floors.nodeStart.p50),
    },
    ...http,
    ...keyvalue,
    ...telemetry,
    ...dense,
    spread: { ...memory.spread, ...pulls.spread, ...http.spread, ...keyvalue.spread, ...telemetry.spread },
  };
}

/** With the agent's own store, in this process. */
async function keyvalueFigures(): Promise<
  Pick<WasmFigures, "kvWritesPerSecond" | "kvReadsPerSecond" | "kvPssMiB" | "kvAnonMiB" | "spread">
> {
  using folder = new TempFolder();
  using keyvalue = new KeyvalueService(
    {
      clock: systemClock,
      log: new RecordedLog(),
      namedBy: () => [],
      isClockSet: () => true,
      onDamage: (reason) => {
        throw new Error(reason);
      },
    },
    { path: folder.at("keyvalue.db") },
  );
  await using runtime = await WasmRuntime.create({ services: { keyvalue: () => keyvalue } });
  await using adapter = runtime.adapter();
  await adapter.images.import(await testComponent("board.c"), BOARD, NEVER);
  const annotations = {
    "wasm.picolet.io/interfaces": "keyvalue, config, logging, node-info",
    "wasm.picolet.io/keyvalue": "b=1Mi",
  };
  await using pod = await WasmPod.create(runtime, adapter, { name: "keyvalue", image: BOARD, annotations });
  const loads = KEYVALUE_CALLS.flatMap((calls) => ["load", "k", String(calls)]);
  const container = await pod.start({ args: ["open", "b", ...loads, "hold"] });
  const [, ...said] = await pod.lines(container, 1 + KEYVALUE_CALLS.length);
  const seconds = said.map(({ text }) => /writes (\S+) s reads (\S+) s/.exec(text) ?? []);
  const ratesOf = (column: number): number[] =>
    KEYVALUE_CALLS.map((calls, load) => calls / Number(seconds[load]?.[column]));
  const rates = { kvWritesPerSecond: ratesOf(1), kvReadsPerSecond: ratesOf(2) };
  await new Promise((resolve) => setTimeout(resolve, REST_MS));
  const { pid } = runtime.runner(container.id) ?? {};
  if (pid === undefined) throw new Error("the component that uses the store is not running");
  const { pssMiB, anonMiB } = memoryOf(pid);
  return {
    ...mapValues(rates, ([first = Number.NaN]) => Math.round(first)),
    kvPssMiB: round(pssMiB),
    kvAnonMiB: round(anonMiB),
    spread: mapValues(rates, spreadOf),
  };
}

/** Each is another component, so that nothing of it is here. */
async function pullFigures(
  runtime: WasmRuntime,
  adapter: WasmAdapter,
): Promise<Pick<WasmFigures, "pullTranspileStart5MiB" | "pullPeakRssMiB" | "spread">> {
  await using registry = await ScriptedRegistry.start();
  const hello = readFileSync("dist/examples/hello.wasm");
  const times: number[] = [];
  for (let run = 0; run < PULLS; run += 1) {
    const component = padded(hello, PULLED_BYTES - hello.length);
    registry.add(artifact(component), [component], `${run}`);
    const image = `${registry.address}/hello:${run}`;
    const begun = Date.now();
    await adapter.images.pull(image, {}, NEVER);
    await using pod = await WasmPod.create(runtime, adapter, { name: `pulled-${run}`, image });
    times.push((await firstLineAt(await pod.start(), pod)) - begun);
  }
  const peaks = runtime.log.entries
    .filter(({ message }) => message === "pulled a component")
    .map(({ fields }) => Number(fields.peakRssKiB));
  return {
    pullTranspileStart5MiB: round(percentile(times, 0.5) / 1000),
    pullPeakRssMiB: round(Math.max(...peaks) / 1024),
    spread: {
      pullTranspileStart5MiB: spreadOf(times.map((each) => each / 1000)),
      pullPeakRssMiB: spreadOf(peaks.map((each) => each / 1024)),
    },
  };
}

async function memoryAtRest(
  runtime: WasmRuntime,
  adapter: WasmAdapter,
): Promise<Pick<WasmFigures, "pssPerPodMiB" | "anonPerPodMiB" | "spread">> {
  await using pods = new AsyncDisposableStack();
  const running: ObservedContainer[] = [];
  for (let index = 0; index < PODS; index += 1) {
    const pod = pods.use(await WasmPod.create(runtime, adapter, { name: `memory-${index}`, image: HELLO }));
    const container = await pod.start();
    await firstLineAt(container, pod);
    running.push(container);
  }
  await new Promise((resolve) => setTimeout(resolve, REST_MS));
  const figures = running.map(({ id }) => {
    const processes = [runtime.runner(id), runtime.reaper(id)].map((process) => {
      if (process === undefined) throw new Error(`container ${id} is not running`);
      return memoryOf(process.pid);
    });
    return {
      pssMiB: processes.reduce((sum, { pssMiB }) => sum + pssMiB, 0),
      anonMiB: processes.reduce((sum, { anonMiB }) => sum + anonMiB, 0),
    };
  });
  const samples = {
    pssPerPodMiB: figures.map(({ pssMiB }) => pssMiB),
    anonPerPodMiB: figures.map(({ anonMiB }) => anonMiB),
  };
  return {
    ...mapValues(samples, (values) => round(values.reduce((sum, each) => sum + each, 0) / PODS)),
    spread: mapValues(samples, spreadOf),
  };
}

if (import.meta.main) console.log(JSON.stringify(await wasmFigures(), null, 2));
