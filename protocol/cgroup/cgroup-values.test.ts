import assert from "node:assert/strict";
import { test } from "node:test";
import { parsedPod, podOfContainer } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import fc from "fast-check";
import type { Pod } from "../pod/pod.ts";
import { GIBIBYTE, MEBIBYTE } from "../units.ts";
import {
  type CgroupSettings,
  type CgroupValues,
  containerCgroupValues,
  type NodeCgroupSettings,
  oomScoreAdj,
  podCgroupValues,
  tierCgroupValues,
} from "./cgroup-values.ts";

type Fields = Readonly<Record<string, unknown>>;

const SETTINGS: CgroupSettings = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 };

function valuesOf(resources: Fields, settings = SETTINGS): CgroupValues {
  const [container] = podOfContainer({ resources }).spec.containers;
  assert.ok(container);
  return containerCgroupValues(container, settings);
}

for (const [name, resources, expected] of [
  ["nothing asked for", {}, { cpuShares: 2 }],
  ["a CPU asked for", { requests: { cpu: 1 } }, { cpuShares: 1024 }],
  [
    "a limit is a request too",
    { limits: { cpu: "500m" } },
    { cpuShares: 512, cpuQuotaUs: 50_000, cpuPeriodUs: 100_000 },
  ],
  ["shares round down, 2 at least", { requests: { cpu: "1m" } }, { cpuShares: 2 }],
  ["shares, 262144 at most", { requests: { cpu: 1000 } }, { cpuShares: 262_144 }],
  [
    "the quota is a millisecond at least",
    { limits: { cpu: "5m" } },
    { cpuShares: 5, cpuQuotaUs: 1000, cpuPeriodUs: 100_000 },
  ],
  ["memory in whole bytes", { limits: { memory: "100.5" } }, { cpuShares: 2, memoryLimitBytes: 101 }],
  ["memory beyond 2^53", { limits: { memory: "8Ei" } }, { cpuShares: 2, memoryLimitBytes: Number.MAX_SAFE_INTEGER }],
  ["a limit of zero is none", { limits: { cpu: 0, memory: 0 } }, { cpuShares: 2 }],
] as const) {
  test(`a container: ${name}`, () => assert.deepEqual(valuesOf(resources), expected));
}

test("quota can be switched off and its period changed", () => {
  assert.deepEqual(valuesOf({ limits: { cpu: 1 } }, { ...SETTINGS, cpuCFSQuota: false }), { cpuShares: 1024 });
  assert.deepEqual(valuesOf({ limits: { cpu: 1 } }, { ...SETTINGS, cpuPeriodUs: 10_000 }), {
    cpuShares: 1024,
    cpuQuotaUs: 10_000,
    cpuPeriodUs: 10_000,
  });
});

const limited = (name: string, limits: Fields, more: Fields = {}): Fields => ({
  name,
  image: "i",
  resources: { limits },
  ...more,
});
const FULL = { cpu: "500m", memory: "64Mi" };

for (const [name, spec, expected] of [
  ["best effort", {}, { cpuShares: 2 }],
  [
    "guaranteed",
    { containers: [limited("a", FULL), limited("b", FULL)] },
    { cpuShares: 1024, cpuQuotaUs: 100_000, cpuPeriodUs: 100_000, memoryLimitBytes: 134_217_728 },
  ],
  [
    "one container without a limit of memory makes the pod unlimited in memory",
    { containers: [limited("a", FULL), limited("b", { cpu: "500m" })] },
    { cpuShares: 1024, cpuQuotaUs: 100_000, cpuPeriodUs: 100_000 },
  ],
  [
    "an init container without limits too",
    { containers: [limited("a", FULL)], initContainers: [limited("b", {})] },
    { cpuShares: 512 },
  ],
  [
    "limits of the pod as a whole hold for any limits of its containers",
    { resources: { limits: { memory: "32Mi" } }, containers: [limited("a", {})] },
    { cpuShares: 2, memoryLimitBytes: 33_554_432 },
  ],
] as const) {
  test(`a pod: ${name}`, () => assert.deepEqual(podCgroupValues(parsedPod(spec), SETTINGS), expected));
}

test("every pod gets the limit of processes", () => {
  const settings = { ...SETTINGS, podPidsLimit: 100 };
  assert.deepEqual(podCgroupValues(parsedPod(), settings), { cpuShares: 2, pidsLimit: 100 });
});

