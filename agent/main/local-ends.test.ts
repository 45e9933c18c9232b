import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import type { StoreState } from "../store/store-file.ts";
import { type HealthSources, healthChecks } from "./local-ends.ts";

const good: RuntimeHealth = { name: "cri", healthy: true, reason: "", message: "", sinceMs: 0 };
const durable: StoreState = { kind: "durable", opening: { kind: "opened" } };

function failing(change: {
  readonly runtimes?: readonly RuntimeHealth[];
  readonly store?: StoreState;
  readonly wanted?: number;
}): Record<string, string | undefined> {
  const sources: HealthSources = {
    runtimes: new WatchSource(change.runtimes ?? [good]),
    store: new WatchSource(change.store ?? durable),
    wantedPods: () => change.wanted ?? 3,
    workers: () => 3,
  };
  const results = healthChecks(sources).map(({ name, problem }) => [name, problem()] as const);
  return Object.fromEntries(results.filter(([, why]) => why !== undefined));
}

test("a node that works fails no check", () => {
  assert.deepEqual(failing({}), {});
});

test("each part that does not work is named by its own check", () => {
  const pleg = { ...good, healthy: false, reason: "PLEGNotHealthy", message: "pleg was last seen active 3m ago" };
  const down = { ...good, name: "wasm", healthy: false, reason: "RuntimeNotReady", message: "no answer" };
  assert.deepEqual(failing({ runtimes: [pleg, down] }), {
    PLEG: "cri: pleg was last seen active 3m ago",
    runtime: "wasm: no answer",
  });
  assert.deepEqual(failing({ runtimes: [] }), { runtime: "no runtime has answered yet" });
  assert.deepEqual(failing({ store: { kind: "unwritable", reason: "disk full" } }), {
    store: "cannot be written to: disk full",
  });
  assert.deepEqual(failing({ wanted: 5 }), { syncloop: "2 wanted pods have no worker" });
});
