import { PicoletError } from "@picolet/protocol/errors.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../core/hub/cluster-objects.ts";
import { COMPONENT_RUNTIME_CLASS } from "../core/pods/pod-ports.ts";
import { isComponentPod } from "../core/pods/pod-runtime.ts";

/** @returns `runtimeHandler`'s result; `undefined` where it throws: the RuntimeClass of a running pod may be deleted */
export function findRuntimeHandler(desired: DesiredPod, objects: Pick<ClusterObjects, "object">): string | undefined {
  const { pod, source } = desired;
  const name = pod.spec.runtimeClassName ?? "";
  if (isComponentPod(desired)) return COMPONENT_RUNTIME_CLASS;
  if (name === "") return name;
  const runtimeClass = objects.object(objectKey("RuntimeClass", "", name));
  if (typeof runtimeClass?.handler === "string") return runtimeClass.handler;
  return source === "api" ? undefined : name;
}

/**
 * Finds the runtime's handler of the pod's RuntimeClass; "" for the default one. The class of components is the node's
 * own, even if the cluster has one of that name. A pod that does not come from a cluster may name the handler itself.
 * @throws `not_found` (retryable), worded as the kubelet does
 */
export function runtimeHandler(desired: DesiredPod, objects: Pick<ClusterObjects, "object">): string {
  const handler = findRuntimeHandler(desired, objects);
  if (handler !== undefined) return handler;
  const message = `runtimeclass.node.k8s.io ${JSON.stringify(desired.pod.spec.runtimeClassName)} not found`;
  throw new PicoletError("not_found", message, { reason: "FailedCreatePodSandBox", retryable: true });
}
