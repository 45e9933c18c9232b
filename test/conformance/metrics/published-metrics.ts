/**
 * The metrics that a kubelet 1.34 documents (test/instrumentation/documentation of Kubernetes v1.34.1) and that its
 * cAdvisor 0.52 shows by the kubelet's choice of figures, with those that picolet does not have, and why.
 */
import { readFileSync } from "node:fs";

export interface PublishedMetric {
  readonly path: "/metrics" | "/metrics/cadvisor" | "/metrics/resource" | "/metrics/probes";
  readonly name: string;
  /** "": the list does not say. */
  readonly type: "" | "counter" | "gauge" | "histogram";
  /** Sorted. */
  readonly labels: readonly string[];
  readonly stability: string;
}

export const PUBLISHED_METRICS = JSON.parse(
  readFileSync(new URL("published-metrics.json", import.meta.url), "utf8"),
) as readonly PublishedMetric[];

/** `gap`: picolet has the thing, and does not count it yet. */
export interface Absence {
  readonly kind: "absent" | "gap";
  readonly why: string;
}

const absent = (why: string): Absence => ({ kind: "absent", why });
const gap = (why: string): Absence => ({ kind: "gap", why });

const NO_API_SERVER = absent("the agent makes no requests to an API server: its hub does, and has metrics of its own");
const NO_RECONSTRUCTION = absent("volumes are found by their folders, not reconstructed");
const NO_REGISTRY = absent("no metric is registered, hidden or disabled: the tables are the list");
const NO_PORT = gap("users are authenticated by the hub, or on the port of the kubelet's API");
const NO_SELINUX = absent("volumes are not mounted with an SELinux context");
const OFF = absent("a kubelet has cAdvisor's load reader off, and shows 0");
const NOT_IN_CGROUPS = absent("cgroups v2 do not have it; v1 with no scheduler of this kernel");
const NO_SERVER_HARDWARE = absent("it describes memory modules and NUMA nodes of servers; a board has one");
const ON_WINDOWS = absent("only on Windows");
const OF_HUB = absent("the Node is registered, and statuses are written, by the hub");

/** By name, or by the beginning of a name that ends with `*`. */
export const ABSENT_METRICS: Readonly<Record<string, Absence>> = {
  "apiserver_delegated_*": NO_PORT,
  "authentication_*": NO_PORT,
  "authorization_*": NO_PORT,
  "container_cpu_load_*": OFF,
  container_fs_io_current: NOT_IN_CGROUPS,
  "container_fs_io_time_*": NOT_IN_CGROUPS,
  container_fs_read_seconds_total: NOT_IN_CGROUPS,
  container_fs_reads_merged_total: NOT_IN_CGROUPS,
  container_fs_sector_reads_total: NOT_IN_CGROUPS,
  container_fs_sector_writes_total: NOT_IN_CGROUPS,
  container_fs_write_seconds_total: NOT_IN_CGROUPS,
  container_fs_writes_merged_total: NOT_IN_CGROUPS,
  container_tasks_state: OFF,
  disabled_metrics_total: NO_REGISTRY,
  "force_cleaned_failed_volume_*": NO_RECONSTRUCTION,
  hidden_metrics_total: NO_REGISTRY,
  kubelet_certificate_manager_client_expiration_renew_errors: gap("the reason of a failed renewal is in the log"),
  "kubelet_certificate_manager_server_*": gap(
    "the serving certificate is the hub's, or the port's of the kubelet's API",
  ),
  kubelet_container_aligned_compute_resources_count: gap("placements are in `edgectl describe pod`"),
  "kubelet_cpu_manager_*": gap("placements are in `edgectl describe pod`"),
  "kubelet_credential_provider_plugin_*": gap("a plugin that fails is in the events of the pod"),
  "kubelet_evented_pleg_*": absent("hints of the runtime are one part of the PLEG, with relists of its own"),
  kubelet_http_inflight_requests: gap("requests are counted when they are answered"),
  kubelet_lifecycle_handler_http_fallbacks_total: absent("a hook is called by the scheme that it names"),
  "kubelet_memory_manager_*": gap("placements are in `edgectl describe pod`"),
  kubelet_node_startup_duration_seconds: OF_HUB,
  kubelet_node_startup_post_registration_duration_seconds: OF_HUB,
  kubelet_node_startup_pre_registration_duration_seconds: OF_HUB,
  kubelet_node_startup_registration_duration_seconds: OF_HUB,
  "kubelet_orphan_pod_cleaned_volumes*": gap("the sweep of orphaned folders is in the log"),
  kubelet_pleg_discard_events: absent("no event is dropped: the PLEG has no queue that could be full"),
  kubelet_pod_resources_endpoint_errors_get_allocatable: absent("the call does not fail"),
  kubelet_pod_resources_endpoint_errors_list: absent("the call does not fail"),
  kubelet_pod_start_sli_duration_seconds: gap("the time without pulls is not measured"),
  kubelet_pod_start_total_duration_seconds: gap("a board's clock and the API server's differ"),
  kubelet_pod_status_sync_duration_seconds: OF_HUB,
  kubelet_restarted_pods_total: absent("a pod that is deleted and created again with the same UID adopts what runs"),
  kubelet_server_expiration_renew_errors: gap(
    "the serving certificate is the hub's, or the port's of the kubelet's API",
  ),
  kubelet_sleep_action_terminated_early_total: gap("an early end of a sleep is in the log"),
  "kubelet_started_host_process_containers_*": ON_WINDOWS,
  "kubelet_topology_manager_*": gap("a refusal is an admission rejection with its reason"),
  kubelet_volume_metric_collection_duration_seconds: gap("walks of the disk are paced, and not timed"),
  kubernetes_build_info: absent("the agent is no build of Kubernetes; picolet_build_info has its version"),
  kubernetes_feature_enabled: absent("there are no feature gates"),
  "kubernetes_healthcheck*": gap("/healthz has the checks; picolet_node_condition has their result"),
  machine_cpu_cache_capacity_bytes: NO_SERVER_HARDWARE,
  "machine_dimm_*": NO_SERVER_HARDWARE,
  "machine_node_*": NO_SERVER_HARDWARE,
  "machine_nvm_*": NO_SERVER_HARDWARE,
  machine_thread_siblings_count: NO_SERVER_HARDWARE,
  plugin_manager_total_plugins: gap("the Node, CSINode and the log have the plugins"),
  "reconstruct_volume_*": NO_RECONSTRUCTION,
  registered_metrics_total: NO_REGISTRY,
  "rest_client_*": NO_API_SERVER,
  scrape_error: absent("deprecated since 1.29 for resource_scrape_error"),
  "volume_manager_selinux_*": NO_SELINUX,
  volume_manager_total_volumes: gap("`edgectl describe pod` has the volumes"),
  "volume_operation_total_*": absent("only a controller that provisions and deletes volumes counts them"),
  "workqueue_*": absent("a worker is poked, and reads what is wanted again: there are no queues of work"),
};

/** @returns why picolet does not have the metric; undefined: it must have it */
export function absenceOf(name: string): Absence | undefined {
  const exact = ABSENT_METRICS[name];
  if (exact !== undefined) return exact;
  const prefix = Object.keys(ABSENT_METRICS).find((key) => key.endsWith("*") && name.startsWith(key.slice(0, -1)));
  return prefix === undefined ? undefined : ABSENT_METRICS[prefix];
}
