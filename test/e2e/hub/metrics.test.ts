/** What a hub shows of itself and its boards: kubectl top, a real Prometheus, and a store that is sent everything. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { NODES, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { KUBECTL_VERSIONS } from "@picolet/scripts/test/install-kubectl.ts";
import { parse } from "yaml";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { componentPod, edgectl, HELLO_COMPONENT, HELLO_IMAGE, nodeWith } from "../../support/agent/node-fixtures.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { alertQueries, dashboardQueries, MONITORING } from "../../support/hub/monitoring.ts";
import { metricFaults, Prometheus, prometheusMissing, ScrapeGate } from "../../support/hub/prometheus.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { TimeSeriesStore } from "../../support/unit/tunnel/time-series-store.ts";

const skip = KUBECTL_VERSIONS.map(kubectlMissing).find((each) => each !== false) ?? prometheusMissing();
const POD = "greenhouse";
/** No session has ended, none was refused, and no stream failed. */
const EMPTY: readonly string[] = [
  "fleet.json: Sessions begun and ended",
  "tunnel.json: Ends and refusals of sessions",
  "tunnel.json: Ends and refusals of sessions",
  "tunnel.json: Streams that could not be opened",
];

let store: TimeSeriesStore;
let fleet: Fleet;
let admin: FleetAdmin;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  store = await TimeSeriesStore.start();
  fleet = await Fleet.start(["--metrics-address=127.0.0.1:0", "--samples-interval=10s", `--metrics-otlp=${store.url}`]);
  node = nodeWith(undefined, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  admin = await FleetAdmin.of(fleet);
  await admin.untilCondition("node-a", "Ready", "True");
  const { metadata, ...pod } = componentPod(POD) as { readonly metadata: object };
  await admin.create(PODS, { ...pod, metadata: { ...metadata, labels: { app: "greenhouse" } } });
  await admin.untilPod(POD, "ready", isReady);
  // Two samples of it: the hub has an average.
  await store.until(() => timesOf("container_cpu_usage_seconds_total").size >= 2);
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [store, fleet, node, admin]) if (each !== undefined) all.use(each);
  all.defer(() => admin?.clear());
});

/** Times of the points of a metric of the pod's that the store has. */
const timesOf = (metric: string): ReadonlySet<bigint> =>
  new Set(
    store.points
      .filter(({ name, resource }) => name === metric && resource["k8s.pod.name"] === POD)
      .map(({ timeNs }) => timeNs),
  );

const scrape = async (path: string, accept = "*/*"): Promise<string> => {
  const response = await fetch(`${fleet.ready.metrics}${path}`, { headers: { accept } });
  assert.equal(response.status, 200, path);
  return await response.text();
};

for (const version of KUBECTL_VERSIONS) {
  test(`kubectl ${version} top shows nodes, pods and containers`, { skip }, async () => {
    const nodes = await fleet.kubectl(["top", "nodes"], { version });
    assert.match(nodes, /^NAME +CPU\(cores\) +CPU\S* +MEMORY\(bytes\) +MEMORY\S*\s*\nnode-a +\d+m +\d+% +\d+Mi +\d+%/);
    const pods = await fleet.kubectl(["top", "pods", "-l", "app=greenhouse", "--containers"], { version });
    assert.match(pods, /\ngreenhouse +app +\d+m +[1-9]\d*Mi/);
    const others = await fleet.tryKubectl(["top", "pods", "-l", "app=other"], { version });
    assert.match(others.stdout + others.stderr, /No resources found|Metrics not available/i);
    const one = await fleet.kubectl(["get", "pods.metrics.k8s.io", POD, "-o", "wide"], { version });
    assert.match(one, /NAME +CPU +MEMORY +WINDOW\ngreenhouse +\d+n +\d+Ki +\d/);
  });
}

test("metrics.k8s.io follows the rights of its caller", { skip }, async () => {
  const viewer = ["--as=eve", "--as-group=system:authenticated"];
  const raw = ["get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"];
  assert.match((await fleet.tryKubectl([...raw, ...viewer])).stderr, /Forbidden|forbidden/);
  await fleet.kubectl(["create", "rolebinding", "eve", "--clusterrole=view", "--user=eve"]);
  const list = JSON.parse(await fleet.kubectl([...raw, ...viewer])) as { readonly items: readonly object[] };
  assert.equal(list.items.length, 1);
  assert.match(
    (await fleet.tryKubectl(["get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes", ...viewer])).stderr,
    /orbidden/,
  );
});

