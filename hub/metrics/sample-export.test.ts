import assert from "node:assert/strict";
import { test } from "node:test";
import { anyUsageSample, usageSample } from "@picolet/test/support/unit/tunnel/usage-samples.ts";
import fc from "fast-check";
import { decodeWhole, encodeWhole, sampleRows } from "./sample-export.ts";

test("a kept sample is what came, however many pods it has", () => {
  const full = usageSample(400, 1);
  assert.deepEqual(decodeWhole(encodeWhole(full)), full);
  fc.assert(
    fc.property(anyUsageSample, (sample) => assert.deepEqual(decodeWhole(encodeWhole(sample)), sample)),
    { numRuns: 200 },
  );
});

test("rows have the place, the time of the sample and the beginning of each counter", () => {
  const sample = usageSample(1, 1);
  const stored = { id: 1, node: "edge-1", baseUs: 0, isEstimated: false, body: encodeWhole(sample) };
  const rows = sampleRows(stored as unknown as Parameters<typeof sampleRows>[0]);
  const of = (name: string) => rows.filter(({ record }) => record.kind === "point" && record.measurement === name);
  const [cpu, ...others] = of("container_cpu_usage_seconds_total");
  const [pod] = sample.pods;
  assert.deepEqual(others, []);
  assert.deepEqual(
    [cpu?.origin.namespace, cpu?.origin.pod, cpu?.origin.container, cpu?.timeNs, cpu?.sinceNs],
    [
      "default",
      pod?.pod.name,
      "sensor",
      BigInt(sample.atMs) * 1_000_000n,
      BigInt(pod?.pod.containers[0]?.sinceSeconds ?? 0) * 1_000_000_000n,
    ],
  );
  const [memory] = of("node_memory_working_set_bytes");
  assert.deepEqual([memory?.origin.pod, memory?.sinceNs], ["", undefined]);
  const [agent] = of("picolet_board_agent_cpu_seconds_total");
  assert.equal(agent?.sinceNs, BigInt(sample.agentSinceSeconds) * 1_000_000_000n);
  const [disk] = of("picolet_board_filesystem_used_bytes");
  assert.deepEqual(disk?.record.kind === "point" && disk.record.tags, [["filesystem", "nodefs"]]);
});
