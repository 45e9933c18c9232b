import assert from "node:assert/strict";
import { test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import fc from "fast-check";
import { EVICTION_SIGNALS } from "../plan/eviction/eviction-thresholds.ts";
import { type Board, boardDefaults } from "./board-defaults.ts";
import { type Configuration, formatConfigurationProblem, loadConfiguration } from "./configuration.ts";

const BOARD: Board = {
  memoryBytes: 512 * MEBIBYTE,
  cpus: 4,
  maxPids: 4000,
  ephemeralStorageBytes: 8192 * MEBIBYTE,
  swapBytes: 0,
  unifiedCgroups: true,
};

function problemsOf(text: string, board: Board = BOARD): string[] {
  const result = loadConfiguration(text, "board", board);
  return result.ok ? [] : result.problems.map((problem) => formatConfigurationProblem("c.yaml", problem));
}

function load(text: string, board: Board = BOARD): Configuration {
  const result = loadConfiguration(text, "board", board);
  assert.ok(result.ok, result.ok ? "" : JSON.stringify(result.problems));
  return result.configuration;
}

for (const [memoryMiB, available, reserved, withoutContainers] of [
  [128, "24Mi", "32Mi", "32Mi"],
  [256, "25Mi", "64Mi", "64Mi"],
  [430, "43Mi", "107Mi", "64Mi"],
  [512, "51Mi", "128Mi", "64Mi"],
  [1024, "100Mi", "160Mi", "64Mi"],
  [4096, "100Mi", "256Mi", "64Mi"],
  [16_384, "100Mi", "256Mi", "64Mi"],
] as const) {
  test(`the defaults of a board with ${memoryMiB} MiB`, () => {
    const board = { ...BOARD, memoryBytes: memoryMiB * MEBIBYTE };
    const { evictionHard, kubeReserved } = load("", board);
    assert.equal(evictionHard["memory.available"], available);
    assert.deepEqual(kubeReserved, { memory: reserved, pid: "400" });
    assert.equal(boardDefaults(board, false).kubeReserved.memory, withoutContainers);
  });
}

test("the kubelet's thresholds of disks, and one of processes, are defaults too", () => {
  assert.deepEqual(load("").evictionHard, {
    "memory.available": "51Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "pid.available": "10%",
  });
});

for (const text of ["kubeReserved: {}", "systemReserved: {cpu: 100m}", "kubeReserved: {cpu: 100m}"]) {
  test(`who says ${text} reserves nothing else`, () => {
    assert.equal(load(text).kubeReserved.memory, undefined);
  });
}

test("a board whose processes are not known has no reservation of them", () => {
  const { maxPids: _, ...board } = BOARD;
  assert.deepEqual(load("", board).kubeReserved, { memory: "128Mi" });
});

/** The line is that of what is wrong. */
for (const [text, expected] of [
  [
    "evictionHard: {memory.avail: 1Mi, nodefs.inodefree: 5%, disk: 1Gi}\nevictionMinimumReclaim: {memory: 5Mi}",
    [
      'c.yaml:1: evictionHard[memory.avail]: Invalid value: "memory.avail": unsupported eviction signal, did you mean memory.available?',
      'c.yaml:1: evictionHard[nodefs.inodefree]: Invalid value: "nodefs.inodefree": unsupported eviction signal, did you mean nodefs.inodesFree?',
      `c.yaml:1: evictionHard.disk: Invalid value: "disk": unsupported eviction signal; there are ${EVICTION_SIGNALS.join(", ")}`,
      'c.yaml:2: evictionMinimumReclaim.memory: Invalid value: "memory": unsupported eviction signal, did you mean memory.available?',
    ],
  ],
  [
    "evictionHard:\n  memory.available: 101%\n  nodefs.available: -5%\n  imagefs.available: -1Gi\n  pid.available: many",
    [
      'c.yaml:2: evictionHard[memory.available]: Invalid value: "101%": must be a percentage between 0% and 100%',
      'c.yaml:3: evictionHard[nodefs.available]: Invalid value: "-5%": must be a percentage between 0% and 100%',
      'c.yaml:4: evictionHard[imagefs.available]: Invalid value: "-1Gi": must not be negative or beyond 2^53',
      "c.yaml:5: evictionHard[pid.available]: Invalid value: \"many\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    ],
  ],
  [
    "evictionSoft: {memory.available: 200Mi}",
    [
      'c.yaml:1: evictionSoft[memory.available]: Invalid value: "200Mi": grace period must be specified for the soft eviction threshold memory.available',
    ],
  ],
  [
    "evictionSoftGracePeriod: {memory.available: 1m, pid.available: soon}",
    [
      'c.yaml:1: evictionSoftGracePeriod[pid.available]: Invalid value: "soon": must be a duration such as "20s" or "1m30s", and not negative',
      'c.yaml:1: evictionSoftGracePeriod[memory.available]: Invalid value: "1m": there is no soft threshold that would wait for it',
      'c.yaml:1: evictionSoftGracePeriod[pid.available]: Invalid value: "soon": there is no soft threshold that would wait for it',
    ],
  ],
  [
    "evictionSoft: {memory.available: 40Mi, nodefs.available: 10%}\nevictionSoftGracePeriod: {memory.available: 1m, nodefs.available: 1m}",
    [
      'c.yaml:1: evictionSoft[memory.available]: Invalid value: "40Mi": must be more than the hard threshold 51Mi, or it would never be the first to be met',
      'c.yaml:1: evictionSoft[nodefs.available]: Invalid value: "10%": must be more than the hard threshold 10%, or it would never be the first to be met',
    ],
  ],
  [
    "evictionHard: {memory.available: 100Mi}\nevictionSoft: {memory.available: 15%}\nevictionSoftGracePeriod: {memory.available: 1m}",
    [
      'c.yaml:2: evictionSoft[memory.available]: Invalid value: "15%": must be more than the hard threshold 100Mi, or it would never be the first to be met',
    ],
  ],
  [
    "evictionHard: {memory.available: 400Mi, pid.available: '4000'}\nkubeReserved: {memory: 100Mi}\nsystemReserved: {memory: 12Mi}",
    [
      'c.yaml:1: evictionHard[memory.available]: Invalid value: "400Mi": must be less than the 400Mi that pods could leave, or it would always be met',
      'c.yaml:1: evictionHard[pid.available]: Invalid value: "4000": must be less than the 4000 that pods could leave, or it would always be met',
    ],
  ],
  [
    'systemReserved: {cpu: "3", memory: 400Mi}\nkubeReserved: {cpu: 1500m, memory: 70Mi, pid: "4001"}',
    [
      'c.yaml:2: kubeReserved.cpu: Invalid value: "1500m": Resource "cpu" has a reservation of 4500m but capacity of 4. Expected capacity >= reservation.',
      'c.yaml:2: kubeReserved.memory: Invalid value: "70Mi": Resource "memory" has a reservation of 521Mi but capacity of 512Mi. Expected capacity >= reservation.',
      'c.yaml:2: kubeReserved.pid: Invalid value: "4001": Resource "pid" has a reservation of 4001 but capacity of 4000. Expected capacity >= reservation.',
    ],
  ],
  [
    "kubeReserved: {memorry: 1Mi, cpu: -1, pods: '3'}\nqosReserved: {cpu: 10%, memory: 101%}",
    [
      "c.yaml:1: kubeReserved.cpu: Invalid value: -1: must be a string (put it in quotes)",
      'c.yaml:1: kubeReserved.memorry: Invalid value: "memorry": cannot reserve "memorry" resource, did you mean memory?',
      'c.yaml:1: kubeReserved.pods: Invalid value: "pods": cannot reserve "pods" resource, only cpu, memory, ephemeral-storage, pid',
      'c.yaml:2: qosReserved.cpu: Invalid value: "cpu": cannot reserve "cpu" resource, only memory',
      'c.yaml:2: qosReserved.memory: Invalid value: "101%": must be a percentage between 0% and 100%',
    ],
  ],
  ["systemReserved: {cpu: '-1'}", ['c.yaml:1: systemReserved.cpu: Invalid value: "-1": must not be negative']],
  [
    "enforceNodeAllocatable: [pods, kube-reserved, kube-reserved-compressible, pods]\nkubeReservedCgroup: /kube\nkubeReserved: {}",
    [
      'c.yaml:1: enforceNodeAllocatable[1]: Invalid value: "kube-reserved": there is nothing to enforce: kubeReserved is empty',
      'c.yaml:1: enforceNodeAllocatable[2]: Invalid value: "kube-reserved-compressible": may not be specified together with kube-reserved',
      'c.yaml:1: enforceNodeAllocatable[2]: Invalid value: "kube-reserved-compressible": there is nothing to enforce: kubeReserved is empty',
      'c.yaml:1: enforceNodeAllocatable[3]: Duplicate value: "pods"',
    ],
  ],
  [
    "reservedSystemCPUs: 0-4\nsystemReservedCgroup: /system",
    [
      'c.yaml:1: reservedSystemCPUs: Invalid value: "0-4": this machine has CPUs 0 to 3 only',
      "c.yaml:1: reservedSystemCPUs: Forbidden: may not be specified together with systemReservedCgroup or kubeReservedCgroup",
    ],
  ],
  [
    "reservedSystemCPUs: x",
    ['c.yaml:1: reservedSystemCPUs: Invalid value: "x": must be a list of CPUs such as "0-1,3"'],
  ],
  [
    "cpuManagerPolicy: static",
    [
      'c.yaml:1: cpuManagerPolicy: Invalid value: "static": the static policy requires systemReserved.cpu + kubeReserved.cpu, or reservedSystemCPUs, to be greater than zero',
    ],
  ],
  [
    "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\ncpuManagerPolicyOptions: {full-pcpu-only: 'true', align-by-socket: 'true', distribute-cpus-across-numa: maybe}",
    [
      'c.yaml:3: cpuManagerPolicyOptions[full-pcpu-only]: Invalid value: "full-pcpu-only": unknown CPU Manager Policy option, did you mean full-pcpus-only?',
      "c.yaml:3: cpuManagerPolicyOptions[align-by-socket]: Forbidden: CPU Manager Policy Alpha-level Options not enabled (CPUManagerPolicyAlphaOptions)",
      'c.yaml:3: cpuManagerPolicyOptions[distribute-cpus-across-numa]: Invalid value: "maybe": must be "true" or "false"',
    ],
  ],
  [
    "featureGates: {CPUManagerPolicyAlphaOptions: true}\ncpuManagerPolicyOptions: {full-pcpus-only: 'true', distribute-cpus-across-cores: 'true'}",
    [
      "c.yaml:2: cpuManagerPolicyOptions[full-pcpus-only]: Forbidden: cpuManagerPolicy none has no options",
      "c.yaml:2: cpuManagerPolicyOptions[distribute-cpus-across-cores]: Forbidden: cpuManagerPolicy none has no options",
      "c.yaml:2: cpuManagerPolicyOptions[distribute-cpus-across-cores]: Forbidden: may not be specified together with full-pcpus-only",
    ],
  ],
  [
    "topologyManagerPolicyOptions: {max-allowable-numa-nodes: '4', prefer-closest-numa-node: 'true'}",
    [
      `c.yaml:1: topologyManagerPolicyOptions[max-allowable-numa-nodes]: Invalid value: "4": must be a whole number, and not less than 8`,
      'c.yaml:1: topologyManagerPolicyOptions[prefer-closest-numa-node]: Invalid value: "prefer-closest-numa-node": unknown Topology Manager Policy option, did you mean prefer-closest-numa-nodes?',
    ],
  ],
  [
    "reservedMemory:\n- numaNode: 0\n  limits: {memory: 0, cpu: 1}\n- numaNode: 0\n  limits: {memory: 1Mi}",
    [
      "c.yaml:3: reservedMemory[0].limits.memory: Invalid value: 0: reserved memory may not be zero or less",
      'c.yaml:3: reservedMemory[0].limits.cpu: Unsupported value: "cpu": supported values: "memory", "hugepages-<HugePageSize>"',
      'c.yaml:5: reservedMemory[1].limits.memory: Duplicate value: "NUMA node 0, memory"',
    ],
  ],
  [
    "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\nkubeReserved: {memory: 50Mi}",
    [
      'c.yaml:2: reservedMemory: Invalid value: "100Mi": the total amount "100Mi" of type "memory" is not equal to the value "101Mi" determined by Node Allocatable feature (kubeReserved, systemReserved and evictionHard together)',
    ],
  ],
] as const) {
  test(`${text.replaceAll("\n", " ")} is refused`, () => {
    assert.deepEqual(problemsOf(text), expected);
  });
}

for (const text of [
  "evictionHard: {memory.available: 0%, nodefs.available: '0', imagefs.available: 100%}",
  "evictionHard: {memory.available: 0%}\nevictionSoft: {memory.available: 1Mi}\nevictionSoftGracePeriod: {memory.available: 1m}",
  "evictionSoft: {memory.available: 20%}\nevictionSoftGracePeriod: {memory.available: 1m30s}\nevictionMinimumReclaim: {memory.available: 5%, imagefs.available: 2Gi}",
  "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 101Mi}}]\nkubeReserved: {memory: 50Mi}",
  "cpuManagerPolicy: static\nreservedSystemCPUs: 0,3",
  "cpuManagerPolicy: static\nkubeReserved: {cpu: 100m}\ncpuManagerPolicyOptions: {full-pcpus-only: T}",
  "evictionMaxPodGracePeriod: -1",
  "qosReserved: {memory: 50%}",
  "enforceNodeAllocatable: [pods, system-reserved]\nsystemReserved: {memory: 32Mi}\nsystemReservedCgroup: /system.slice",
]) {
  test(`${text.replaceAll("\n", " ")} is taken`, () => assert.deepEqual(problemsOf(text), []));
}

test("swap is refused only where the file wants it refused, and limited only with cgroup v2", () => {
  const swapping = { ...BOARD, swapBytes: MEBIBYTE, unifiedCgroups: false };
  assert.deepEqual(problemsOf("", swapping), []);
  assert.deepEqual(problemsOf("failSwapOn: true"), []);
  assert.deepEqual(problemsOf("failSwapOn: true\nmemorySwap: {swapBehavior: LimitedSwap}", swapping), [
    "c.yaml:1: failSwapOn: Invalid value: true: running with swap on is not supported, please disable swap or set failSwapOn to false",
    'c.yaml:2: memorySwap.swapBehavior: Invalid value: "LimitedSwap": is only supported with cgroup v2',
  ]);
});

test("thresholds for containerfs are taken and said not to be acted upon", () => {
  const result = loadConfiguration("evictionHard: {containerfs.available: 5%}", "board", BOARD);
  assert.ok(result.ok);
  assert.deepEqual(result.notActedUpon, ["evictionHard[containerfs.available]"]);
});

test("values of the file, and those that follow from the board, are reported", () => {
  const result = loadConfiguration(
    "maxPods: 9\nevictionHard: {memory.available: 30Mi}\nwasm: {startTimeout: 3s}",
    "board",
    BOARD,
  );
  assert.ok(result.ok);
  assert.deepEqual(result.origins.given, [
    "maxPods",
    "evictionHard",
    "evictionHard[memory.available]",
    "wasm",
    "wasm.startTimeout",
  ]);
  assert.deepEqual(
    result.origins.derived.map(({ path }) => path),
    ["page.enabled", "kubeReserved.memory", "kubeReserved.pid"],
  );
  const other = loadConfiguration("systemReserved: {}", "board", BOARD);
  assert.deepEqual(other.ok && other.origins.derived, [
    { path: "page.enabled", how: "off below 1024 MiB; this board has 512 MiB" },
    { path: "evictionHard[memory.available]", how: "a tenth of 512 MiB, at least 24 MiB and at most 100 MiB" },
  ]);
});

test("no text of thresholds and reservations makes it throw, and what is taken is within the board", () => {
  const name = fc.oneof(fc.constantFrom(...EVICTION_SIGNALS, "cpu", "memory", "pid", "x"), fc.string({ maxLength: 8 }));
  const value = fc.oneof(
    fc.nat(600).map((each) => `${each}Mi`),
    fc.nat(110).map((each) => `${each}%`),
    fc.constantFrom("0", "1m", "-1", "1e30", "%", "NaN%", "1.5Gi", "9999999Pi"),
    fc.string({ maxLength: 8 }),
  );
  const fields = [
    ...["evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "kubeReserved"],
    ...["systemReserved", "qosReserved", "cpuManagerPolicyOptions", "topologyManagerPolicyOptions"],
  ];
  const document = fc.dictionary(fc.constantFrom(...fields), fc.dictionary(name, value, { maxKeys: 4 }));
  let taken = 0;
  fc.assert(
    fc.property(document, (each) => {
      const result = loadConfiguration(JSON.stringify(each), "board", BOARD);
      if (result.ok) taken += 1;
      else assert.notEqual(result.problems.length, 0);
    }),
    { numRuns: 1500, seed: 5 },
  );
  assert.ok(taken > 20, String(taken));
});
