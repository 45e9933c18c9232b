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
/** The user to whom `subuid` and `subgid` give the ids of pods, as for a kubelet. */
const USER = "kubelet";

interface Blocks {
  readonly first: number;
  readonly last: number;
}

/**
 * Gives the pod a range of ids of the node: the one noted in its folder, else the lowest that no other pod has. The pod
 * keeps it until its folder is removed.
 * @param etc the folder of `subuid` and `subgid`
 * @throws `resource_exhausted` when there are none left, `invalid` for ids of the user `kubelet` that no pod can have
 */
export function userNamespaceOf(uid: string, paths: PodPaths, etc = "/etc"): UserNamespace {
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
  const { first, last: end } = blocksIn(etc);
  let block = first;
  while (taken.has(block)) block += 1;
  if (block > end) {
    throw new PicoletError("resource_exhausted", "could not find an empty slot to allocate a user namespace", {
      reason: "FailedCreatePodSandBox",
      retryable: true,
    });
  }
  const mapping = { hostId: block * IDS_PER_POD, length: IDS_PER_POD };
  writeMapping(file, mapping);
  return mapping;
}

/** All blocks but the node's own, or those of the user `kubelet`. @throws `invalid` in the kubelet's words */
function blocksIn(etc: string): Blocks {
  const [uids, gids] = [rangesIn(join(etc, "subuid")), rangesIn(join(etc, "subgid"))];
  if (uids.length === 0 && gids.length === 0) return { first: 1, last: LAST_BLOCK };
  const [hostId = 0, length = 0] = uids[0] ?? [];
  const problem =
    uids.join(" ") !== gids.join(" ")
      ? `mismatched subuids and subgids for user "${USER}"`
      : uids.length > 1
        ? `user "${USER}" has more than one range of ids in ${etc}/subuid`
        : hostId % IDS_PER_POD !== 0
          ? `${USER} user assigned ID ${hostId} is not a multiple of ${IDS_PER_POD}`
          : hostId < IDS_PER_POD
            ? `${USER} user assigned ID ${hostId} must be greater or equal to ${IDS_PER_POD}`
            : length % IDS_PER_POD !== 0
              ? `${USER} user assigned IDs length ${length} is not a multiple of ${IDS_PER_POD}`
              : undefined;
  if (problem !== undefined)
    throw new PicoletError("invalid", problem, { reason: "FailedCreatePodSandBox", retryable: true });
  const first = hostId / IDS_PER_POD;
  return { first, last: Math.min(first + length / IDS_PER_POD - 1, LAST_BLOCK) };
}

/** First id and number of each range of the user. A file that is not there has none. */
function rangesIn(file: string): readonly (readonly [hostId: number, length: number])[] {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return [];
    throw new PicoletError("failed", `cannot read ${file}`, { cause: error, retryable: true });
  }
  const found = text.matchAll(new RegExp(`^${USER}:(\\d+):(\\d+)\\s*$`, "gm"));
  return [...found].map(([, hostId, length]) => [Number(hostId), Number(length)]);
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
