/** The metrics of a real node with containers and components, as a Prometheus gets them through a real hub. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import {
  allReady,
  componentPod,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";

const skip = containerdMissing() ?? kubectlMissing("1.32");
const LIMIT = 128 * 1024 * 1024;

let containerd: Containerd;
let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  fleet = await Fleet.start();
  node = nodeWith(containerd, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  const limits = { resources: { limits: { memory: "128Mi", cpu: "500m" } } };
  const probe = { readinessProbe: { exec: { command: ["/bin/true"] }, periodSeconds: 1 } };
  const manifest = containerPod("web") as { spec: { containers: [object] } };
  Object.assign(manifest.spec.containers[0], limits, probe);
  node.writeManifest("web.yaml", manifest);
  node.writeManifest("hello.yaml", componentPod("hello"));
  await node.waitForPods("two ready pods", allReady(2));
  await fleet.untilNodeReady("node-a");
});

after(async () => {
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, fleet, node]) if (each !== undefined) all.use(each);
  if (node !== undefined) await node.drain();
});

const scrape = (path: string): Promise<string> => fleet.kubectl(["get", "--raw", `/api/v1/nodes/node-a/proxy${path}`]);

/** @returns the values of a metric by its labels as they are written */
function series(text: string, name: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [, labels = "", value = ""] = new RegExp(`^${name}(?:\\{(.*)\\})? (\\S+)`).exec(line) ?? [];
    if (value !== "") found.set(labels, Number(value));
  }
  return found;
}

const only = (text: string, name: string, label = ""): number | undefined => {
  const found = [...series(text, name)].filter(([labels]) => labels.includes(label));
  assert.equal(found.length, 1, `${name}{${label}}: ${found.map(([labels]) => labels).join(" | ")}`);
  return found[0]?.[1];
};

for (const path of ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"]) {
  test(`${path} is what promtool reads`, { skip }, async () => {
    const { status, stderr, stdout } = spawnSync("/usr/bin/promtool", ["check", "metrics"], {
      input: await scrape(path),
    });
    // 3: advice on names and help, which are the kubelet's.
    assert.ok(status === 0 || status === 3, `${stderr}${stdout}`);
    const faults = String(stderr)
      .split("\n")
      .filter((line) => line !== "" && !isAdvice(line));
    assert.deepEqual(faults, []);
  });
}

/** promtool's style for names that Kubernetes has otherwise, and that are compared with its list. */
function isAdvice(line: string): boolean {
  return !line.startsWith("picolet_") && /(should|use base unit|no help text|non-(counter|histogram))/i.test(line);
}

test("/metrics counts what the node has done", { skip }, async () => {
  const text = await scrape("/metrics");
  assert.equal(only(text, "kubelet_node_name", 'node="node-a"'), 1);
  assert.equal(only(text, "kubelet_running_pods"), 2);
  assert.equal(only(text, "kubelet_running_containers", 'container_state="running"'), 2);
  assert.equal(only(text, "kubelet_desired_pods", 'static="true"'), 2);
  assert.equal(only(text, "kubelet_desired_pods", 'static=""'), 0);
  assert.equal(only(text, "kubelet_started_pods_total"), 2);
  assert.equal(only(text, "kubelet_started_containers_total", 'container_type="container"'), 2);
  assert.equal(only(text, "kubelet_runtime_operations_total", 'operation_type="run_podsandbox"'), 1);
  assert.equal(only(text, "kubelet_runtime_operations_duration_seconds_count", 'operation_type="run_podsandbox"'), 1);
  assert.ok((only(text, "kubelet_pod_start_duration_seconds_count") ?? 0) >= 1);
  assert.ok((only(text, "kubelet_pleg_relist_duration_seconds_count") ?? 0) >= 2);
  assert.ok((only(text, "kubelet_pod_worker_duration_seconds_count", 'operation_type="create"') ?? 0) >= 2);
  assert.ok((only(text, "kubelet_cgroup_manager_duration_seconds_count", 'operation_type="create"') ?? 0) >= 1);
  assert.ok(Math.abs((only(text, "kubelet_pleg_last_seen_seconds") ?? 0) - Date.now() / 1000) < 60);
  const ttl = only(text, "kubelet_certificate_manager_client_ttl_seconds") ?? 0;
  assert.ok(ttl > 3600 && ttl < 400 * 86_400, `${ttl} s`);
  assert.equal(only(text, "picolet_component_containers"), 1);
  assert.equal(only(text, "picolet_component_starts_total"), 1);
  assert.equal(only(text, "picolet_tunnel_connected"), 1);
  assert.ok((only(text, "picolet_tunnel_sent_bytes_total") ?? 0) > 500);
  assert.equal(only(text, "picolet_store_durable"), 1);
  assert.ok((only(text, "picolet_eviction_distance", 'eviction_signal="memory.available"') ?? 0) > 0);
  assert.equal(only(text, "picolet_node_condition", 'condition="Ready"'), 1);
  const resident = only(text, "process_resident_memory_bytes") ?? 0;
  assert.ok(resident > 20e6 && resident < 300e6, `${resident}`);
  assert.ok((only(text, "process_open_fds") ?? 0) > 10);
  const again = await scrape("/metrics");
  assert.ok((only(again, "kubelet_http_requests_total", 'path="metrics"') ?? 0) >= 2);
});

test("/metrics/cadvisor has the cgroups of pods and containers, and the machine", { skip }, async () => {
  const text = await scrape("/metrics/cadvisor");
  const web = 'namespace="default",pod="web-node-a"';
  const container = `container="app"`;
  const ofContainer = (name: string): number | undefined => {
    const found = [...series(text, name)].filter(([labels]) => labels.includes(web) && labels.includes(container));
    assert.equal(found.length, 1, `${name}: ${found.length}`);
    return found[0]?.[1];
  };
  assert.ok((ofContainer("container_cpu_usage_seconds_total") ?? 0) > 0);
  assert.ok((ofContainer("container_memory_working_set_bytes") ?? 0) > 0);
  assert.equal(ofContainer("container_spec_memory_limit_bytes"), LIMIT);
  assert.equal(ofContainer("container_spec_cpu_quota"), 50_000);
  assert.ok((ofContainer("container_processes") ?? 0) >= 1);
  assert.ok((ofContainer("container_file_descriptors") ?? 0) >= 1);
  assert.ok((ofContainer("container_threads") ?? 0) >= 1);
  assert.match(
    text,
    new RegExp(
      `container_memory_rss\\{${container},id="[^"]+",image="[^"]+busybox[^"]*",name="[0-9a-f]{64}",${web}\\}`,
    ),
  );
  const received = [...series(text, "container_network_receive_bytes_total")].map(([labels]) => labels);
  assert.ok(
    received.some((labels) => labels.includes('interface="eth0"') && labels.includes(web)),
    received.join("\n"),
  );
  assert.ok((only(text, "machine_cpu_cores") ?? 0) >= 1);
  assert.ok((only(text, "machine_memory_bytes") ?? 0) > 2 ** 28);
  assert.ok((only(text, "container_fs_limit_bytes", 'device="nodefs"') ?? 0) > 2 ** 28);
  assert.equal(only(text, "container_scrape_error"), 0);
});
