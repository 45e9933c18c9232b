/** A component runtime for one test, with images made of test components. */
import type { TestContext } from "node:test";
import type { ContainerLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { type TestComponent, testComponent } from "./components.ts";
import { WasmPod, type WasmPodOptions, WasmRuntime, type WasmRuntimeOptions } from "./wasm-runtime.ts";

const NEVER = new AbortController().signal;

/** Components are imported and transpiled once for all tests of a file. */
const shared = new TempFolder();
process.once("exit", () => shared[Symbol.dispose]());

export const imageOf = (component: TestComponent): string => `localhost/${component.replace(/\W/g, "-")}:1`;

export interface WasmBench {
  readonly runtime: WasmRuntime;
  adapter: WasmAdapter;
  pod(component: TestComponent, options?: Partial<WasmPodOptions>): Promise<WasmPod>;
  newAgent(): Promise<WasmAdapter>;
}

export async function wasmBench(context: TestContext, options: WasmRuntimeOptions = {}): Promise<WasmBench> {
  const runtime = await WasmRuntime.create({ rootDirectory: shared.path, ...options });
  const made: WasmBench = {
    runtime,
    adapter: runtime.adapter(),
    async pod(component, more = {}) {
      const image = imageOf(component);
      await made.adapter.images.import(await testComponent(component), image, NEVER);
      return WasmPod.create(runtime, made.adapter, { image, ...more });
    },
    async newAgent() {
      await made.adapter[Symbol.asyncDispose]();
      made.adapter = runtime.adapter();
      return made.adapter;
    },
  };
  context.after(async () => {
    await made.adapter[Symbol.asyncDispose]();
    await runtime[Symbol.asyncDispose]();
  });
  return made;
}

export const mount = (
  containerPath: string,
  hostPath: string,
  readOnly = false,
): ContainerLaunch["mounts"][number] => ({ containerPath, hostPath, readOnly, propagation: "private" });
