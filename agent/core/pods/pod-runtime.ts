/**
 * Pods that could be run as components or as containers: who may choose, and what is known of each without a choice.
 */
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { COMPONENT_RUNTIME_CLASS } from "./pod-ports.ts";

/** `component` or `container`: what is run where every image of the pod has it. */
export const PREFER_ANNOTATION = "wasm.picolet.io/prefer";
/** `component`: where memory runs short the pod goes on as components, instead of being evicted. */
export const UNDER_PRESSURE_ANNOTATION = "wasm.picolet.io/under-pressure";

/** Whether anything has to be chosen for it. One of the RuntimeClass `wasm` is a component pod, whatever it prefers. */
export function hasRuntimeChoice({ metadata: { annotations }, spec }: Pod): boolean {
  if (spec.runtimeClassName === COMPONENT_RUNTIME_CLASS) return false;
  return annotations?.[PREFER_ANNOTATION] !== undefined || annotations?.[UNDER_PRESSURE_ANNOTATION] !== undefined;
}

/** Whether it is run as components, as far as is known. */
export const isComponentPod = ({ pod, runtime }: DesiredPod): boolean =>
  pod.spec.runtimeClassName === COMPONENT_RUNTIME_CLASS || runtime?.kind === "component";

/**
 * Runs as containers, and is to go on as components where it would have to go for memory. Its annotations have been
 * looked at.
 */
export const isSwitchable = ({ pod, runtime }: DesiredPod): boolean =>
  runtime?.kind === "container" && pod.metadata.annotations?.[UNDER_PRESSURE_ANNOTATION] === "component";
