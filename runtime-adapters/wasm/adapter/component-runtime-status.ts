import { VERSION } from "@picolet/protocol/version.ts";
import type { RuntimeCondition, RuntimeHandler, RuntimeStatus } from "@picolet/runtime-contract/runtime-adapter.ts";

/** recursiveReadOnlyMounts: a component that may not write to a mount may not write to anything below it. */
const HANDLER: RuntimeHandler = { name: "wasm", recursiveReadOnlyMounts: true, userNamespaces: false };

/** @param problem why no component can be run; undefined: they can */
export function componentRuntimeStatus(problem: string | undefined, notes: readonly string[] = []): RuntimeStatus {
  return {
    runtime: "picolet-wasm",
    version: VERSION,
    conditions: [condition("RuntimeReady", problem), condition("NetworkReady", undefined)],
    handlers: [HANDLER],
    // An image of a component names no groups, so that there is nothing to leave out.
    supplementalGroupsPolicy: true,
    notes,
  };
}

const condition = (type: string, problem: string | undefined): RuntimeCondition => ({
  type,
  status: problem === undefined,
  reason: problem === undefined ? "" : "ComponentRuntimeNotUsable",
  message: problem ?? "",
});
