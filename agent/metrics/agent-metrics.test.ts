import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { PROBE_METRICS, RESOURCE_METRICS } from "./agent-metrics.ts";

const SCENE = fileURLToPath(import.meta.resolve("@picolet/test/support/unit/registries/dummy-metric/scene.ts"));
const ALL = [...RESOURCE_METRICS, ...PROBE_METRICS];

test("a metric is a line of the table", { timeout: 60_000 }, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [SCENE]);
  assert.deepEqual(stdout.split("\n").slice(0, 6), [
    "# HELP node_memory_rss_bytes Anonymous memory.",
    "# TYPE node_memory_rss_bytes gauge",
    "node_memory_rss_bytes 42 5000",
    "# HELP node_cpu_usage_seconds_total Cumulative cpu time consumed by the node in core-seconds",
    "# TYPE node_cpu_usage_seconds_total counter",
    "node_cpu_usage_seconds_total 1 5000",
  ]);
});

test("each name is Prometheus', occurs once, and says by its end what is counted", () => {
  assert.equal(new Set(ALL.map(({ name }) => name)).size, ALL.length);
  for (const { name, type, help, labels } of ALL) {
    assert.match(name, /^[a-z][a-z0-9_]*$/);
    assert.equal(name.endsWith("_total"), type === "counter", name);
    assert.ok(help.length > 0 && !help.includes("\n"), name);
    assert.deepEqual(labels, [...labels].sort(), name);
    assert.ok(
      labels.every((label) => /^[a-z][a-z0-9_]*$/.test(label) && label !== "le"),
      name,
    );
  }
});
