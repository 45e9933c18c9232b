import assert from "node:assert/strict";
import { test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { RuntimeHealth } from "../../core/node/runtime-health.ts";
import {
  checkProblem,
  HEALTH_CHECKS,
  isFault,
  isPodWell,
  judgeNode,
  NODE_STATES,
  type NodeFacts,
  type NodeState,
  notReadyReasons,
  type PodFacts,
  summaryOf,
} from "./judge-node.ts";

const NOW_MS = Date.parse("2026-11-20T12:00:00Z");
const DAY_MS = 86_400_000;
const runtime = (reason: string, message: string): RuntimeHealth => ({
  ...{ name: "cri", healthy: reason === "", reason, message, sinceMs: 0 },
});
const condition = (type: string, status: string) => ({ type, status, reason: "Why", message: "what" });
const pod = (ready: boolean, phase = "Running", change: Partial<PodFacts> = {}) => ({
  isWell: isPodWell({ ready, phase, isTerminating: false, isFailing: false, ...change }),
});

const WELL: NodeFacts = {
  runtimes: [runtime("", "")],
  isShuttingDown: false,
  storeProblem: undefined,
  podsWithoutWorker: 0,
  conditions: [condition("Ready", "True"), condition("MemoryPressure", "False")],
  tunnel: { state: "connected", certificate: { notBeforeMs: NOW_MS - DAY_MS, notAfterMs: NOW_MS + DAY_MS } },
  nowMs: NOW_MS,
  isMachineClockRight: true,
  kernelPanic: undefined,
  memory: { anonBytes: 20 * MEBIBYTE, budgetBytes: 64 * MEBIBYTE },
  agentFlash: { bytes: MEBIBYTE, budgetBytes: 5 * MEBIBYTE },
  pods: [pod(true), pod(false, "Succeeded"), pod(false, "Running", { isTerminating: true })],
  manifestProblems: [],
};

interface Row {
  readonly facts: Partial<NodeFacts>;
  /** In the condition Ready. */
  readonly notReady?: string;
  readonly check?: readonly [(typeof HEALTH_CHECKS)[number], string];
  /** In the headline; missing: it degrades nothing. */
  readonly summary?: string;
}

/** The expected Ready, /healthz and headline of each state. */
const ROWS: Readonly<Record<NodeState, Row>> = {
  runtimeUnasked: {
    facts: { runtimes: [] },
    notReady: "container runtime status check may not have completed yet",
    check: ["runtime", "no runtime has answered yet"],
    summary: "the node is not ready",
  },
  runtimeNotReady: {
    facts: { runtimes: [runtime("RuntimeNotReady", "no socket")] },
    notReady: "RuntimeNotReady: cri: no socket",
    check: ["runtime", "cri: no socket"],
    summary: "the node is not ready",
  },
  runtimeDown: {
    facts: { runtimes: [runtime("Other", "gone")] },
    notReady: "container runtime is down: cri: gone",
    check: ["runtime", "cri: gone"],
    summary: "the node is not ready",
  },
  runtimeHangs: {
    facts: { runtimes: [runtime("PLEGNotHealthy", "last seen 3m ago")] },
    notReady: "PLEG is not healthy: cri: last seen 3m ago",
    check: ["PLEG", "cri: last seen 3m ago"],
    summary: "the node is not ready",
  },
  shuttingDown: {
    facts: { isShuttingDown: true },
    notReady: "node is shutting down",
    summary: "the node is not ready",
  },
  storeUnwritable: {
    facts: { storeProblem: "cannot be written to: disk full" },
    check: ["store", "cannot be written to: disk full"],
    summary: "its store does not keep anything",
  },
  podsWithoutWorker: {
    facts: { podsWithoutWorker: 2 },
    check: ["syncloop", "2 wanted pods have no worker"],
    summary: "a part of the agent hangs",
  },
  condition: { facts: { conditions: [condition("DiskPressure", "True")] }, summary: "it is short of disk space" },
  memoryOverBudget: {
    facts: { memory: { anonBytes: 65 * MEBIBYTE, budgetBytes: 64 * MEBIBYTE } },
    summary: "the agent exceeds its memory budget",
  },
  flashOverBudget: { facts: { agentFlash: { bytes: 6 * MEBIBYTE, budgetBytes: 5 * MEBIBYTE } } },
  clockWrong: { facts: { isMachineClockRight: false } },
  kernelPanicked: { facts: { kernelPanic: { message: "Fatal exception", path: "/var/lib/systemd/pstore/1" } } },
  certificateEnding: {
    facts: {
      tunnel: {
        state: "connected",
        certificate: { notBeforeMs: NOW_MS - 95 * DAY_MS, notAfterMs: NOW_MS + 5 * DAY_MS },
      },
    },
    summary: "its certificate ends",
  },
  hubRefuses: {
    facts: { tunnel: { state: "disconnected", refused: true, problem: "unknown node" } },
    summary: "it cannot join its hub",
  },
  hubAway: { facts: { tunnel: { state: "disconnected", refused: false, problem: "timeout" } } },
  podsNotReady: {
    facts: { pods: [pod(true), pod(false), pod(false, "Failed"), pod(true, "Running", { isFailing: true })] },
    summary: "3 of 4 pods not ready",
  },
  manifestsBroken: { facts: { manifestProblems: ["a.yaml:7: wrong"] }, summary: "1 manifest problem" },
};

test("a node that is well has no finding", () => {
  assert.deepEqual(judgeNode(WELL), []);
  assert.equal(summaryOf([], 3), "healthy: 3 pods");
});

for (const [state, { facts, notReady, check, summary }] of Object.entries(ROWS)) {
  test(`the state ${state} shows in Ready, /healthz and the headline as its row of the table says`, () => {
    const found = judgeNode({ ...WELL, ...facts });
    assert.deepEqual(
      found.map((each) => each.state),
      [state],
    );
    assert.deepEqual(notReadyReasons(found), notReady === undefined ? [] : [notReady]);
    for (const name of HEALTH_CHECKS)
      assert.equal(checkProblem(found, name), check?.[0] === name ? check[1] : undefined);
    assert.equal(found.some(isFault), summary !== undefined);
    assert.equal(summaryOf(found, 3), summary === undefined ? "healthy: 3 pods" : `degraded: ${summary}`);
    assert.equal(NODE_STATES[state as NodeState].keepsFromReady, notReady !== undefined);
  });
}

test("each pair of states shows both, in the order of the table, and neither hides the other", () => {
  const states = Object.keys(NODE_STATES) as NodeState[];
  assert.deepEqual(Object.keys(ROWS).toSorted(), states.toSorted());
  for (const [index, one] of states.entries()) {
    for (const other of states.slice(index + 1)) {
      const [first, second] = [ROWS[one], ROWS[other]];
      // Two states of one fact exclude each other.
      if (Object.keys(first.facts).some((each) => Object.hasOwn(second.facts, each))) continue;
      const found = judgeNode({ ...WELL, ...first.facts, ...second.facts });
      assert.deepEqual(
        found.map((each) => each.state),
        [one, other],
      );
      const reasons = [first.notReady, second.notReady].filter((each) => each !== undefined);
      assert.deepEqual(notReadyReasons(found), reasons, `${one} and ${other}`);
      assert.equal(found.some(isFault), first.summary !== undefined || second.summary !== undefined);
    }
  }
});

test("a certificate that has ended says when", () => {
  const certificate = { notBeforeMs: NOW_MS - 9 * DAY_MS, notAfterMs: NOW_MS - DAY_MS };
  const [found] = judgeNode({ ...WELL, tunnel: { state: "disconnected", certificate } });
  assert.deepEqual(found?.details, ["it ended at 2026-11-19T12:00:00.000Z"]);
});
