/** Statistics of the node and its pods. `agent/stats` implements them; the kubelet's HTTP API serves them. */

export interface NodeStats {
  /**
   * The kubelet's Summary API (k8s.io/kubelet, stats/v1alpha1, `Summary`). Reads the kernel's own figures when it is
   * asked; a rate takes two looks, so that the first answer after a while takes half a second.
   */
  summary(options: { readonly onlyCpuAndMemory: boolean }, signal: AbortSignal): Promise<unknown>;
  /** The kubelet's /metrics/resource in Prometheus' text format, in pieces of whole lines. */
  resourceMetrics(signal: AbortSignal): Promise<Iterable<string>>;
}
