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

/** @returns whether a runtime must be chosen for the pod. Pods of the RuntimeClass `wasm` always run as components. */
export function hasRuntimeChoice({ metadata: { annotations }, spec }: Pod): boolean {
  if (spec.runtimeClassName === COMPONENT_RUNTIME_CLASS) return false;
  return annotations?.[PREFER_ANNOTATION] !== undefined || annotations?.[UNDER_PRESSURE_ANNOTATION] !== undefined;
}

/** @returns whether it runs as components, as far as is known */
export const isComponentPod = ({ pod, runtime }: DesiredPod): boolean =>
  pod.spec.runtimeClassName === COMPONENT_RUNTIME_CLASS || runtime?.kind === "component";

/**
 * True for a pod that runs as containers and may switch to components instead of being evicted for memory. Its
 * annotations were validated.
 */
export const isSwitchable = ({ pod, runtime }: DesiredPod): boolean =>
  runtime?.kind === "container" && pod.metadata.annotations?.[UNDER_PRESSURE_ANNOTATION] === "component";
