/** The version of every program of picolet. It equals that of package.json; a test checks it. */
export const VERSION = "0.1.0";

/** The Kubernetes whose kubelet and API server this is like: of Node objects, `/version`, and `kube-probe/1.34`. */
export const KUBERNETES_VERSION = "1.34";

/**
 * When this version was made, milliseconds since the epoch (2026-11-20): no clock that is right shows an earlier time.
 */
export const RELEASED_AT_MS = 1_795_132_800_000;