test("what scrapers read is well-formed, in both formats", { skip }, async () => {
  const own = await scrape("/metrics");
  assert.equal(await metricFaults(own), "");
  for (const [name, value] of [
    ['picolet_hub_sessions{state="live"}', "1"],
    ['picolet_hub_boards{state="ready"}', "1"],
    ['picolet_hub_certificate_claims_total{claim="token",result="granted"}', "[1-9]"],
    ["picolet_hub_sampled_boards", "1"],
    ['picolet_hub_tunnel_bytes_total{direction="received",kind="statuses"}', "[1-9]"],
    ['picolet_hub_api_calls_total{verb="patch",result="ok"}', "[1-9]"],
  ] as const)
    assert.match(own, new RegExp(`^${name.replaceAll(/[{}]/g, "\\$&")} ${value}`, "m"));
  const boards = await scrape("/federate?match[]={__name__=~%22container_.*%22}&node=node-a");
  assert.equal(await metricFaults(boards), "");
  assert.match(
    boards,
    /^container_memory_working_set_bytes\{container="app",namespace="default",node="node-a",pod="greenhouse"\} \d+ \d{13}$/m,
  );
  assert.doesNotMatch(boards, /^node_/m);
  assert.match(await scrape("/federate", "application/openmetrics-text;version=1.0.0"), /# EOF\n$/);
});

test("a scraper of the kubelet endpoint is answered from samples, with the metrics of the board itself", {
  skip,
}, async () => {
  const path = "/api/v1/nodes/node-a/proxy/metrics/resource";
  const opened = async (): Promise<string> =>
    /^picolet_hub_stream_open_duration_seconds_count\{kind="kubelet"\} (\d+)$/m.exec(await scrape("/metrics"))?.[1] ??
    "0";
  const series = (text: string): string[] =>
    text
      .split("\n")
      .filter((line) => /^(?:node|pod|container)_(?:cpu|memory)/.test(line))
      .map((line) => line.slice(0, line.search(/ \d/)))
      .sort();
  const own = await fleet.kubectl(["get", "--raw", path]);
  const before = await opened();
  const pushed = await fleet.kubectl(["get", "--raw", path]);
  assert.equal(await opened(), before);
  assert.deepEqual(series(pushed), series(own));
  assert.equal(await metricFaults(pushed), "");
});

test("Prometheus answers each query of the dashboards and alerts, most with data", { skip }, async () => {
  await using gate = await ScrapeGate.start(fleet.ready.metrics);
  const config = parse(readFileSync(`${MONITORING}/prometheus.yaml`, "utf8")) as {
    readonly scrape_configs: readonly object[];
  };
  const scraped = config.scrape_configs.map((each) => ({ ...each, static_configs: [{ targets: [gate.address] }] }));
  await using prometheus = await Prometheus.start({
    global: { scrape_interval: "1s", scrape_timeout: "1s" },
    scrape_configs: scraped,
  });
  await gate.stored("/metrics", "/federate");
  // A rate needs another sample of the board.
  const last = Math.max(...[...timesOf("container_cpu_usage_seconds_total")].map(Number));
  await store.until(() => [...timesOf("container_cpu_usage_seconds_total")].some((at) => Number(at) > last));
  await gate.stored("/metrics", "/federate");
  const empty: string[] = [];
  for (const { place, query } of dashboardQueries({ node: "node-a", nodes: ".*", instances: ".*" })) {
    if ((await prometheus.query(query)).length === 0) empty.push(place);
  }
  assert.deepEqual(empty, EMPTY);
  for (const { query } of alertQueries()) await prometheus.query(query);
  const [up, ...more] = await prometheus.query('node_memory_working_set_bytes{node="node-a"}');
  assert.deepEqual(more, []);
  assert.equal(up?.metric.job, "picolet-boards");
  assert.ok(Number(up?.value[1]) > 1024 * 1024);
});

test("a time-series store gets every sample once, with its own time and the beginning of each counter", {
  skip,
}, async () => {
  assert.deepEqual(store.problems, []);
  const points = store.points.filter(({ name }) => name === "container_cpu_usage_seconds_total");
  const keys = points.map(({ resource, timeNs }) => `${JSON.stringify(resource)} ${timeNs}`);
  assert.equal(new Set(keys).size, keys.length);
  for (const { resource, sinceNs = 0n, timeNs } of points) {
    assert.equal(resource["k8s.node.name"], "node-a");
    assert.equal(resource["k8s.container.name"], "app");
    assert.ok(sinceNs > 0n && sinceNs <= timeNs);
  }
  const own = store.points.find(({ name }) => name === "node_memory_working_set_bytes");
  assert.deepEqual({ ...own?.resource }, { "k8s.node.name": "node-a" });
});

test("a Node that is deleted takes its figures with it", { skip }, async () => {
  await node.stop();
  await admin.delete(PODS, POD, 0);
  await admin.delete(NODES, "node-a");
  assert.equal(await scrape("/federate?match[]=node_cpu_usage_seconds_total"), "");
  assert.match((await fleet.tryKubectl(["top", "node", "node-a"])).stderr, /NotFound|not found/i);
});
