import { join } from "node:path";
import type { WasmAdapterInit } from "@picolet/runtime-wasm/adapter/adapter-settings.ts";

type ProgramPaths = Pick<WasmAdapterInit, "runnerPath" | "densePath" | "transpilePath" | "pullPath" | "devicesPath">;

/** Paths of the component adapter's programs, as `scripts/build/build.ts` names them. @param folder of the programs */
export const componentPrograms = (folder: string): ProgramPaths => ({
  runnerPath: join(folder, "wasm-runner.cjs"),
  densePath: join(folder, "wasm-dense.cjs"),
  transpilePath: join(folder, "wasm-transpile.mjs"),
  pullPath: join(folder, "wasm-pull.cjs"),
  devicesPath: join(folder, "wasm-devices.cjs"),
});
