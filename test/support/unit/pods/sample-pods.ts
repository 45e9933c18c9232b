/** Desired pods made of the few fields a test cares about. */

import type { Container, Pod, PodManifest } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

type ManifestSpec = NonNullable<PodManifest["spec"]>;
type ManifestMeta = NonNullable<PodManifest["metadata"]>;

/** A pod as `parsePod` gives it: one container `app` unless `spec` names others. @throws when it is not valid */
export function podOf(spec: ManifestSpec = {}, metadata: ManifestMeta = {}): Pod {
  const containers = spec.containers ?? [{ name: "app", image: "example/app:1" }];
  const result = parsePod({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "web", namespace: "default", ...metadata },
    spec: { ...spec, containers },
  });
  if (result.ok) return result.pod;
  throw new Error(result.problems.map(({ path, message }) => `${path}: ${message}`).join("; "));
}

export function desired(pod: Pod, uid = "11111111-2222-3333-4444-555555555555"): DesiredPod {
  return { uid: podUid(uid), source: "file", origin: "/etc/picolet/manifests/web.yaml", pod };
}

export function firstContainer(pod: DesiredPod): Container {
  const [container] = pod.pod.spec.containers;
  if (container === undefined) throw new Error("a pod without containers");
  return container;
}
