/**
 * A program: one life of an agent that pulls one image, until it has it or is killed. Its arguments are the adapter's
 * init as JSON and the image. It says `pulled` when the image is there.
 */
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { WasmAdapterInit } from "@picolet/runtime-wasm/adapter/adapter-settings.ts";
import { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";

const [init = "", image = ""] = process.argv.slice(2);
const components = {
  ...{ clock: systemClock, log: new RecordedLog(), cgroups: undefined },
  ...{ hostIps: () => [], services: {}, warn: () => undefined },
};
await using adapter = new WasmAdapter(components, JSON.parse(init) as WasmAdapterInit);
await adapter.images.pull(image, {}, new AbortController().signal);
process.stdout.write("pulled");
