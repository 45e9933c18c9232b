/** The usage of a real container, read from this machine's own cgroups. */
import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { test } from "node:test";
import type { AgentPod } from "@picolet/agent/core/pods/agent-pod.ts";
import { makeNodeUsageSampler } from "@picolet/agent/main/node/node-usage.ts";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { UsageStats } from "@picolet/agent/stats/usage-stats.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { Bench, desiredPod } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const BUSY = { image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", "while :; do :; done"], args: [] };

interface Figures {
  readonly cpu: { readonly usageNanoCores: number; readonly usageCoreNanoSeconds: number };
  readonly memory: { readonly workingSetBytes: number; readonly availableBytes: number };
}

interface Summary {
  readonly node: Figures & { readonly fs: { readonly capacityBytes: number } };
  readonly pods: readonly (Figures & {
    readonly podRef: { readonly name: string };
    readonly containers: readonly (Figures & { readonly name: string })[];
    readonly network: { readonly name: string; readonly rxBytes: number };
  })[];
}

test("a busy container's CPU, memory and network", { skip: containerdMissing() ?? false }, async (context) => {
  await using containerd = await Containerd.start();
  await using fixture = new CriFixture(containerd);
  const bench = new Bench(fixture, context.signal);
  const pod = desiredPod(BUSY, { resources: { limits: { memory: "64Mi", cpu: "200m" } } });
  await bench.createSandbox(pod);
  await bench.running(pod, (await bench.start(pod, BUSY)).id);
  const { logDirectory, cgroupParent } = await fixture.preparePod(pod);
  const { containers } = await bench.inspect(pod);
  const known: AgentPod = {
    ...{ desired: pod, status: { phase: "Running" }, terminatingSinceMs: undefined, runtime: "cri" },
    ...{ containers, logDirectory },
  };
  const hierarchies = await detectCgroups();
  const sampler = makeNodeUsageSampler(
    {
      ...{ hierarchies, adapters: [fixture.adapter], clock: systemClock, log: new RecordedLog() },
      pods: () => [known],
      podCgroup: () => cgroupParent,
    },
    { rootDir: tmpdir(), podLogsDir: tmpdir(), allPodsCgroup: "/kubepods", cgroupsPerQOS: true },
  );
  const stats = new UsageStats(
    { sampler, mountedVolumes: async () => [], clock: systemClock, log: new RecordedLog() },
    { nodeName: "edge-1", startedAt: new Date(), volumePeriod: seconds(60) },
  );
  const { node, pods } = (await stats.summary({ onlyCpuAndMemory: false }, context.signal)) as Summary;
  assert.ok(node.cpu.usageNanoCores > 0 && node.fs.capacityBytes > MEBIBYTE);
  const [seen] = pods;
  assert.equal(seen?.podRef.name, pod.pod.metadata.name);
  const [main] = seen.containers;
  assert.equal(main?.name, "main");
  // It is held to a fifth of a core, of which a busy machine may give it much less; in another unit it would be a
  // thousandth.
  assert.ok(main.cpu.usageNanoCores > 1_000_000 && main.cpu.usageNanoCores < 300_000_000, `${main.cpu.usageNanoCores}`);
  assert.ok(seen.cpu.usageCoreNanoSeconds >= main.cpu.usageCoreNanoSeconds);
  assert.ok(main.memory.workingSetBytes > 10_000 && main.memory.availableBytes < 64 * MEBIBYTE);
  assert.equal(seen.network.name, "eth0");
  const metrics = [...(await stats.resourceMetrics(context.signal))].join("");
  assert.match(
    metrics,
    /container_cpu_usage_seconds_total\{container="main",namespace="default",pod="conformance"\} 0?\.\d+ \d+/,
  );
});
