import assert from "node:assert/strict";
import { test } from "node:test";
import { TunnelBench } from "../../test/support/tunnel-bench.ts";
import { agrees } from "../../test/support/tunnel-hub.ts";

const STATUS = { phase: "Running", conditions: [{ type: "Ready", status: "False", reason: "x".repeat(200) }] };
const READY = { ...STATUS, conditions: [{ type: "Ready", status: "True", reason: "x".repeat(200) }] };

test("what the hub wants comes to the node, and is acknowledged when it is stored", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  await bench.start();
  assert.equal(bench.tunnel.report().state, "connected");
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.deepEqual(bench.hub.acknowledgedRevisions, [bench.hub.wanted.revision]);
  bench.hub.put("db");
  await bench.pass(50);
  assert.deepEqual([...bench.disk.objects.keys()], ["Pod/default/web", "Pod/default/db"]);
  assert.deepEqual(bench.hub.acknowledgedRevisions, [2, 3]);
});

test("a reconnect with nothing changed takes a hello and a welcome", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  bench.node.putStatus("web", STATUS);
  await bench.start();
  await bench.pass(1000);
  bench.hub.received.length = 0;
  bench.network.cut();
  await bench.pass(5000);
  assert.equal(bench.tunnel.report().state, "connected");
  assert.deepEqual(bench.hub.received, ["hello"]);
  const [connection] = bench.network.connections;
  assert.ok((connection?.bytesSent ?? 0) + (connection?.bytesReceived ?? 0) <= 150);
  assert.equal(bench.disk.applied.length, 1);
});

test("a status goes up whole, then as what changed", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.node.putStatus("web", STATUS);
  await bench.pass(1000);
  const [connection] = bench.network.connections;
  const before = connection?.bytesSent ?? 0;
  bench.node.putStatus("web", READY);
  await bench.pass(1000);
  assert.deepEqual(bench.hub.bodies, ["web full", "web delta"]);
  assert.deepEqual(bench.hub.statuses.get("uid-web"), READY);
  assert.equal(bench.disk.statuses.size, 0);
  assert.ok((connection?.bytesSent ?? 0) - before < 100, `${(connection?.bytesSent ?? 0) - before} bytes`);
});
