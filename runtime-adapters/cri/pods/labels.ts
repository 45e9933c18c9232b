import { KIBIBYTE } from "@picolet/protocol/units.ts";

/**
 * Labels and annotations on sandboxes and containers: the kubelet's own, so that crictl and log collectors find what
 * they know, and ours.
 */
export const LABEL = {
  podName: "io.kubernetes.pod.name",
  podNamespace: "io.kubernetes.pod.namespace",
  podUid: "io.kubernetes.pod.uid",
  containerName: "io.kubernetes.container.name",
  /** Ours: which agent a sandbox or container belongs to. What does not carry our own value is not ours to touch. */
  owner: "picolet.io/owner",
} as const;

export const ANNOTATION = {
  containerHash: "io.kubernetes.container.hash",
  containerRestartCount: "io.kubernetes.container.restartCount",
  containerTerminationMessagePath: "io.kubernetes.container.terminationMessagePath",
  containerTerminationMessagePolicy: "io.kubernetes.container.terminationMessagePolicy",
  containerPorts: "io.kubernetes.container.ports",
  containerPreStopHandler: "io.kubernetes.container.preStopHandler",
  podTerminationGracePeriod: "io.kubernetes.pod.terminationGracePeriod",
  podDeletionGracePeriod: "io.kubernetes.pod.deletionGracePeriod",
  configSource: "kubernetes.io/config.source",
  /** Ours, on a container: how long to wait after its end before the next run, in milliseconds. */
  backoffMs: "picolet.io/backoff-ms",
  /** Ours, on a container: the image as the pod names it; containerd gives back the name it knows it by. */
  image: "picolet.io/image",
  /** Ours, on a container: the CPU and memory that it was made with, as in a pod's spec. */
  resources: "picolet.io/resources",
  /** Ours, on a container: `lifecycle.stopSignal`, for runtimes that do not know it. */
  stopSignal: "picolet.io/stop-signal",
  /** Ours, on a sandbox: a DesiredPod as JSON. Missing when it is longer than MAX_MANIFEST_BYTES. */
  manifest: "picolet.io/manifest",
  /** Ours, on a sandbox: its SandboxLaunch as JSON, for the containers that are started in it later. */
  launch: "picolet.io/sandbox",
} as const;

/** containerd gives the annotations of every sandbox with every list: 50 of these would be 3 MiB a relist. */
export const MAX_MANIFEST_BYTES = 64 * KIBIBYTE;
