/**
 * Where the kubelet puts a static pod that names no namespace. By itself, for the parser of pods is large and seldom
 * needed.
 */
export const DEFAULT_NAMESPACE = "default";
