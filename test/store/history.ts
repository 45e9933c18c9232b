import type { RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { remoteObject, remotePod, samplePod } from "../support/unit/store/store-samples.ts";

/** The desired pods of each revision: pods come, change and go. */
export function podsOf(revision: number): readonly DesiredPod[] {
  const names = ["a", "b", "c", "d", "e"].filter((_, n) => (revision >> n) % 2 === 0);
  return names.map((name, n) => samplePod(name, { image: `example/${name}:${Math.floor(revision / (n + 2))}` }));
}

export const EPOCH: Uint8Array = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);

/** The hub's objects of each revision, and the pods that are made of them. */
export function remoteOf(revision: number): {
  readonly upserts: readonly RemoteObject[];
  readonly deletes: readonly string[];
  readonly pods: readonly DesiredPod[];
} {
  const marker = remoteObject("ConfigMap", "marker", { revision, ballast: "x".repeat(revision % 2000) });
  const pod = remotePod("remote", { image: `example/remote:${revision}` });
  const isThere = revision % 3 !== 0;
  const own = samplePod("remote", { source: "api", origin: "", image: `example/remote:${revision}` });
  return {
    upserts: isThere ? [marker, pod] : [marker],
    deletes: isThere ? [] : [pod.key],
    pods: isThere ? [own] : [],
  };
}
