/**
 * Whose a pod's condition is: the node's, which alone writes it, or somebody else's, which the node leaves as it is.
 */

/** Of a pod that could be run as components or as containers: which of both, and why. */
export const RUNTIME_CONDITION = "picolet.io/Runtime";

/**
 * Kubernetes' `PodConditionByKubelet`, without PodScheduled: that is the scheduler's, of a static pod its mirror's. And
 * our own.
 */
const NODE_CONDITIONS: ReadonlySet<string> = new Set([
  "PodReadyToStartContainers",
  "Initialized",
  "ContainersReady",
  "Ready",
  "PodResizePending",
  "PodResizeInProgress",
  "AllContainersRestarting",
  RUNTIME_CONDITION,
]);

/** Said by whoever ends a pod before its time, of which the node is one: then the reason is this. */
export const DISRUPTION_TARGET = "DisruptionTarget";
const TERMINATION_BY_NODE = "TerminationByKubelet";

export const isNodeConditionType = (type: string): boolean => NODE_CONDITIONS.has(type);

export const isNodeCondition = ({ type, reason }: { readonly type: string; readonly reason?: unknown }): boolean =>
  NODE_CONDITIONS.has(type) || (type === DISRUPTION_TARGET && reason === TERMINATION_BY_NODE);
