/** Why a container did not start, with the reasons that a kubelet gives. */
import { statSync } from "node:fs";
import { join } from "node:path";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { WASM_PAGE_BYTES } from "../../shared/binary/memory-limits.ts";
import type { TranspiledComponent } from "../../shared/messages/launch.ts";
import { MIN_MEMORY_LIMIT_BYTES } from "./container-launch.ts";

/** @param complaint of Node or the shell; "": none */
export const cannotStart = (name: string, error: unknown, complaint: string): PicoletError =>
  withReason(error, `cannot start container ${name}${complaint === "" ? "" : ` (${complaint})`}`, "RunContainerError");

const mebibytes = (bytes: number): string => `${Math.ceil(bytes / MEBIBYTE)}Mi`;

/** The kernel has killed its runner before the component ran. */
export function killedAtStart(
  name: string,
  {
    component,
    memoryLimitBytes,
  }: { readonly component: TranspiledComponent; readonly memoryLimitBytes?: number | undefined },
): PicoletError {
  const limit =
    memoryLimitBytes === undefined ? "what its pod or the node has" : `its limit of ${mebibytes(memoryLimitBytes)}`;
  const least = mebibytes(MIN_MEMORY_LIMIT_BYTES + ownBytes(component));
  const message = `the OOM killer ended it before it started: a component of this size takes at least ${least}, more than ${limit}; raise resources.limits.memory`;
  return new PicoletError("resource_exhausted", `cannot start container ${name}: ${message}`, { reason: "OOMKilled" });
}

/** Code and the memory that it begins with. */
function ownBytes({ directory, modules }: TranspiledComponent): number {
  const codeOf = (file: string): number => statSync(join(directory, file), { throwIfNoEntry: false })?.size ?? 0;
  return modules.reduce((sum, { name, memories }) => {
    const pages = memories.reduce((all, { initialPages }) => all + initialPages, 0);
    return sum + codeOf(name) + pages * WASM_PAGE_BYTES;
  }, 0);
}

/** Reports the errors of `check` as errors of an image. */
export function asRefusal(check: () => void): void {
  try {
    check();
  } catch (error) {
    throw withReason(error, "this node does not run the component", "CreateContainerConfigError");
  }
}

/** Adds the reason that a kubelet shows for it. */
export function withReason(error: unknown, message: string, reason: string): PicoletError {
  if (!isPicoletError(error)) return new PicoletError("failed", message, { cause: error, reason });
  if (error.code === "cancelled") return error;
  return new PicoletError(error.code, message, { cause: error, retryable: error.retryable, reason });
}
