/**
 * Each way in which a node shows a state: the condition Ready, /healthz, `edgectl status` with its exit code, and
 * `edgectl why node`. All follow from one judgement; `judge-node.test.ts` has the judgement itself.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { healthAnswer } from "@picolet/agent/api/health-port.ts";
import type { RuntimeHealth } from "@picolet/agent/core/node/runtime-health.ts";
import { healthChecks } from "@picolet/agent/main/local-ends.ts";
import type { NodeAgentView } from "@picolet/agent/main/node/node-agent-view.ts";
import { whyOnDemand } from "@picolet/agent/main/node/why-on-demand.ts";
import { readyCondition } from "@picolet/agent/node/node-conditions.ts";
import type { AgentFacts, NodeState } from "@picolet/agent/plan/node/judge-node.ts";
import type { StatusReport, TunnelReport } from "@picolet/protocol/local-api/status.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { EdgectlBench } from "../support/unit/agent/edgectl-bench.ts";
import { agentPod, type FakeAgentView, NOW_MS } from "../support/unit/agent/fake-agent-view.ts";
import { podOf } from "../support/unit/pods/sample-pods.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";

const DAY_MS = 86_400_000;

interface State {
  /** What is so; nothing else is wrong with the node. */
  readonly facts?: Partial<AgentFacts> & { readonly isMachineClockRight?: boolean };
  readonly set?: (view: FakeAgentView) => void;
  /** In `findings` of `edgectl status -o json`. */
  readonly finding: NodeState;
  readonly exitCode: 0 | 1;
  /** Behind "edge-1 is". */
  readonly headline: string;
  /** A detail of `edgectl status`. */
  readonly detail?: RegExp;
  /** The message of Ready where it is False. */
  readonly notReady?: string;
  /** The line of /healthz that fails. */
  readonly unhealthy?: string;
}

const runtime = (reason: string, message: string): RuntimeHealth => ({
  ...{ name: "cri", healthy: reason === "", reason, message, sinceMs: 0 },
});
const tunnel = (report: Partial<TunnelReport>): ((view: FakeAgentView) => void) => {
  const given = { state: "connected", since: null, rttMs: 20, hub: "https://hub", ...report } as const;
  return (view) => void Object.assign(view, { tunnelReport: given });
};
const certificate = (days: number): NonNullable<TunnelReport["certificate"]> => ({
  notBefore: new Date(NOW_MS - 90 * DAY_MS).toISOString(),
  notAfter: new Date(NOW_MS + days * DAY_MS).toISOString(),
});
const NOT_READY = "degraded: the node is not ready";

