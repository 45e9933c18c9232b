/** The number of volumes that a node takes of each CSI driver, as its CSINode names it. Pure. */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { ObjectCache } from "../object-cache.ts";
import { driverVolume } from "../volumes/attachable-volumes.ts";
import { claimsOf } from "../volumes/pod-claims.ts";
import { type Claim, classOf, type StorageClass } from "../volumes/volume-objects.ts";
import type { PodNeeds } from "./node-info.ts";

interface Caches {
  readonly claims: ObjectCache;
  readonly volumes: ObjectCache;
  readonly classes: ObjectCache;
  readonly driverNodes: ObjectCache;
  /** With the index `node`. */
  readonly attachments: ObjectCache;
}

type NodeProblem = (node: string, pods: Iterable<PodNeeds>) => string | undefined;

/** @returns undefined for a pod without volumes of drivers: it fits wherever it does otherwise */
export function volumeLimits(pod: Pod, caches: Caches): NodeProblem | undefined {
  const own = countedOf(pod, caches);
  if (own.size === 0) return undefined;
  return (node, pods) => {
    const limits = limitsOf(node, caches);
    if (limits.size === 0) return undefined;
    const used = new Map<string, string>();
    for (const { pod: other } of pods) for (const [id, driver] of countedOf(other, caches)) used.set(id, driver);
    for (const [id, driver] of attachedTo(node, caches)) used.set(id, driver);
    for (const [name, count] of limits) {
      const ofDriver = (all: ReadonlyMap<string, string>): string[] =>
        [...all].filter(([, driver]) => driver === name).map(([id]) => id);
      const taken = ofDriver(used);
      const added = ofDriver(own).filter((id) => !taken.includes(id));
      if (added.length > 0 && taken.length + added.length > count) return "node(s) exceed max volume count";
    }
    return undefined;
  };
}

/** Drivers by the volumes that count: those of bound claims, and claims whose volume a driver will provide. */
function countedOf(pod: Pod, { claims, volumes, classes }: Caches): ReadonlyMap<string, string> {
  const counted = new Map<string, string>();
  const { namespace } = pod.metadata;
  for (const name of claimsOf(pod)) {
    const claim = claims.find(namespace, name) as Claim | undefined;
    if (claim === undefined) continue;
    const volumeName = claim.spec?.volumeName ?? "";
    const volume = driverVolume(volumes.get(volumeName));
    const { provisioner } = (classes.get(classOf(claim)) ?? {}) as Partial<StorageClass>;
    if (volume !== undefined) counted.set(volume.id, volume.driver);
    else if (volumeName === "" && provisioner !== undefined) counted.set(`${namespace}/${name}`, provisioner);
  }
  return counted;
}

/** Volumes that are attached still, although their pods are gone. */
function attachedTo(node: string, { attachments, volumes }: Caches): ReadonlyMap<string, string> {
  const attached = new Map<string, string>();
  for (const { spec } of attachments.list("node", node)) {
    const { source } = spec as { readonly source?: { readonly persistentVolumeName?: string } };
    const volume = driverVolume(volumes.get(source?.persistentVolumeName ?? ""));
    if (volume !== undefined) attached.set(volume.id, volume.driver);
  }
  return attached;
}

function limitsOf(node: string, { driverNodes }: Caches): ReadonlyMap<string, number> {
  const { drivers = [] } = (driverNodes.get(node)?.spec ?? {}) as {
    readonly drivers?: readonly { readonly name: string; readonly allocatable?: { readonly count?: number } }[];
  };
  return new Map(
    drivers.flatMap(({ name, allocatable }) => (allocatable?.count === undefined ? [] : [[name, allocatable.count]])),
  );
}
