/** By itself: the agent needs it also while it has no component, and nothing else of grants. */
export const ANNOTATION_PREFIX = "wasm.picolet.io/";
