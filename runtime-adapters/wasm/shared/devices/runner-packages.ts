/** Finds the packages that some runners need: beside the runner, where npm installs them. */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";

/** Those whose structures are written down here. */
const MACHINES = ["x64", "arm64"];

/** @returns the path of koffi's native part for this Node. @throws `unimplemented` */
export function deviceAddon(runnerPath: string): string {
  const { arch } = process;
  // Both are in the package; Node was built for one of them.
  const library = readFileSync("/proc/self/maps", "utf8").includes("/ld-musl-") ? "musl" : "linux";
  const name = `@koromix/koffi-linux-${arch}`;
  const folder = MACHINES.includes(arch) ? folderOf(`${name}/package.json`, runnerPath) : undefined;
  const path = folder === undefined ? undefined : `${folder}/${library}_${arch}/koffi.node`;
  if (path !== undefined && existsSync(path)) return path;
  throw new PicoletError(
    "unimplemented",
    `cannot give components devices on this node: the package ${name} is not there; install it beside picolet (npm install)`,
    { reason: "CreateContainerConfigError" },
  );
}

/** @returns the folder of the library that computes models. @throws `unimplemented` */
export function inferenceFolder(runnerPath: string): string {
  const name = "onnxruntime-web";
  const folder = folderOf(`${name}/ort-wasm-simd-threaded.wasm`, runnerPath);
  if (folder !== undefined) return folder;
  throw new PicoletError(
    "unimplemented",
    `cannot compute models on this node: the package ${name} is not there; install it beside picolet (npm install)`,
    { reason: "CreateContainerConfigError" },
  );
}

/** @param file of a package, as its `exports` name it */
function folderOf(file: string, beside: string): string | undefined {
  try {
    return dirname(createRequire(beside).resolve(file));
  } catch {
    return undefined;
  }
}
