import assert from "node:assert/strict";
import { test } from "node:test";
import { PROBE_METRICS, RESOURCE_METRICS } from "@picolet/agent/metrics/agent-metrics.ts";
import { CADVISOR_METRICS } from "@picolet/agent/metrics/cadvisor-metrics.ts";
import { KUBELET_METRICS } from "@picolet/agent/metrics/kubelet-metrics.ts";
import type { Metric } from "@picolet/protocol/metrics/metrics.ts";
import { ABSENT_METRICS, absenceOf, PUBLISHED_METRICS, type PublishedMetric } from "./published-metrics.ts";

const TABLES: Readonly<Record<PublishedMetric["path"], readonly Pick<Metric<never>, "name" | "type" | "labels">[]>> = {
  "/metrics": KUBELET_METRICS,
  "/metrics/cadvisor": CADVISOR_METRICS,
  "/metrics/resource": RESOURCE_METRICS,
  "/metrics/probes": PROBE_METRICS,
};

for (const [path, table] of Object.entries(TABLES)) {
  test(`${path}: each published metric is ours with its type and labels, or absent for a reason`, () => {
    const problems: string[] = [];
    for (const published of PUBLISHED_METRICS.filter((each) => each.path === path)) {
      const { name, type, labels } = published;
      const own = table.find((each) => each.name === name);
      const absence = absenceOf(name);
      if (own === undefined && absence === undefined) problems.push(`${name} is missing, without a reason`);
      if (own !== undefined && absence !== undefined) problems.push(`${name} is there, with a reason why it is not`);
      if (own === undefined) continue;
      if (type !== "" && own.type !== type) problems.push(`${name} is a ${own.type}, not a ${type}`);
      if (own.labels.toSorted().join() !== labels.join()) problems.push(`${name} has the labels ${own.labels.join()}`);
    }
    assert.deepEqual(problems, []);
  });

  test(`${path}: names are there once, and are a kubelet's, a process' or begin with picolet_`, () => {
    const names = table.map(({ name }) => name);
    assert.equal(new Set(names).size, names.length);
    const published = new Set(PUBLISHED_METRICS.filter((each) => each.path === path).map(({ name }) => name));
    // KEP-2400's, documented since.
    const known = (name: string): boolean => published.has(name) || name === "container_swap_limit_bytes";
    assert.deepEqual(
      names.filter((name) => !known(name) && !/^(picolet|process)_/.test(name)),
      [],
    );
  });
}

test("each reason is for a published metric", () => {
  const names = PUBLISHED_METRICS.map(({ name }) => name);
  const isUsed = (key: string): boolean =>
    names.some((name) => (key.endsWith("*") ? name.startsWith(key.slice(0, -1)) : name === key));
  assert.deepEqual(
    Object.keys(ABSENT_METRICS).filter((key) => !isUsed(key)),
    [],
  );
});
