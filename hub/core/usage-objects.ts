import type { KubeObject } from "./kube-client/kube-client.ts";

/**
 * NodeMetrics and PodMetrics of `metrics.k8s.io/v1beta1`, made of boards' samples when they are read. A node or pod
 * without fresh figures has none, as with metrics-server.
 */
export interface UsageObjects {
  node(name: string): KubeObject | undefined;
  nodes(): Iterable<KubeObject>;
  pod(namespace: string, name: string): KubeObject | undefined;
  /** @param namespace "" for all */
  pods(namespace: string): Iterable<KubeObject>;
}

export const METRICS_GROUP = "metrics.k8s.io";
export const METRICS_VERSION = "v1beta1";
