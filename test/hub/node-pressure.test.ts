/** Pressure of a board, from the agent's conditions to kubectl's output and the scheduler. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { PressureCondition } from "@picolet/agent/core/node/node-pressure.ts";
import type { RuntimeHealth } from "@picolet/agent/core/node/runtime-health.ts";
import { NodeConditions } from "@picolet/agent/node/node-conditions.ts";
import { nodeReport } from "@picolet/agent/node/node-report.ts";
import type { ShutdownState } from "@picolet/agent/node/node-shutdown.ts";
import { conditionPatch, nodeStatusPatch } from "@picolet/hub/bridge/node-object.ts";
import { NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { KUBECTL_VERSIONS, type KubectlVersion } from "@picolet/scripts/test/install-kubectl.ts";
import { KubectlCluster } from "../support/hub/kubectl-cluster.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";

const BOARD = "board-1";
const SIGNAL = new AbortController().signal;
const CAPACITY = { cpu: "4", memory: "512Mi", pods: "110", "ephemeral-storage": "8Gi" };
const MACHINE = {
  ...{ machineID: "m", systemUUID: "s", bootID: "b", kernelVersion: "6.1", osImage: "Debian", architecture: "arm64" },
  ...{ cpus: 4, memoryBytes: 536_870_912 },
};
const TAINTS = {
  MemoryPressure: "node.kubernetes.io/memory-pressure",
  DiskPressure: "node.kubernetes.io/disk-pressure",
  PIDPressure: "node.kubernetes.io/pid-pressure",
} as const;

/** The agent's conditions, written as the hub writes them. */
class PressedBoard {
  readonly #cluster: KubectlCluster;
  readonly #clock = new VirtualClock();
  readonly #pressures = new WatchSource<readonly PressureCondition[]>([]);
  readonly #conditions: NodeConditions;
  readonly #stop = new AbortController();

  constructor(cluster: KubectlCluster) {
    this.#cluster = cluster;
    const health: RuntimeHealth = { name: "cri", healthy: true, reason: "", message: "", sinceMs: 0 };
    this.#conditions = new NodeConditions(
      {
        health: new WatchSource([health]),
        shutdown: new WatchSource<ShutdownState>({ kind: "running" }),
        pressures: () => [this.#pressures],
        events: new RecordedEvents(),
        clock: this.#clock,
        log: new RecordedLog(),
      },
      { nodeName: BOARD },
    );
    void this.#conditions.run(this.#stop.signal);
  }

  async report(...types: readonly (keyof typeof TAINTS)[]): Promise<void> {
    this.#pressures.set(types.map((type) => ({ type, status: "True", reason: "Test", message: "short of it" })));
    await this.#clock.advance(millis(1));
    const init = {
      ...{ nodeName: BOARD, register: true, labels: {}, taints: [], providerID: "", maxImages: 5 },
      ...{ machine: MACHINE, capacity: CAPACITY, allocatable: { ...CAPACITY, memory: "333Mi" } },
    };
    const conditions = this.#conditions.conditions.current;
    const report = nodeReport(init, { conditions, addresses: ["10.0.0.7"], runtimes: [], images: [] });
    const ref = { namespace: "", name: BOARD };
    const { client } = this.#cluster;
    const current = (await client.get(NODES, ref, SIGNAL)) as unknown as { readonly status: Record<string, unknown> };
    const at = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const patch = nodeStatusPatch(current.status, report, { address: "10.0.0.9", port: 10_250 }, at);
    await client.patch(NODES, ref, "strategic", patch, { subresource: "status" }, SIGNAL);
  }

  /** Until the node's taints are these. */
  async untilTainted(...types: readonly (keyof typeof TAINTS)[]): Promise<void> {
    const wanted = types.map((type) => TAINTS[type]).join();
    await this.#cluster.until(NODES, ([node]) => {
      const { taints = [] } = (node?.spec ?? {}) as { readonly taints?: readonly { readonly key: string }[] };
      return taints.map(({ key }) => key).join() === wanted;
    });
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
  }
}

