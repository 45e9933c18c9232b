/** The operands of `edgectl cp`. Pure. */
import { basename, dirname, normalize } from "node:path/posix";
import { usageError } from "../context/exit-codes.ts";

export interface ContainerPath {
  /** As a user names a pod. */
  readonly pod: string;
  readonly path: string;
}

export type CopyPlan =
  | { readonly way: "in"; readonly local: string; readonly remote: ContainerPath }
  | { readonly way: "out"; readonly remote: ContainerPath; readonly local: string };

/** @throws a usage error unless exactly one side is in a container */
export function planCopy(source: string, target: string): CopyPlan {
  const [from, to] = [containerPath(source), containerPath(target)];
  if (from !== undefined && to === undefined) return { way: "out", remote: from, local: target };
  if (to !== undefined && from === undefined) return { way: "in", local: source, remote: to };
  throw usageError(
    from === undefined
      ? "neither side is in a container: edgectl cp POD:PATH FILE, or edgectl cp FILE POD:PATH"
      : "both sides are in a container: copy to a file of this machine first",
  );
}

/** Undefined: a path of this machine, which begins with `.` or `/` where it has a colon, or has no colon. */
function containerPath(operand: string): ContainerPath | undefined {
  if (operand === "") throw usageError("cp needs a path on both sides");
  const colon = operand.indexOf(":");
  if (colon === -1 || /^[./]/.test(operand)) return undefined;
  const [pod, path] = [operand.slice(0, colon), operand.slice(colon + 1)];
  if (pod === "" || path === "") throw usageError(`"${operand}" has no ${pod === "" ? "pod" : "path"}`);
  return { pod, path };
}

/** The folder of a path in a container, and the name in it, which is `.` for a folder that has no name there. */
export function placeOf(path: string): { readonly folder: string; readonly name: string } {
  const clean = normalize(path).replace(/(?<=.)\/$/, "");
  const name = basename(clean);
  if (name === "" || name === "." || name === "..") return { folder: clean, name: "." };
  return { folder: dirname(clean), name };
}

/**
 * The place of a member of an archive below what was asked for. Undefined: it is elsewhere, or leads out.
 * @returns "" for what was asked for itself
 */
export function memberPath(member: string, root: string): string | undefined {
  const parts = member.split("/").filter((each) => each !== "" && each !== ".");
  if (parts.includes("..") || member.includes("\0")) return undefined;
  if (root !== "." && parts.shift() !== root) return undefined;
  return parts.join("/");
}
