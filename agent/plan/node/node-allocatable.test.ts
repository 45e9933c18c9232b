import assert from "node:assert/strict";
import { test } from "node:test";
import { parseQuantity, quantityOf } from "@picolet/protocol/kubernetes/quantity.ts";
import fc from "fast-check";
import { evictionThresholds } from "../eviction/eviction-thresholds.ts";
import { type AllocatableInit, effectiveReserved, nodeAllocatable } from "./node-allocatable.ts";

const BOARD = { cpu: "4", memory: "512Mi", pods: "110", "ephemeral-storage": "8Gi" };

interface Reservations {
  readonly capacity?: Readonly<Record<string, string>>;
  readonly kube?: Readonly<Record<string, string>>;
  readonly system?: Readonly<Record<string, string>>;
  readonly hard?: Readonly<Record<string, string>>;
  readonly soft?: Readonly<Record<string, string>>;
  readonly maxPids?: number;
}

function initOf({
  capacity = BOARD,
  kube = {},
  system = {},
  hard = {},
  soft = {},
  maxPids,
}: Reservations): AllocatableInit {
  const thresholds = evictionThresholds({
    evictionHard: hard,
    evictionSoft: soft,
    evictionSoftGracePeriod: Object.fromEntries(Object.keys(soft).map((signal) => [signal, "1m"])),
    evictionMinimumReclaim: {},
    enforceNodeAllocatable: ["pods"],
  });
  return { capacity, maxPids, kubeReserved: kube, systemReserved: system, thresholds };
}

for (const [what, reservations, expected] of [
  ["nothing reserved", {}, BOARD],
  [
    "both lists",
    { kube: { cpu: "100m", memory: "64Mi" }, system: { cpu: "0.4", memory: "32Mi", "ephemeral-storage": "1Gi" } },
    { ...BOARD, cpu: "3500m", memory: "416Mi", "ephemeral-storage": "7Gi" },
  ],
  ["a hard threshold in bytes", { hard: { "memory.available": "100Mi" } }, { ...BOARD, memory: "412Mi" }],
  [
    "hard thresholds in percent, of the capacity",
    { kube: { memory: "256Mi" }, hard: { "memory.available": "25%", "nodefs.available": "50%" } },
    { ...BOARD, memory: "128Mi", "ephemeral-storage": "4Gi" },
  ],
  ["a soft threshold", { soft: { "memory.available": "100Mi" } }, BOARD],
  ["thresholds that reserve nothing", { hard: { "imagefs.available": "50%", "pid.available": "10%" } }, BOARD],
  ["thresholds of none and of all", { hard: { "memory.available": "0%", "nodefs.available": "100%" } }, BOARD],
  ["more than there is", { kube: { memory: "1Gi", cpu: "5" } }, { ...BOARD, memory: "0", cpu: "0" }],
  [
    "huge pages",
    { capacity: { ...BOARD, "hugepages-2Mi": "64Mi", "hugepages-1Gi": "0" }, system: { memory: "48Mi" } },
    { ...BOARD, memory: "400Mi", "hugepages-2Mi": "64Mi", "hugepages-1Gi": "0" },
  ],
  [
    "memory that is no whole number of pages",
    { capacity: { ...BOARD, memory: "1001Ki" }, system: { memory: "1" } },
    { ...BOARD, memory: "1025023" },
  ],
  ["processes, which no node tells of", { kube: { pid: "100" }, maxPids: 1000 }, BOARD],
] as const satisfies readonly (readonly [string, Reservations, Readonly<Record<string, string>>])[]) {
  test(`allocatable with ${what}`, () => {
    assert.deepEqual(nodeAllocatable(initOf(reservations)).allocatable, expected);
  });
}

test("the pods' cgroup is not narrowed by eviction thresholds, and knows processes", () => {
  const reservations = { kube: { memory: "64Mi", cpu: "250m", pid: "100" }, hard: { "memory.available": "100Mi" } };
  const { podLimits, capacity, kubeReserved, systemReserved } = nodeAllocatable(
    initOf({ ...reservations, maxPids: 32_768 }),
  );
  assert.equal(podLimits.get("memory"), 448n * 2n ** 20n);
  assert.equal(podLimits.get("cpu"), 3750n);
  assert.equal(podLimits.get("pid"), 32_668n);
  assert.equal(capacity.get("pid"), 32_768n);
  assert.deepEqual(
    [...kubeReserved],
    [
      ["memory", 64n * 2n ** 20n],
      ["cpu", 250n],
      ["pid", 100n],
    ],
  );
  assert.equal(systemReserved.size, 0);
  assert.equal(nodeAllocatable(initOf(reservations)).podLimits.has("pid"), false);
});

test("what is reserved beyond the capacity is named, thresholds included", () => {
  const { excess } = nodeAllocatable(
    initOf({
      kube: { memory: "256Mi", cpu: "2", pid: "20" },
      system: { memory: "200Mi", cpu: "2" },
      hard: { "memory.available": "100Mi" },
      maxPids: 10,
    }),
  );
  assert.deepEqual(excess, [
    { resource: "memory", reservation: "556Mi", capacity: "512Mi" },
    { resource: "pid", reservation: "20", capacity: "10" },
  ]);
});

test("CPUs reserved by number replace those reserved by amount", () => {
  const lists = { kubeReserved: { cpu: "100m", memory: "1Mi" }, systemReserved: { cpu: "200m" } };
  assert.deepEqual(effectiveReserved(lists, 2), { kubeReserved: { memory: "1Mi" }, systemReserved: { cpu: "2" } });
  assert.deepEqual(effectiveReserved(lists, 0), lists);
});

test("whatever is reserved, pods get no more than there is and no less than nothing", () => {
  const amount = fc.oneof(
    fc.nat(2 ** 31).map(String),
    fc.nat(4000).map((value) => `${value}Mi`),
    fc.nat(9000).map((value) => `${value}m`),
  );
  const list = fc.dictionary(fc.constantFrom("cpu", "memory", "ephemeral-storage", "pid"), amount);
  const hard = fc.dictionary(
    fc.constantFrom("memory.available", "nodefs.available"),
    fc.nat(100).map((value) => `${value}%`),
  );
  fc.assert(
    fc.property(list, list, hard, (kube, system, hardThresholds) => {
      const init = initOf({ kube, system, hard: hardThresholds, maxPids: 1000 });
      const { allocatable, podLimits, capacity } = nodeAllocatable(init);
      for (const [name, text] of Object.entries(allocatable)) {
        const parsed = parseQuantity(text);
        assert.ok(parsed.ok && parsed.quantity.nano >= 0n);
        assert.ok(parsed.quantity.nano <= quantityOf(init.capacity[name] ?? "0").nano);
      }
      for (const [name, limit] of podLimits) assert.ok(limit >= 0n && limit <= (capacity.get(name) ?? 0n));
    }),
  );
});