/** By the words of a user. */
const STATES: Readonly<Record<string, State>> = {
  "the hub refuses": {
    set: tunnel({ state: "disconnected", refused: true, problem: "the token is not accepted" }),
    ...{ finding: "hubRefuses", exitCode: 1, headline: "degraded: it cannot join its hub" },
    detail: /^https:\/\/hub: the token is not accepted$/,
  },
  "the hub is away": {
    set: tunnel({ state: "disconnected", refused: false, problem: "connect ECONNREFUSED" }),
    ...{ finding: "hubAway", exitCode: 0, headline: "healthy: 1 pod" },
  },
  "a runtime is gone": {
    facts: { runtimes: [runtime("RuntimeNotReady", "connect ENOENT /run/containerd.sock")] },
    ...{ finding: "runtimeNotReady", exitCode: 1, headline: NOT_READY },
    notReady: "RuntimeNotReady: cri: connect ENOENT /run/containerd.sock",
    unhealthy: "[-]runtime failed: cri: connect ENOENT /run/containerd.sock",
  },
  "a runtime hangs": {
    facts: { runtimes: [runtime("PLEGNotHealthy", "last seen 3m ago")] },
    ...{ finding: "runtimeHangs", exitCode: 1, headline: NOT_READY },
    notReady: "PLEG is not healthy: cri: last seen 3m ago",
    unhealthy: "[-]PLEG failed: cri: last seen 3m ago",
  },
  "no runtime has answered": {
    facts: { runtimes: [] },
    ...{ finding: "runtimeUnasked", exitCode: 1, headline: NOT_READY },
    notReady: "container runtime status check may not have completed yet",
    unhealthy: "[-]runtime failed: no runtime has answered yet",
  },
  "the disk is full": {
    facts: { storeProblem: "cannot write to the store: database or disk is full" },
    ...{ finding: "storeUnwritable", exitCode: 1, headline: "degraded: its store does not keep anything" },
    detail: /^cannot write to the store: database or disk is full$/,
    unhealthy: "[-]store failed: cannot write to the store: database or disk is full",
  },
  "the disk is nearly full": {
    set: (view) => {
      const condition = { type: "DiskPressure", status: "True", reason: "KubeletHasDiskPressure" } as const;
      view.conditions = [{ ...condition, message: "kubelet has disk pressure", lastTransitionTime: "" }];
    },
    ...{ finding: "condition", exitCode: 1, headline: "degraded: it is short of disk space" },
    detail: /^DiskPressure is True: KubeletHasDiskPressure: kubelet has disk pressure$/,
  },
  "the clock is wrong": {
    facts: { isMachineClockRight: false },
    ...{ finding: "clockWrong", exitCode: 0, headline: "healthy: 1 pod" },
  },
  "the certificate is near its end": {
    set: tunnel({ certificate: certificate(5) }),
    ...{ finding: "certificateEnding", exitCode: 1, headline: "degraded: its certificate ends" },
    detail: /^it ends at 2026-11-25T12:00:00\.000Z, and was not renewed in time$/,
  },
  "the certificate has ended": {
    set: tunnel({ certificate: certificate(-1) }),
    ...{ finding: "certificateEnding", exitCode: 1, headline: "degraded: its certificate ends" },
    detail: /^it ended at 2026-11-19T12:00:00\.000Z$/,
  },
  "the agent exceeds its memory budget": {
    set: (view) => {
      view.agentReport = { ...view.agentReport, anonBytes: 65 * MEBIBYTE };
    },
    ...{ finding: "memoryOverBudget", exitCode: 1, headline: "degraded: the agent exceeds its memory budget" },
    detail: /^the agent has 65\.0 MiB of a budget of 64\.0 MiB$/,
  },
  "the agent exceeds its flash budget": {
    set: (view) => {
      view.flashReport = { ...view.flashReport, today: { ...view.flashReport.today, agentBytes: 6 * MEBIBYTE } };
    },
    ...{ finding: "flashOverBudget", exitCode: 0, headline: "healthy: 1 pod" },
  },
  "a pod is degraded": {
    set: (view) => view.setPods(agentPod(podOf(), { status: { phase: "Running" } })),
    ...{ finding: "podsNotReady", exitCode: 1, headline: "degraded: 1 of 1 pod not ready" },
  },
  "a part of the agent hangs": {
    facts: { podsWithoutWorker: 1 },
    ...{ finding: "podsWithoutWorker", exitCode: 1, headline: "degraded: a part of the agent hangs" },
    unhealthy: "[-]syncloop failed: 1 wanted pods have no worker",
  },
  "the node shuts down": {
    facts: { isShuttingDown: true },
    ...{ finding: "shuttingDown", exitCode: 1, headline: NOT_READY, notReady: "node is shutting down" },
  },
};

for (const [name, state] of Object.entries(STATES)) {
  test(`when ${name}, every way shows the same`, async (t) => {
    const [clock, log] = [new VirtualClock(NOW_MS), new RecordedLog()];
    // It reads the parts of the agent's view that the fake has.
    const agent = (): NodeAgentView => view as unknown as NodeAgentView;
    const why = whyOnDemand({ box: NO_BOX, clock, log, view: agent, pulls: () => [] });
    const bench = await EdgectlBench.start(t, { why });
    const { view } = bench;
    const facts = { ...view.facts(), ...state.facts };
    view.facts = () => facts;
    view.nodeReady = readyCondition(facts.runtimes, undefined, new Date(NOW_MS), facts.isShuttingDown) as never;
    view.setPods(agentPod(podOf(), { status: { phase: "Running", conditions: [{ type: "Ready", status: "True" }] } }));
    state.set?.(view);

    const status = await bench.run(["status"]);
    assert.equal(status.code, state.exitCode, status.out);
    assert.equal(status.out.split("\n")[0], `edge-1 is ${state.headline}`);
    const json = await bench.run(["status", "-o", "json"]);
    assert.equal(json.code, state.exitCode);
    const { ready, health, conditions } = JSON.parse(json.out) as StatusReport;
    assert.deepEqual(
      health?.findings.map((each) => each.state),
      [state.finding],
    );
    assert.equal(health?.healthy, state.exitCode === 0);
    if (state.detail !== undefined) assert.match(health?.details.join("\n") ?? "", state.detail);

    const condition = conditions.find(({ type }) => type === "Ready");
    assert.equal(ready, state.notReady === undefined);
    assert.equal(condition?.status, state.notReady === undefined ? "True" : "False");
    assert.equal(condition?.message, state.notReady ?? "kubelet is posting ready status");

    const healthz = healthAnswer(healthChecks(view.facts), "/healthz", new URLSearchParams());
    assert.equal(healthz.status, state.unhealthy === undefined ? 200 : 500, healthz.text);
    const failed = healthz.text.split("\n").filter((line) => line.startsWith("[-]"));
    assert.deepEqual(failed, state.unhealthy === undefined ? [] : [state.unhealthy]);

    const told = await bench.run(["why", "node"]);
    assert.equal(told.code, state.exitCode);
    assert.ok(told.out.startsWith(`edge-1: ${state.headline}`), told.out);
  });
}

const NO_BOX = { path: "/nonexistent/black-box", pending: () => [] };
