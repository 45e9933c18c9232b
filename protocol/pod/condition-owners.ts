/**
 * Tells the owner of a pod's condition: the node, which alone writes it, or another component, whose condition the node
 * leaves as it is.
 */

/** Says which runtime was chosen for a pod that can run as components or as containers, and why. */
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

/** Set by the component that ends a pod before its time. If that is the node, the reason is `TERMINATION_BY_NODE`. */
export const DISRUPTION_TARGET = "DisruptionTarget";
const TERMINATION_BY_NODE = "TerminationByKubelet";

export const isNodeConditionType = (type: string): boolean => NODE_CONDITIONS.has(type);

export const isNodeCondition = ({ type, reason }: { readonly type: string; readonly reason?: unknown }): boolean =>
  NODE_CONDITIONS.has(type) || (type === DISRUPTION_TARGET && reason === TERMINATION_BY_NODE);