const containers = (requests: object = {}): object => ({
  containers: [{ name: "app", image: "app:1", resources: { requests } }],
});
const pod = (name: string, spec: object): object => ({ apiVersion: "v1", kind: "Pod", metadata: { name }, spec });
const daemonSet = {
  apiVersion: "apps/v1",
  kind: "DaemonSet",
  metadata: { name: "everywhere" },
  spec: {
    selector: { matchLabels: { app: "everywhere" } },
    template: { metadata: { labels: { app: "everywhere" } }, spec: containers() },
  },
};

for (const version of KUBECTL_VERSIONS) {
  describe(`kubectl ${version}`, { skip: kubectlMissing(version) }, () => {
    test("a board under pressure is tainted, shown so, and gets only what tolerates it", () => pressed(version));
  });
}

async function pressed(kubectl: KubectlVersion): Promise<void> {
  await using cluster = await KubectlCluster.startFor(kubectl);
  await cluster.addNode(BOARD);
  cluster.playAgents();
  using board = new PressedBoard(cluster);
  await board.report();
  const well = await cluster.run("describe", "node", BOARD);
  assert.match(well, /Taints:\s+<none>/);
  for (const [type, reason, message] of [
    ["MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
    ["DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
    ["PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"],
  ] as const) {
    assert.match(well, new RegExp(`${type}\\s+False.*${reason}\\s+${message}`));
  }
  assert.match(well, /Capacity:[^A]*memory:\s+512Mi[^A]*Allocatable:[^S]*memory:\s+333Mi/);

  await board.report("MemoryPressure", "PIDPressure");
  await board.untilTainted("MemoryPressure", "PIDPressure");
  const short = await cluster.run("describe", "node", BOARD);
  assert.match(
    short,
    /Taints:\s+node.kubernetes.io\/memory-pressure:NoSchedule\n\s+node.kubernetes.io\/pid-pressure:NoSchedule/,
  );
  assert.match(short, /MemoryPressure\s+True/);
  assert.match(await cluster.run("get", "nodes"), /board-1\s+Ready/);

  await cluster.apply(pod("best-effort", containers()));
  await cluster.apply(daemonSet);
  await cluster.run("rollout", "status", "daemonset/everywhere", "--timeout=30s");
  await cluster.run("wait", "--for=condition=PodScheduled=false", "pod/best-effort", "--timeout=30s");
  const why = await cluster.run("get", "pod", "best-effort", "-o", "jsonpath={.status.conditions[*].message}");
  assert.match(why, /node\(s\) had untolerated taint \{node.kubernetes.io\/memory-pressure: \}/);

  await board.report("DiskPressure");
  await board.untilTainted("DiskPressure");
  await board.report();
  await board.untilTainted();
  await cluster.run("wait", "--for=condition=Ready", "pod/best-effort", "--timeout=30s");
}

test("a transition has the date that the node tells, and keeps it while the status stays, also over a restart of the agent", () => {
  const at = "2026-03-01T00:00:00Z";
  const report = (type: string, status: string, lastTransitionTime = "2026-02-02T00:00:00Z") => {
    const condition = { type, status, reason: "r", message: "m", lastTransitionTime };
    return { register: true, labels: {}, taints: [], providerID: "", status: { conditions: [condition] } };
  };
  const current = {
    conditions: [{ type: "DiskPressure", status: "False", lastTransitionTime: "2026-01-01T00:00:00Z" }],
  };
  const dated = (type: string, status: string, told?: string): unknown =>
    conditionPatch(current, report(type, status, told), at).map((each) => [
      each.lastTransitionTime,
      each.lastHeartbeatTime,
    ]);
  assert.deepEqual(dated("DiskPressure", "False"), [["2026-01-01T00:00:00Z", at]]);
  assert.deepEqual(dated("DiskPressure", "True"), [["2026-02-02T00:00:00Z", at]]);
  // The clock of a node is not set, or is ahead.
  for (const told of ["1970-01-01T00:00:07Z", "2026-03-01T00:00:01Z"])
    assert.deepEqual(dated("DiskPressure", "True", told), [[at, at]]);
  assert.deepEqual(dated("MemoryPressure", "False"), [["2026-02-02T00:00:00Z", at]]);
});
