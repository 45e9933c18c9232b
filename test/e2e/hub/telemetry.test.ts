/**
 * A component's telemetry through a real agent and a real hub into time-series stores that read strictly what they are
 * sent.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { TimeSeriesStore } from "../../support/unit/tunnel/time-series-store.ts";
import { testComponent } from "../../support/wasm/components.ts";

const skip = kubectlMissing("1.32");
const IMAGE = "picolet.example/telemetry:1";
const POINTS = 2000;
const TELEMETRY = "/api/v1/nodes/node-a/proxy/telemetry";

let influx: TimeSeriesStore;
let otlp: TimeSeriesStore;
let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  influx = await TimeSeriesStore.start();
  otlp = await TimeSeriesStore.start();
  fleet = await Fleet.start([`--telemetry-influx=${influx.url}/write?bucket=fleet`, `--telemetry-otlp=${otlp.url}`]);
  const config = { nodeName: "node-a", hub: await fleet.joinConfig(), telemetry: { flushInterval: "1s" } };
  node = nodeWith(undefined, { config });
  await node.start();
  edgectl(node, "image", "import", await testComponent("telemetry.c"), "--name", IMAGE);
  await fleet.untilNodeReady("node-a");
});

after(async () => {
  if (skip !== false) return;
  await fleet?.tryKubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
  await using all = new AsyncDisposableStack();
  for (const each of [influx, otlp, fleet, node]) if (each !== undefined) all.use(each);
});

const podOf = (name: string, args: readonly string[], interfaces = "telemetry") => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    ...{ name, labels: { app: "greenhouse" } },
    ...(interfaces === "" ? {} : { annotations: { "wasm.picolet.io/interfaces": interfaces } }),
  },
  spec: {
    ...{ nodeName: "node-a", runtimeClassName: "wasm", terminationGracePeriodSeconds: 1 },
    containers: [{ name: "sensor", image: IMAGE, imagePullPolicy: "IfNotPresent", args }],
  },
});

/** Until the component has said so in its log. */
async function untilTold(pod: string): Promise<void> {
  const follow = spawn("dist/board/bin/edgectl", ["--socket", node.socketPath, "logs", "-f", pod]);
  try {
    let text = "";
    for await (const piece of follow.stdout) {
      text += String(piece);
      assert.doesNotMatch(text, /emit failed/);
      if (text.includes("told")) return;
    }
    assert.fail(`the log has ended:\n${text}\n${node.log.slice(-4000)}`);
  } finally {
    follow.kill();
  }
}

const valuesOf = (pod: string): unknown[] =>
  influx.lines
    .filter(({ tags, measurement }) => tags.pod === pod && measurement === "count")
    .map((each) => each.fields.value);

test("what a component wrote while the hub was away and the agent was killed arrives once, wherever it is sent on", {
  skip,
}, async () => {
  await fleet.apply(podOf("sensor", ["0", String(POINTS), "20", "50"]));
  await influx.until(() => valuesOf("sensor").length > 0);
  await fleet.endHub("SIGKILL");
  await node.kill();
  await node.start();
  // It goes on writing, and says so in its log; an event of it is on the disk before it goes on.
  await untilTold("sensor");
  await node.kill();
  await node.start();
  await fleet.startHub();
  await influx.until(
    () => new Set(valuesOf("sensor")).size === POINTS && influx.lines.some((line) => line.measurement === "event"),
  );
  const wanted = Array.from({ length: POINTS }, (_, at) => at);
  const raw = await fleet.kubectl(["get", "--raw", `${TELEMETRY}?pod=sensor&kind=point`]);
  const kept = raw
    .trim()
    .split("\n")
    .map((each) => JSON.parse(each) as { fields: { value: number } });
  assert.deepEqual(
    kept.map(({ fields }) => fields.value).toSorted((x, y) => x - y),
    wanted,
  );
  // The killed hub may not have known that it had sent some on. A time-series store keeps one of those that are the
  // same.
  const series = new Map(influx.lines.map((each) => [`${JSON.stringify(each.tags)} ${each.timeNs}`, each]));
  assert.equal(series.size, POINTS + 1);
  const [line] = influx.lines;
  assert.deepEqual(
    { ...line?.tags },
    { bed: "3", container: "sensor", label_app: "greenhouse", namespace: "default", node: "node-a", pod: "sensor" },
  );
  await otlp.until(() => otlp.points.length >= POINTS && otlp.logs.length > 0);
  assert.deepEqual(
    otlp.logs.map(({ name, body, severity }) => [name, body, severity]),
    [["done", 'all "written"', 13]],
  );
  assert.deepEqual([...influx.problems, ...otlp.problems], []);
  const status = JSON.parse(edgectl(node, "status", "-o", "json")) as { telemetry: Record<string, unknown> };
  assert.equal(status.telemetry.dropped, 0);
});

test("the hub serves it to who may look at the node", { skip }, async () => {
  const path = `${TELEMETRY}?namespace=default&pod=sensor`;
  const text = await fleet.kubectl(["get", "--raw", `${path}&kind=event`]);
  const [event] = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.deepEqual(
    [event?.name, event?.severity, event?.message, event?.node],
    ["done", "warning", 'all "written"', "node-a"],
  );
  const lines = await fleet.kubectl(["get", "--raw", `${path}&kind=point&format=line&limit=10`]);
  assert.equal(lines.trim().split("\n").length, 10);
  assert.match(lines, /^count,bed=3,container=sensor,.* value=\d+i \d{19}$/m);
  const wrong = await fleet.tryKubectl(["get", "--raw", `${path}&since=yesterday`]);
  assert.match(wrong.stderr, /BadRequest/);
  const nobody = await fleet.tryKubectl(["get", "--raw", path, "--as=somebody"]);
  assert.match(nobody.stderr, /Forbidden/);
});

test("a component whose pod does not name it gets none", { skip }, async () => {
  await fleet.apply(podOf("nosy", ["0", "1", "1", "0"], ""));
  await fleet.seen(
    ["get", "events", "--watch", "--field-selector=involvedObject.name=nosy", "-o", 'jsonpath={.message}{"\\n"}'],
    (printed) => printed.includes("name telemetry in the pod's annotation wasm.picolet.io/interfaces"),
  );
});
