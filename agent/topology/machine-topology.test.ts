import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { readMachineTopology } from "./machine-topology.ts";

type Files = Readonly<Record<string, string | number>>;

async function topologyOf(files: Files, cpuCount = 1) {
  const root = mkdtempSync("/dev/shm/picolet-machine-");
  try {
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), `${content}\n`);
    }
    const { cpus: places, capacities, nodes } = await readMachineTopology(cpuCount, root);
    const shown = [...places].map(([cpu, at]) => [cpu, at.numaNode, at.socket, at.core, at.uncoreCache]);
    return { places: shown, capacities: [...capacities], nodes };
  } finally {
    rmSync(root, { recursive: true });
  }
}

const CPU = "sys/devices/system/cpu";
const NODE = "sys/devices/system/node";
const MEMINFO = { "proc/meminfo": "MemTotal:        3884304 kB\nMemFree:  1 kB" };

const cpu = (id: number, fields: Readonly<Record<string, string | number>>): Files =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [`${CPU}/cpu${id}/topology/${name}`, value]));

test("a Raspberry Pi 4: four cores, no NUMA nodes", async () => {
  const cores = [0, 1, 2, 3].map((id) =>
    cpu(id, { physical_package_id: 0, core_id: id, core_cpus_list: id, thread_siblings_list: id }),
  );
  const { places, nodes } = await topologyOf(Object.assign({ [`${CPU}/online`]: "0-3" }, MEMINFO, ...cores));
  assert.deepEqual(
    places,
    [0, 1, 2, 3].map((id) => [id, 0, 0, id, 0]),
  );
  assert.deepEqual(nodes, [{ id: 0, memoryBytes: 3884304 * 1024, hugePages: [], distances: undefined }]);
});

test("an RK3588: slow cores and fast ones", async () => {
  const all = [530, 530, 530, 530, 1024, 1024, 1024, 1024];
  const files = all.map((capacity, id) => [`${CPU}/cpu${id}/cpu_capacity`, capacity] as const);
  const { capacities } = await topologyOf({ [`${CPU}/online`]: "0-7", ...MEMINFO, ...Object.fromEntries(files) });
  assert.deepEqual(capacities, [...all.entries()]);
});

test("a Jetson Orin: clusters whose core numbers repeat, each with a cache of its own", async () => {
  const cores = [0, 1, 2, 3, 4, 5, 6, 7].map((id) => {
    const cluster = Math.floor(id / 4);
    return {
      ...cpu(id, { physical_package_id: 0, cluster_id: cluster, core_id: id % 4 }),
      [`${CPU}/cpu${id}/cache/index0/level`]: 1,
      [`${CPU}/cpu${id}/cache/index3/level`]: 3,
      [`${CPU}/cpu${id}/cache/index3/shared_cpu_list`]: cluster === 0 ? "0-3" : "4-7",
      [`${CPU}/cpu${id}/cache/index3/id`]: cluster,
    };
  });
  const { places } = await topologyOf(Object.assign({ [`${CPU}/online`]: "0-7" }, MEMINFO, ...cores));
  assert.deepEqual(
    places,
    [0, 1, 2, 3, 4, 5, 6, 7].map((id) => [id, 0, 0, id, Math.floor(id / 4)]),
  );
});

test("two sockets with two threads for each core, and what is offline left out", async () => {
  const cores = [0, 1, 2, 4, 5, 6, 7].map((id) => {
    const socket = Math.floor((id % 4) / 2);
    const core = id % 4;
    return cpu(id, { physical_package_id: socket, core_id: core % 2, thread_siblings_list: `${core},${core + 4}` });
  });
  const nodes = [0, 1].map((id) => ({
    [`${NODE}/node${id}/cpulist`]: id === 0 ? "0-1,4-5" : "2-3,6-7",
    [`${NODE}/node${id}/meminfo`]: `Node ${id} MemTotal:       8000 kB\nNode ${id} MemFree:  1 kB`,
    [`${NODE}/node${id}/distance`]: id === 0 ? "10 21" : "21 10",
    [`${NODE}/node${id}/hugepages/hugepages-2048kB/nr_hugepages`]: 3,
  }));
  const found = await topologyOf(Object.assign({ [`${CPU}/online`]: "0-2,4-7" }, MEMINFO, ...cores, ...nodes));
  assert.deepEqual(found.places, [
    [0, 0, 0, 0, 0],
    [1, 0, 0, 1, 0],
    [2, 1, 1, 2, 1],
    [4, 0, 0, 0, 0],
    [5, 0, 0, 1, 0],
    [6, 1, 1, 2, 1],
    [7, 1, 1, 7, 1],
  ]);
  assert.deepEqual(found.nodes[1], {
    id: 1,
    memoryBytes: 8000 * 1024,
    hugePages: [{ sizeBytes: 2048 * 1024, count: 3 }],
    distances: [21, 10],
  });
});

test("a kernel without topology, or with nonsense, has as many cores as CPUs", async () => {
  const expected = [
    [0, 0, 0, 0, 0],
    [1, 0, 0, 1, 0],
  ];
  assert.deepEqual((await topologyOf({}, 2)).places, expected);
  const nonsense = [0, 1].map((id) => cpu(id, { physical_package_id: -1, core_id: "x", core_cpus_list: "9-2" }));
  assert.deepEqual((await topologyOf(Object.assign({ [`${CPU}/online`]: "?" }, ...nonsense), 2)).places, expected);
});

test("this machine has its CPUs and its memory", async () => {
  const { cpus: places, nodes } = await readMachineTopology(cpus().length);
  assert.equal(places.size, cpus().length);
  assert.ok((nodes[0]?.memoryBytes ?? 0) > 0);
});
