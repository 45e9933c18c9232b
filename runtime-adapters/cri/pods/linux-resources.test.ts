import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { GIBIBYTE } from "@picolet/protocol/units.ts";
import { POD_CONFIG_SETTINGS } from "@picolet/test/support/unit/cri/cri-adapters.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import { containerResources, type ResourceSettings } from "./linux-resources.ts";
import { type RuntimeMachine, readRuntimeMachine } from "./runtime-machine.ts";

type Fields = Readonly<Record<string, unknown>>;
const V2: RuntimeMachine = {
  unifiedCgroups: true,
  swapAccounting: true,
  swapBytes: 2 * GIBIBYTE,
  hugePageSizes: ["2MB", "1GB"],
  thermalFolders: [],
};

function resourcesOf(resources: Fields, settings: Partial<ResourceSettings> = {}, spec: Fields = {}) {
  const pod = parsedPod({ containers: [{ name: "app", image: "example.com/app:1", resources }], ...spec });
  const [first] = pod.spec.containers;
  assert.ok(first);
  return containerResources(pod, first, { ...POD_CONFIG_SETTINGS, ...settings });
}

test("requests and limits become cgroup values and an OOM score", () => {
  const resources = { requests: { cpu: "250m", memory: "256Mi" }, limits: { cpu: "1", memory: "512Mi" } };
  assert.deepEqual(resourcesOf(resources), {
    cpuPeriod: 100_000,
    cpuQuota: 100_000,
    cpuShares: 256,
    memoryLimitInBytes: 512 * 1024 ** 2,
    oomScoreAdj: 750,
    hugepageLimits: [],
    unified: new Map(),
  });
  assert.equal(resourcesOf({}).oomScoreAdj, 1000);
});

test("on CPUs of its own a container has no quota; on shared ones it keeps it", () => {
  const pod = parsedPod({
    containers: [{ name: "app", image: "example.com/app:1", resources: { limits: { cpu: "1", memory: "64Mi" } } }],
  });
  const [app] = pod.spec.containers;
  assert.ok(app);
  const on = (exclusive: boolean) => {
    const cpuset = { cpus: "1", mems: "0", exclusive };
    const { cpuQuota, cpusetCpus, cpusetMems } = containerResources(pod, app, POD_CONFIG_SETTINGS, cpuset);
    return [cpuQuota, cpusetCpus, cpusetMems];
  };
  assert.deepEqual(on(true), [-1, "1", "0"]);
  assert.deepEqual(on(false), [100_000, "1", "0"]);
});

test("a container without limits has those of the pod as a whole", () => {
  const spec = { resources: { limits: { cpu: "2", memory: "1Gi", "hugepages-2Mi": "4Mi" } } };
  const own = resourcesOf({}, { machine: V2 }, spec);
  assert.deepEqual([own.cpuQuota, own.cpuShares, own.memoryLimitInBytes], [200_000, 2048, GIBIBYTE]);
  assert.deepEqual(own.hugepageLimits, [
    { pageSize: "2MB", limit: 4 * 2 ** 20 },
    { pageSize: "1GB", limit: 0 },
  ]);
  const less = { limits: { cpu: "1", memory: "512Mi", "hugepages-2Mi": "2Mi" }, requests: { memory: "512Mi" } };
  const limited = resourcesOf(less, { machine: V2 }, spec);
  assert.deepEqual([limited.cpuQuota, limited.memoryLimitInBytes], [100_000, GIBIBYTE / 2]);
  assert.equal(limited.hugepageLimits?.[0]?.limit, 2 * 2 ** 20);
});

test("an OOM kill ends the whole container where cgroup v2 can do it, unless the node wants otherwise", () => {
  assert.equal(resourcesOf({}, { machine: V2 }).unified?.get("memory.oom.group"), "1");
  const single = resourcesOf({}, { machine: V2, singleProcessOomKill: true });
  assert.equal(single.unified?.has("memory.oom.group"), false);
});

