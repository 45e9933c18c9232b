import assert from "node:assert/strict";
import { test } from "node:test";
import { parsedPod, podOfContainer } from "../test/support/pod-manifests.ts";
import {
  type CgroupSettings,
  type CgroupValues,
  containerCgroupValues,
  oomScoreAdj,
  podCgroupPath,
  podCgroupValues,
  tierCgroupPath,
  tierCpuShares,
} from "./cgroup-values.ts";

type Fields = Readonly<Record<string, unknown>>;

const SETTINGS: CgroupSettings = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 };
const GIB = 1_073_741_824;

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
    "limits of the pod as a whole hold whatever its containers have",
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

test("the burstable tier has the shares its pods ask for together, best effort the least", () => {
  const burstable = parsedPod({ containers: [{ name: "a", image: "i", resources: { requests: { cpu: "250m" } } }] });
  const guaranteed = parsedPod({ containers: [limited("a", FULL)] });
  assert.equal(tierCpuShares("Burstable", [burstable, guaranteed, burstable]), 512);
  assert.equal(tierCpuShares("Burstable", []), 2);
  assert.equal(tierCpuShares("BestEffort", [burstable]), 2);
});

test("paths", () => {
  assert.equal(podCgroupPath("/", "Burstable", "1-2"), "/kubepods/burstable/pod1-2");
  assert.equal(podCgroupPath("", "BestEffort", "1-2"), "/kubepods/besteffort/pod1-2");
  assert.equal(podCgroupPath("/a/b/", "Guaranteed", "1-2"), "/a/b/kubepods/pod1-2");
  assert.equal(tierCgroupPath("/a", "Guaranteed"), "/a/kubepods");
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
    assert.equal(oomScoreAdj(pod, container, GIB), expected);
  });
}
