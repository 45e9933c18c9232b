import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

/** As the pods write them: those of containers of every kind, and those that are volumes. */
export function* imagesOfPods(pods: Iterable<DesiredPod>): Iterable<string> {
  for (const { pod } of pods) {
    const { containers, initContainers = [], ephemeralContainers = [], volumes = [] } = pod.spec;
    for (const { image } of [...initContainers, ...containers, ...ephemeralContainers]) yield image;
    for (const { image } of volumes) if (image?.reference !== undefined) yield image.reference;
  }
}
