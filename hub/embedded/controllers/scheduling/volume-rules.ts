/** Constraints of a pod's volumes on its node. */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { NodeObject } from "../../api/typed-objects.ts";
import type { ObjectCache } from "../object-cache.ts";
import { claimsOf, volumesOf } from "../volumes/pod-claims.ts";
import {
  bestVolume,
  type Claim,
  classOf,
  isReachableFrom,
  SELECTED_NODE,
  type StorageClass,
  type Volume,
  waitsForConsumer,
} from "../volumes/volume-objects.ts";
import type { PodNeeds } from "./node-info.ts";
import type { ScheduleInput } from "./schedule.ts";

export interface VolumeRules extends Pick<ScheduleInput, "obstacle" | "nodeProblem"> {
  /** Claims that wait for the node of their first pod to be chosen. */
  readonly unbound: readonly Claim[];
}

interface Caches {
  readonly claims: ObjectCache;
  readonly volumes: ObjectCache;
  readonly classes: ObjectCache;
}

const obstructed = (obstacle: string): VolumeRules => ({ obstacle, unbound: [] });

/**
 * A pod waits until its claims are bound, unless they wait for it, and goes where its volumes are. With a claim for one
 * pod alone it waits for the pod that has it.
 * @param placed the pods of all nodes
 */
export function volumeRules(pod: Pod, { claims, volumes, classes }: Caches, placed: Iterable<PodNeeds>): VolumeRules {
  const bound: Volume[] = [];
  const unbound: Claim[] = [];
  const exclusive = new Set<string>();
  for (const name of claimsOf(pod)) {
    const claim = claims.find(pod.metadata.namespace, name) as Claim | undefined;
    if (claim === undefined) return obstructed(missing(pod, name));
    if (claim.metadata.deletionTimestamp !== undefined) {
      return obstructed(`persistentvolumeclaim "${name}" is being deleted`);
    }
    if (claim.spec?.accessModes?.includes("ReadWriteOncePod") === true) exclusive.add(name);
    const volumeName = claim.spec?.volumeName ?? "";
    if (volumeName === "") {
      const waits = waitsForConsumer(classes.get(classOf(claim)) as StorageClass | undefined);
      if (!waits) return obstructed("pod has unbound immediate PersistentVolumeClaims");
      unbound.push(claim);
      continue;
    }
    const volume = volumes.get(volumeName) as Volume | undefined;
    if (volume === undefined) return obstructed(`persistentvolume "${volumeName}" not found`);
    bound.push(volume);
  }
  if (bound.length + unbound.length === 0) return { unbound };
  if (isTaken(exclusive, pod.metadata.namespace, placed)) return { unbound, nodeProblem: () => TAKEN };
  const all = unbound.length === 0 ? [] : (volumes.list() as readonly Volume[]);
  return { unbound, nodeProblem: (node) => problemOf(node, bound, unbound, all) };
}

/** As of kube-scheduler, which finds every node at fault. */
const TAKEN = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

function isTaken(names: ReadonlySet<string>, namespace: string, placed: Iterable<PodNeeds>): boolean {
  if (names.size === 0) return false;
  for (const { pod } of placed)
    if (pod.metadata.namespace === namespace && claimsOf(pod).some((name) => names.has(name))) return true;
  return false;
}

function missing(pod: Pod, claim: string): string {
  const isEphemeral = !volumesOf(pod).some((volume) => volume.persistentVolumeClaim?.claimName === claim);
  return isEphemeral
    ? `waiting for ephemeral volume controller to create the persistentvolumeclaim "${claim}"`
    : `persistentvolumeclaim "${claim}" not found`;
}

function problemOf(
  node: NodeObject,
  bound: readonly Volume[],
  unbound: readonly Claim[],
  volumes: readonly Volume[],
): string | undefined {
  if (!bound.every((volume) => isReachableFrom(volume, node)))
    return "node(s) didn't match PersistentVolume's node affinity";
  const taken = new Set<Volume>();
  for (const claim of unbound) {
    const selected = claim.metadata.annotations?.[SELECTED_NODE] ?? node.metadata.name;
    const volume = bestVolume(claim, volumes, (each) => !taken.has(each) && isReachableFrom(each, node));
    if (volume === undefined || selected !== node.metadata.name) {
      return "node(s) didn't find available persistent volumes to bind";
    }
    taken.add(volume);
  }
  return undefined;
}
