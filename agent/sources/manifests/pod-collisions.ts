/** Finds pods of one source that collide with those of others. Pure. */
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { MAX_PODS } from "./static-pod.ts";

const nameOf = ({ pod }: DesiredPod): string => `${pod.metadata.namespace}/${pod.metadata.name}`;

/** A name has one pod; that of another source would go on, and this one wait for ever. */
export function* findCollisions(pods: readonly DesiredPod[], known: readonly DesiredPod[]): Iterable<string> {
  const others = new Map(known.flatMap((each) => [[nameOf(each), each] as const, [each.uid, each] as const]));
  for (const desired of pods) {
    const byName = others.get(nameOf(desired));
    const other = byName ?? others.get(desired.uid);
    if (other === undefined) continue;
    const field = byName === undefined ? "metadata.uid" : "metadata.name";
    const owner = other.origin === "" ? "the API server" : other.origin;
    yield `${field}: Duplicate value: pod ${nameOf(other)} is that of ${owner}`;
  }
}

export function* podLimitProblem(pods: readonly DesiredPod[]): Iterable<string> {
  if (pods.length > MAX_PODS) yield `Too many: ${pods.length}: may have at most ${MAX_PODS} pods`;
}
