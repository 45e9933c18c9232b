/** Statistics of the node and its pods. `agent/stats` implements them; the kubelet's HTTP API serves them. */
import type { MetricsFormat } from "@picolet/protocol/metrics/metrics.ts";

export interface NodeStats {
  /**
   * The kubelet's Summary API (k8s.io/kubelet, stats/v1alpha1, `Summary`). Reads the kernel's own figures when it is
   * asked; a rate takes two looks, so that the first answer after a while takes half a second.
   */
  summary(options: { readonly onlyCpuAndMemory: boolean }, signal: AbortSignal): Promise<unknown>;
  /** The kubelet's /metrics/resource, in pieces of whole lines. @param format default: Prometheus' */
  resourceMetrics(signal: AbortSignal, format?: MetricsFormat): Promise<Iterable<string>>;
}
