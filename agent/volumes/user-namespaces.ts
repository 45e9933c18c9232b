import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { UserNamespace } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodPaths } from "./files/pod-paths.ts";

/** As many ids as a program expects to have, and as Kubernetes gives a pod. */
const IDS_PER_POD = 65_536;
/** The first block is the node's own; the last of them all is left out, as 2^32 - 1 is no id. */
const LAST_BLOCK = 2 ** 32 / IDS_PER_POD - 2;
/** In the pod's folder, as the kubelet keeps it. */
const FILE = "userns";

/**
 * Gives the pod a range of ids of the node: the one noted in its folder, else the lowest that no other pod has. The pod
 * keeps it until its folder is removed.
 * @throws `resource_exhausted` when there are none left
 */
export function userNamespaceOf(uid: string, paths: PodPaths): UserNamespace {
  const file = join(paths.pod(uid), FILE);
  const known = readMapping(file);
  if (known !== undefined) return known;
  const taken = new Set<number>();
  for (const other of readdirSync(paths.podsDir, { withFileTypes: true })) {
    if (!other.isDirectory() || other.name === uid) continue;
    const mapping = readMapping(join(paths.podsDir, other.name, FILE));
    if (mapping === undefined) continue;
    const last = Math.floor((mapping.hostId + mapping.length - 1) / IDS_PER_POD);
    for (let block = Math.floor(mapping.hostId / IDS_PER_POD); block <= last; block += 1) taken.add(block);
  }
  let block = 1;
  while (taken.has(block)) block += 1;
  if (block > LAST_BLOCK) {
    throw new PicoletError("resource_exhausted", "could not find an empty slot to allocate a user namespace", {
      reason: "FailedCreatePodSandBox",
      retryable: true,
    });
  }
  const mapping = { hostId: block * IDS_PER_POD, length: IDS_PER_POD };
  writeMapping(file, mapping);
  return mapping;
}

function writeMapping(file: string, { hostId, length }: UserNamespace): void {
  const mappings = [{ hostId, containerId: 0, length }];
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(`${file}.new`, JSON.stringify({ uidMappings: mappings, gidMappings: mappings }), { flush: true });
  renameSync(`${file}.new`, file);
}

/**
 * Undefined for one that is not there, or that is none of ours: a pod's first sandbox is not made before it is written.
 */
function readMapping(file: string): UserNamespace | undefined {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw new PicoletError("failed", `cannot read ${file}`, { cause: error, retryable: true });
  }
  try {
    const parsed = JSON.parse(text) as { readonly uidMappings?: readonly Partial<UserNamespace>[] } | null;
    const { hostId = -1, length = 0 } = parsed?.uidMappings?.[0] ?? {};
    const isMapping = Number.isInteger(hostId) && Number.isInteger(length) && hostId > 0 && length > 0;
    return isMapping && hostId + length <= 2 ** 32 ? { hostId, length } : undefined;
  } catch {
    return undefined;
  }
}
