/** kubectl's annotation: the container that is meant when none is named. */
export const DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container";
