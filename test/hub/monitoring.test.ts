/** hub/deploy/monitoring: promtool's judgement of rules, configuration and queries, and that they name what there is. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { FLEET_METRICS } from "@picolet/hub/metrics/fleet-metrics.ts";
import { HUB_METRICS } from "@picolet/hub/metrics/hub-metrics.ts";
import { stringify } from "yaml";
import { alertQueries, dashboardQueries, MONITORING, metricsIn, variableQueries } from "../support/hub/monitoring.ts";
import { prometheusMissing, promtool } from "../support/hub/prometheus.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip = prometheusMissing();
const VALUES = { node: "a", nodes: ".*", instances: ".*" };

test("Prometheus takes the configuration and the rules", { skip }, async () => {
  assert.match(await promtool("check", "config", `${MONITORING}/prometheus.yaml`), /11 rules found/);
});

test("each alert is raised when it must be, and not before", { skip }, async () => {
  assert.match(await promtool("test", "rules", "test/hub/monitoring-alerts.yaml"), /SUCCESS/);
});

test("each query of the dashboards is PromQL", { skip }, async () => {
  using folder = new TempFolder();
  const queries = dashboardQueries(VALUES);
  const rules = queries.map(({ query }, index) => ({ record: `query:${index}`, expr: query }));
  const path = `${folder.path}/rules.yaml`;
  writeFileSync(path, stringify({ groups: [{ name: "dashboards", rules }] }));
  assert.match(await promtool("check", "rules", path), new RegExp(`${queries.length} rules found`));
  for (const { place, query } of queries) assert.doesNotMatch(query, /\$/, place);
});

test("queries name only metrics that exist, and each metric of a board is shown", () => {
  const all = [...HUB_METRICS, ...FLEET_METRICS];
  const names = new Set(
    all.flatMap(({ name, type }) => (type === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : name)),
  );
  const used = new Set<string>();
  for (const { place, query } of [...dashboardQueries(VALUES), ...alertQueries(), ...variableQueries()]) {
    const found = metricsIn(query.replace(/^label_values\((.*), \w+\)$/, "$1"));
    assert.ok(found.length > 0 || query.startsWith("up{"), `${place} names no metric: ${query}`);
    for (const name of found) {
      assert.ok(names.has(name), `${place} names ${name}, which is no metric`);
      used.add(name);
    }
  }
  const shown = (name: string): boolean => used.has(name) || used.has(`${name}_bucket`);
  assert.deepEqual(
    all.filter(({ name }) => name.startsWith("picolet_") && !shown(name)).map(({ name }) => name),
    [],
  );
});
