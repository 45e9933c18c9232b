import assert from "node:assert/strict";
import { test } from "node:test";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import type { AgentFacts } from "../plan/node/judge-node.ts";
import { healthChecks } from "./local-ends.ts";

const good: RuntimeHealth = { name: "cri", healthy: true, reason: "", message: "", sinceMs: 0 };

function failing(change: Partial<AgentFacts>): Record<string, string | undefined> {
  const facts = { runtimes: [good], isShuttingDown: false, storeProblem: undefined, podsWithoutWorker: 0, ...change };
  const results = healthChecks(() => facts).map(({ name, problem }) => [name, problem()] as const);
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
  assert.deepEqual(failing({ storeProblem: "cannot be written to: disk full" }), {
    store: "cannot be written to: disk full",
  });
  assert.deepEqual(failing({ podsWithoutWorker: 2 }), { syncloop: "2 wanted pods have no worker" });
});