const QOS: CgroupSettings = {
  ...SETTINGS,
  memoryQos: { throttlingFactor: 0.9, allocatableBytes: 400 * MEBIBYTE, pageBytes: 4096 },
};
const asks = (requests: Fields, limits: Fields = {}): Pod =>
  parsedPod({ containers: [{ name: "a", image: "i", resources: { requests, limits } }] });
const BURSTABLE = asks({ cpu: "250m", memory: "64Mi" });
const GUARANTEED = parsedPod({ containers: [limited("a", FULL)] });
const tiersOf = (pods: readonly Pod[], settings = SETTINGS, node: Partial<NodeCgroupSettings> = {}) =>
  tierCgroupValues(pods, settings, { limits: new Map(), ...node });

test("the burstable tier has the shares its pods ask for together, best effort the least, all of them what the node gives", () => {
  const limits = new Map([
    ["cpu", 3500n],
    ["memory", 1000n],
    ["pid", 50n],
    ["ephemeral-storage", 7n],
  ]);
  assert.deepEqual(tiersOf([BURSTABLE, GUARANTEED, BURSTABLE], SETTINGS, { limits }), {
    Guaranteed: { cpuShares: 3584, memoryLimitBytes: 1000, pidsLimit: 50 },
    Burstable: { cpuShares: 512 },
    BestEffort: { cpuShares: 2 },
  });
  assert.equal(tiersOf([]).Burstable.cpuShares, 2);
});

test("memory that is requested is kept in each cgroup above: hard for guaranteed pods, else as far as can be", () => {
  const tiers = tiersOf([BURSTABLE, GUARANTEED, BURSTABLE, parsedPod()], QOS);
  assert.deepEqual(tiers.Guaranteed, { memoryMinBytes: 64 * MEBIBYTE, memoryLowBytes: 192 * MEBIBYTE });
  assert.deepEqual(tiers.Burstable, { cpuShares: 512, memoryMinBytes: 0, memoryLowBytes: 128 * MEBIBYTE });
  assert.deepEqual(tiers.BestEffort, { cpuShares: 2, memoryMinBytes: 0, memoryLowBytes: 0 });
  const { memoryMinBytes: min, memoryLowBytes: low } = podCgroupValues(BURSTABLE, QOS);
  assert.deepEqual([min, low], [0, 64 * MEBIBYTE]);
  assert.equal(podCgroupValues(GUARANTEED, QOS).memoryMinBytes, 64 * MEBIBYTE);
});

test("requests of better classes reduce the limits of worse ones", () => {
  const limits = new Map([["memory", BigInt(200 * MEBIBYTE)]]);
  const tiers = tiersOf([BURSTABLE, GUARANTEED], SETTINGS, { limits, memoryReservedPercent: 50 });
  assert.equal(tiers.Burstable.memoryLimitBytes, 168 * MEBIBYTE);
  assert.equal(tiers.BestEffort.memoryLimitBytes, 136 * MEBIBYTE);
  const all = tiersOf([asks({ memory: "1Gi" })], SETTINGS, { limits, memoryReservedPercent: 100 });
  assert.equal(all.BestEffort.memoryLimitBytes, 0);
});

for (const [name, requests, limits, low, high] of [
  ["with a limit: before it", { memory: "100Mi" }, { memory: "200Mi" }, 100, 190],
  ["without one: before all that pods may have", { memory: "100Mi" }, {}, 100, 370],
  ["best effort too", {}, {}, 0, 360],
  ["request and limit are the same: nowhere", { memory: "64Mi" }, { memory: "64Mi" }, 64, -1],
  ["more requested than there is: nowhere", { memory: "500Mi" }, {}, 500, -1],
] as const) {
  test(`a container is slowed down ${name}`, () => {
    const pod = asks(requests, limits);
    const [container] = pod.spec.containers;
    assert.ok(container);
    const values = containerCgroupValues(container, QOS, pod);
    const wanted = high < 0 ? -1 : Math.floor((high * MEBIBYTE) / 4096) * 4096;
    assert.deepEqual([values.memoryLowBytes, values.memoryHighBytes], [low * MEBIBYTE, wanted]);
    assert.equal(containerCgroupValues(container, QOS).memoryHighBytes, undefined);
  });
}