test("pods do not swap, but for burstable ones where the node lets them", () => {
  const memory = { requests: { memory: "256Mi" }, limits: { memory: "512Mi" } };
  const swapOf = (settings: Partial<ResourceSettings>, resources: Fields = memory, spec: Fields = {}) =>
    resourcesOf(resources, { machine: V2, ...settings }, spec).unified?.get("memory.swap.max");
  assert.equal(swapOf({}), "0");
  assert.equal(
    swapOf({ limitedSwap: true }),
    String(GIBIBYTE / 2),
    "a quarter of the memory, so a quarter of the swap",
  );
  assert.equal(swapOf({ limitedSwap: true }, {}), "0");
  assert.equal(swapOf({ limitedSwap: true }, memory, { priority: 2_000_000_000 }), "0");
  assert.equal(swapOf({ machine: { ...V2, swapAccounting: false } }), undefined);
  const v1 = resourcesOf(memory, { machine: { ...V2, unifiedCgroups: false } });
  assert.deepEqual([v1.memorySwapLimitInBytes, v1.unified?.size], [GIBIBYTE / 2, 0]);
});

test("with cgroup v2 memory that is requested is kept, and containers are slowed down before their limit", () => {
  const memoryQos = { throttlingFactor: 0.5, allocatableBytes: GIBIBYTE, pageBytes: 4096 };
  const settings = { machine: V2, cgroups: { ...POD_CONFIG_SETTINGS.cgroups, memoryQos } };
  const unified = (resources: Fields, more: Partial<ResourceSettings> = {}) => {
    const { unified: values } = resourcesOf(resources, { ...settings, ...more });
    return ["min", "low", "high"].map((name) => values?.get(`memory.${name}`));
  };
  const [request, limit] = [String(GIBIBYTE / 4), String(GIBIBYTE / 2)];
  assert.deepEqual(unified({ requests: { memory: request }, limits: { memory: limit } }), [
    "0",
    request,
    String((3 * GIBIBYTE) / 8),
  ]);
  assert.deepEqual(unified({ limits: { memory: limit, cpu: "1" } }), [limit, "0", "max"]);
  assert.deepEqual(unified({}), ["0", "0", String(GIBIBYTE / 2)]);
  const v1 = { machine: { ...V2, unifiedCgroups: false } };
  assert.deepEqual(unified({ limits: { memory: limit } }, v1), [undefined, undefined, undefined]);
});

test("processors have their thermal counters in folders, where they have some", () => {
  using folder = new TempFolder();
  for (const path of ["cpu10/thermal_throttle", "cpu2/thermal_throttle", "cpu3", "cpufreq"])
    mkdirSync(folder.at("sys/devices/system/cpu", path), { recursive: true });
  assert.deepEqual(readRuntimeMachine(folder.path).thermalFolders, [
    "/sys/devices/system/cpu/cpu2/thermal_throttle",
    "/sys/devices/system/cpu/cpu10/thermal_throttle",
  ]);
});

test("limits depend on what the machine's cgroups support", () => {
  using folder = new TempFolder();
  const write = (path: string, text: string): void => {
    mkdirSync(folder.at(path, ".."), { recursive: true });
    writeFileSync(folder.at(path), text);
  };
  const nothing = { unifiedCgroups: false, swapAccounting: false, swapBytes: 0, hugePageSizes: [], thermalFolders: [] };
  assert.deepEqual(readRuntimeMachine(folder.path), nothing);
  write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "");
  write("proc/meminfo", "MemTotal:  1024 kB\nSwapTotal:       2048 kB\n");
  for (const size of [1_048_576, 2048, 64])
    mkdirSync(folder.at(`sys/kernel/mm/hugepages/hugepages-${size}kB`), { recursive: true });
  assert.deepEqual(readRuntimeMachine(folder.path), {
    unifiedCgroups: false,
    swapAccounting: true,
    swapBytes: 2 * 2 ** 20,
    hugePageSizes: ["64KB", "2MB", "1GB"],
    thermalFolders: [],
  });
  write("sys/fs/cgroup/cgroup.controllers", "cpu memory");
  write("proc/self/cgroup", "0::/system.slice/agent\n");
  assert.equal(readRuntimeMachine(folder.path).swapAccounting, false);
  write("sys/fs/cgroup/system.slice/agent/memory.swap.max", "max");
  assert.deepEqual(
    [readRuntimeMachine(folder.path).unifiedCgroups, readRuntimeMachine(folder.path).swapAccounting],
    [true, true],
  );
});
