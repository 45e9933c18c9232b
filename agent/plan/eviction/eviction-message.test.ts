import assert from "node:assert/strict";
import { test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import { GIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { runningContainer } from "@picolet/test/support/unit/pods/usage-pods.ts";
import type { DiskUsage, PodUsage, Usage } from "../../core/node/usage.ts";
import { evictionMessage } from "./eviction-message.ts";
import type { Observation } from "./eviction-signals.ts";
import type { Amount, EvictionSignal } from "./eviction-thresholds.ts";
import type { EvictionCandidate } from "./rank-for-eviction.ts";

type Spec = NonNullable<Parameters<typeof podOf>[0]>;

/** What is used, by container. */
interface Used {
  /** Bytes: in RAM, swapped out. */
  readonly memory?: Readonly<Record<string, readonly [ram: number, swap?: number]>>;
  /** Bytes: root file system, logs. */
  readonly disk?: Readonly<Record<string, readonly [rootfs: number, logs: number | undefined]>>;
}

function candidate(spec: Spec, { memory, disk }: Used): EvictionCandidate {
  const pod = desired(podOf(spec, { name: "db" }));
  const usageOf = ([ram, swap = 0]: readonly [number, number?]): Usage =>
    ({ workingSetBytes: ram, swapBytes: swap }) as Usage;
  const usage: PodUsage | undefined =
    memory === undefined
      ? undefined
      : {
          pod: { desired: pod } as PodUsage["pod"],
          path: "",
          usage: undefined,
          containers: Object.entries(memory).map(([name, used]) => ({
            ...{ container: runningContainer(name), startedAtMs: 0, path: "" },
            usage: usageOf(used),
          })),
        };
  const bytesOf = (index: 0 | 1): ReadonlyMap<string, DiskUsage> =>
    new Map(
      Object.entries(disk ?? {}).flatMap(([name, parts]) => {
        const bytes = parts[index];
        return bytes === undefined ? [] : [[name, { bytes, inodes: 1 }] as const];
      }),
    );
  const files = { rootfs: bytesOf(0), logs: bytesOf(1), volumes: new Map<string, DiskUsage>(), otherBytes: 0, atMs: 0 };
  return { pod, usage, disk: disk === undefined ? undefined : files };
}

const requesting = (name: string, requests: Readonly<Record<string, string>> = {}) => ({
  ...{ name, image: "a" },
  resources: { requests },
});
const quantity = (text: string): Amount => ({ kind: "quantity", value: 0, text });
const share = (of: number): Amount => ({ kind: "percentage", share: of, text: `${of * 100}%` });

interface Case {
  readonly title: string;
  readonly signal: EvictionSignal;
  readonly value: Amount;
  readonly observed: Observation;
  readonly spec?: Spec;
  readonly used?: Used;
  readonly message: string;
}

const SHORT: Observation = { available: 90 * MEBIBYTE, capacity: GIBIBYTE };
const LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. ";
const memory = { signal: "memory.available", value: quantity("100Mi"), observed: SHORT } as const;

const CASES: readonly Case[] = [
  { ...memory, title: "nothing is known of the pod", message: LOW },
  {
    ...memory,
    title: "a container that asks for nothing",
    used: { memory: { app: [300 * MEBIBYTE] } },
    message: `${LOW}Container app was using 300Mi, request is 0, has larger consumption of memory. `,
  },
  {
    ...memory,
    title: "those within their request, or at it, are left out",
    spec: { containers: ["64Mi", "65Mi", "1Mi"].map((each, index) => requesting(`c${index}`, { memory: each })) },
    used: { memory: { c0: [64 * MEBIBYTE], c1: [64 * MEBIBYTE], c2: [64 * MEBIBYTE] } },
    message: `${LOW}Container c2 was using 64Mi, request is 1Mi, has larger consumption of memory. `,
  },
  {
    ...memory,
    title: "a request is told in its canonical form, what is used in the largest unit that is exact",
    spec: { containers: [requesting("a", { memory: "1024Ki" }), requesting("b", { memory: "1000000" })] },
    used: { memory: { a: [3 * MEBIBYTE + 1024], b: [2 * MEBIBYTE + 1] } },
    message:
      `${LOW}Container a was using 3073Ki, request is 1Mi, has larger consumption of memory. ` +
      "Container b was using 2097153, request is 1M, has larger consumption of memory. ",
  },
  {
    ...memory,
    title: "what is swapped out counts",
    spec: { containers: [requesting("app", { memory: "100Mi" })] },
    used: { memory: { app: [90 * MEBIBYTE, 30 * MEBIBYTE] } },
    message: `${LOW}Container app was using 120Mi, request is 100Mi, has larger consumption of memory. `,
  },
  {
    ...memory,
    title: "init containers come after the others; those that do not run have no figures",
    spec: { containers: [requesting("app")], initContainers: [requesting("setup"), requesting("over")] },
    used: { memory: { app: [MEBIBYTE], setup: [2 * MEBIBYTE] } },
    message:
      `${LOW}Container app was using 1Mi, request is 0, has larger consumption of memory. ` +
      "Container setup was using 2Mi, request is 0, has larger consumption of memory. ",
  },
  {
    ...memory,
    title: "a pod that asks for all of its containers is told as a whole, within its request or not",
    spec: { resources: { requests: { memory: "524288Ki" } }, containers: [requesting("app", { memory: "500Mi" })] },
    used: { memory: { app: [300 * MEBIBYTE], neighbour: [100 * MEBIBYTE] } },
    message: `${LOW}Pod db was using 400Mi, request is 512Mi, has larger consumption of memory. `,
  },
  {
    ...memory,
    title: "a share is told as what it comes to",
    value: share(0.1),
    message: "The node was low on resource: memory. Threshold quantity: 107374182, available: 90Mi. ",
  },
  {
    ...memory,
    title: "a quantity is told as it is configured, canonically",
    value: quantity("0.5Gi"),
    message: "The node was low on resource: memory. Threshold quantity: 512Mi, available: 90Mi. ",
  },
  {
    title: "a container's files are what it has written and its logs",
    signal: "nodefs.available",
    value: share(0.125),
    observed: { available: 0, capacity: GIBIBYTE },
    spec: { containers: ["a", "b"].map((name) => requesting(name, { "ephemeral-storage": "10Mi" })) },
    used: { disk: { a: [6 * MEBIBYTE, 5 * MEBIBYTE], b: [6 * MEBIBYTE, 4 * MEBIBYTE] } },
    message:
      "The node was low on resource: ephemeral-storage. Threshold quantity: 128Mi, available: 0. " +
      "Container a was using 11Mi, request is 10Mi, has larger consumption of ephemeral-storage. ",
  },
  {
    title: "a container of whose files one half is not known is left out",
    signal: "imagefs.available",
    value: quantity("1Gi"),
    observed: { available: 1_000, capacity: GIBIBYTE },
    used: { disk: { app: [6 * MEBIBYTE, undefined] } },
    message: "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 1k. ",
  },
  {
    title: "inodes are told in thousands, and no container is blamed for them",
    signal: "nodefs.inodesFree",
    value: quantity("5000"),
    observed: { available: 2_000, capacity: 65_536 },
    used: { disk: { app: [MEBIBYTE, MEBIBYTE] } },
    message: "The node was low on resource: inodes. Threshold quantity: 5k, available: 2k. ",
  },
  {
    title: "a share of inodes is told in the binary form",
    signal: "nodefs.inodesFree",
    value: share(0.0625),
    observed: { available: 3_000, capacity: 65_536 },
    message: "The node was low on resource: inodes. Threshold quantity: 4Ki, available: 3k. ",
  },
  {
    title: "processes",
    signal: "pid.available",
    value: quantity("100"),
    observed: { available: 7, capacity: 4_096 },
    used: { memory: { app: [MEBIBYTE] } },
    message: "The node was low on resource: pids. Threshold quantity: 100, available: 7. ",
  },
  {
    title: "the cgroup of all pods is memory",
    signal: "allocatableMemory.available",
    value: quantity("100Mi"),
    observed: SHORT,
    used: { memory: { app: [MEBIBYTE] } },
    message: `${LOW}Container app was using 1Mi, request is 0, has larger consumption of memory. `,
  },
];

for (const { title, signal, value, observed, spec = {}, used = {}, message } of CASES) {
  test(title, () => {
    for (const gracePeriod of [undefined, millis(30_000)]) {
      const threshold = { signal, value, gracePeriod, minReclaim: undefined };
      assert.equal(evictionMessage(threshold, observed, candidate(spec, used)), message);
    }
  });
}