test("throttling begins between request and limit, at a whole page", () => {
  const bytes = fc.integer({ min: 0, max: 2 ** 40 });
  const factor = fc.double({ min: 0.01, max: 1, noNaN: true });
  fc.assert(
    fc.property(bytes, bytes, factor, fc.constantFrom(4096, 65_536), (request, limit, throttlingFactor, pageBytes) => {
      const pod = asks({ memory: String(Math.min(request, limit)) }, { memory: String(limit) });
      const [container] = pod.spec.containers;
      assert.ok(container);
      const memoryQos = { throttlingFactor, allocatableBytes: 2 ** 30, pageBytes };
      const { memoryHighBytes: high = -1 } = containerCgroupValues(container, { ...SETTINGS, memoryQos }, pod);
      if (high < 0) return;
      assert.equal(high % pageBytes, 0);
      assert.ok(high > Math.min(request, limit) && high <= (limit === 0 ? 2 ** 30 : limit));
    }),
  );
});

test("huge pages: the requested amount, of every other size none; tiers have no limit of their own", () => {
  const settings = { ...SETTINGS, hugePageSizes: ["2MB", "1GB"] };
  const pod = asks({ "hugepages-2Mi": "4Mi", cpu: 1, memory: "1Mi" }, { "hugepages-2Mi": "4Mi" });
  const [container] = pod.spec.containers;
  assert.ok(container);
  const wanted = { "2MB": 4 * MEBIBYTE, "1GB": 0 };
  assert.deepEqual(podCgroupValues(pod, settings).hugePageLimits, wanted);
  assert.deepEqual(containerCgroupValues(container, settings, pod).hugePageLimits, wanted);
  assert.deepEqual(podCgroupValues(parsedPod(), settings).hugePageLimits, { "2MB": 0, "1GB": 0 });
  const tiers = tiersOf([pod], settings, { limits: new Map([["hugepages-1Gi", BigInt(GIBIBYTE)]]) });
  assert.deepEqual(tiers.Guaranteed.hugePageLimits, { "2MB": 0, "1GB": GIBIBYTE });
  assert.deepEqual(tiers.Burstable.hugePageLimits, { "2MB": -1, "1GB": -1 });
});

test("a container swaps nothing, or its share, and is killed as a whole, where the kernel can", () => {
  const pod = asks({ memory: "64Mi" }, { memory: "128Mi" });
  const [container] = pod.spec.containers;
  assert.ok(container);
  const swap = { limited: false, swapBytes: 1000, memoryCapacityBytes: 256 * MEBIBYTE };
  const values = (limitedSwap: boolean): CgroupValues =>
    containerCgroupValues(container, { ...SETTINGS, oomGroup: true, swap: { ...swap, limited: limitedSwap } }, pod);
  assert.deepEqual([values(false).swapLimitBytes, values(true).swapLimitBytes, values(true).oomGroup], [0, 250, true]);
});

const asking = (name: string, memory: string, more: Fields = {}): Fields => ({
  name,
  image: "i",
  resources: { requests: { memory } },
  ...more,
});

for (const [name, spec, expected] of [
  ["best effort goes first", {}, 1000],
  ["guaranteed goes last", { containers: [limited("app", FULL)] }, -997],
  ["what the node cannot do without goes last", { priorityClassName: "system-node-critical" }, -997],
  ["a tenth of the memory asked for", { containers: [asking("app", "0.1Gi")] }, 900],
  ["next to nothing asked for is still better than best effort", { containers: [asking("app", "1")] }, 999],
  ["all of the memory asked for", { containers: [asking("app", "1Gi")] }, 3],
  [
    "a sidecar goes no sooner than the container with the least",
    {
      containers: [asking("x", "0.5Gi"), asking("y", "0.75Gi")],
      initContainers: [asking("app", "1Mi", { restartPolicy: "Always" })],
    },
    500,
  ],
  [
    "what the pod asks for as a whole is shared out",
    { resources: { requests: { memory: "0.5Gi" } }, containers: [asking("app", "0.25Gi"), asking("y", "0")] },
    625,
  ],
] as const) {
  test(`OOM score: ${name}`, () => {
    const pod = parsedPod(spec);
    const container = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find((each) => each.name === "app");
    assert.ok(container);
    assert.equal(oomScoreAdj(pod, container, GIBIBYTE), expected);
  });
}
