/** Figures of component pods that share a process. Sizes in MiB. */
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { buildExamples } from "@picolet/scripts/build/build-examples.ts";
import { WasmPod, WasmRuntime } from "../../support/wasm/wasm-runtime.ts";
import { memoryOf, round, type Spread, spreadOf } from "../measure/process-usage.ts";

export interface WasmDenseFigures {
  readonly dense: {
    /** The memory of each further pod, between the tenth and the hundredth of one namespace. */
    readonly pssPerPodMiB: number;
    /** The memory of all processes of a hundred such pods. */
    readonly pods100RssMiB: number;
    readonly pods100PssMiB: number;
    /** Over the thirds of these pods. */
    readonly spread: Readonly<Record<"pssPerPodMiB", Spread>>;
  };
}

const HELLO = "picolet.example/hello:1";
const NEVER = new AbortController().signal;
const FEW = 10;
const MANY = 100;
const STEP = 30;
/** A collection half a second after the last start, and a little. */
const REST_MS = 2500;
const DENSE = { "wasm.picolet.io/mode": "dense" };

export async function wasmDenseFigures(runtime: WasmRuntime, adapter: WasmAdapter): Promise<WasmDenseFigures> {
  await using pods = new AsyncDisposableStack();
  const containers: ObservedContainer[] = [];
  const startUpTo = async (count: number): Promise<Figures> => {
    while (containers.length < count) {
      const name = `dense-${containers.length}`;
      const pod = pods.use(await WasmPod.create(runtime, adapter, { name, image: HELLO, annotations: DENSE }));
      const container = await pod.start();
      await pod.lines(container, 1);
      containers.push(container);
    }
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    return figuresOf(runtime, containers);
  };
  const few = await startUpTo(FEW);
  const perPod: number[] = [];
  let many = few;
  for (let count = FEW + STEP; count <= MANY; count += STEP) {
    const before = many;
    many = await startUpTo(count);
    perPod.push((many.pssMiB - before.pssMiB) / STEP);
  }
  return {
    dense: {
      pssPerPodMiB: round((many.pssMiB - few.pssMiB) / (MANY - FEW)),
      pods100RssMiB: round(many.rssMiB),
      pods100PssMiB: round(many.pssMiB),
      spread: { pssPerPodMiB: spreadOf(perPod) },
    },
  };
}

interface Figures {
  readonly pssMiB: number;
  readonly rssMiB: number;
}

/** The figures of the containers' shared processes, and of the shells beside them. */
function figuresOf(runtime: WasmRuntime, containers: readonly ObservedContainer[]): Figures {
  const pids = new Set(containers.flatMap(({ id }) => runtime.processesOfHost(id)));
  let [pssMiB, rssMiB] = [0, 0];
  for (const pid of pids) {
    const memory = memoryOf(pid);
    pssMiB += memory.pssMiB;
    rssMiB += memory.rssMiB;
  }
  return { pssMiB, rssMiB };
}

if (import.meta.main) {
  await using runtime = await WasmRuntime.create();
  await using adapter = runtime.adapter();
  await buildExamples();
  await adapter.images.import("dist/examples/hello.wasm", HELLO, NEVER);
  console.log(JSON.stringify(await wasmDenseFigures(runtime, adapter), null, 2));
}
