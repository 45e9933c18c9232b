/** The memory of the runner of a component that serves HTTP, while real clients send request after request. */

import { memoryOf } from "../bench/measure/process-usage.ts";
import { httpLoad } from "../bench/wasm/http-load.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";
import type { Sample } from "./soak.ts";

export interface HttpSoakInit {
  /** Called after each round with what has been sampled so far; true ends the soak. */
  readonly isOver: (samples: readonly HttpSample[]) => boolean;
}

export interface HttpSample extends Sample {
  readonly requests: number;
}

const IMAGE = "localhost/http-server:1";
const CONNECTIONS = 16;
/** The requests of one round. The large ones come first, so that their garbage is collected before the measurement. */
const ROUND: readonly (readonly [path: string, requests: number])[] = [
  ["/count/100000", 400],
  ["/query?a=b", 10_000],
  ["/hello", 20_000],
];

/** @returns samples in order, one a round */
export async function httpSoak({ isOver }: HttpSoakInit): Promise<readonly HttpSample[]> {
  await using runtime = await WasmRuntime.create();
  await using adapter = runtime.adapter();
  await adapter.images.import(await testComponent("http-server.c"), IMAGE, new AbortController().signal);
  const port = await fixedPort();
  const options = { name: "soak", image: IMAGE, container: { ports: [{ containerPort: port }] } };
  await using pod = await WasmPod.create(runtime, adapter, options);
  const { id } = await pod.start();
  const startedAt = performance.now();
  const samples: HttpSample[] = [];
  let requests = 0;
  do {
    for (const [path, many] of ROUND) {
      await httpLoad({ port, path, connections: CONNECTIONS, requests: many });
      requests += many;
    }
    const { pid } = runtime.runner(id) ?? {};
    if (pid === undefined) throw new Error(`the component has ended after ${requests} requests`);
    const minutes = (performance.now() - startedAt) / 60_000;
    samples.push({ minutes, requests, pods: 1, anonMiB: memoryOf(pid).anonMiB });
  } while (!isOver(samples));
  return samples;
}
