/** The order of evictions, case by case as Kubernetes documents it under "Node-pressure Eviction". */
import assert from "node:assert/strict";
import { test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import type { DiskUsage, PodDiskUsage, PodUsage, Usage } from "../../core/node/usage.ts";
import type { DiskLayout } from "./eviction-signals.ts";
import type { EvictionSignal } from "./eviction-thresholds.ts";
import { type EvictionCandidate, rankForEviction } from "./rank-for-eviction.ts";

const ONE_DISK: DiskLayout = { dedicatedImagefs: false, splitContainerfs: false };
const OWN_IMAGEFS: DiskLayout = { dedicatedImagefs: true, splitContainerfs: false };
const SPLIT: DiskLayout = { dedicatedImagefs: true, splitContainerfs: true };

interface Figures {
  readonly priority?: number;
  /** MiB. */
  readonly memory?: number;
  /** Swapped out. */
  readonly swap?: number;
  readonly memoryRequest?: number;
  readonly pids?: number;
  /** MiB, with as many inodes. */
  readonly rootfs?: number;
  readonly logs?: number;
  readonly volumes?: number;
  readonly diskRequest?: number;
  /** Nothing of it could be read. */
  readonly unseen?: true;
}

function candidate(name: string, figures: Figures): EvictionCandidate {
  const { priority = 0, memory = 0, swap = 0, memoryRequest, pids = 1, diskRequest, unseen } = figures;
  const requests = {
    ...(memoryRequest !== undefined && { memory: `${memoryRequest}Mi` }),
    ...(diskRequest !== undefined && { "ephemeral-storage": `${diskRequest}Mi` }),
  };
  const pod = podOf({ containers: [{ name: "app", image: "a", resources: { requests } }] }, { name });
  const own = { ...desired(pod, `uid-${name}`), uid: podUid(`uid-${name}`), source: "api" } as const;
  const withPriority = { ...own, pod: { ...pod, spec: { ...pod.spec, priority } } };
  if (unseen) return { pod: withPriority, usage: undefined, disk: undefined };
  const usage = {
    usage: { workingSetBytes: memory * MEBIBYTE, swapBytes: swap * MEBIBYTE, pids } as Usage,
    containers: [],
  };
  const part = (mib = 0): ReadonlyMap<string, DiskUsage> => new Map([["app", { bytes: mib * MEBIBYTE, inodes: mib }]]);
  const { rootfs, logs, volumes } = figures;
  const disk: PodDiskUsage = {
    ...{ rootfs: part(rootfs), logs: part(logs), volumes: part(volumes) },
    otherBytes: 0,
    atMs: 0,
  };
  return { pod: withPriority, usage: usage as unknown as PodUsage, disk };
}

interface Case {
  readonly title: string;
  readonly signal: EvictionSignal;
  readonly layout?: DiskLayout;
  readonly pods: Readonly<Record<string, Figures>>;
  /** First to go first. */
  readonly order: string;
}

const CASES: readonly Case[] = [
  {
    title: "memory: above its request before below it, whatever the priority",
    signal: "memory.available",
    pods: {
      guaranteed: { memory: 400, memoryRequest: 500, priority: 0 },
      greedy: { memory: 110, memoryRequest: 100, priority: 1000 },
    },
    order: "greedy guaranteed",
  },
  {
    title: "memory: what uses exactly its request does not exceed it",
    signal: "memory.available",
    pods: { exact: { memory: 100, memoryRequest: 100 }, above: { memory: 2, memoryRequest: 1, priority: 9 } },
    order: "above exact",
  },
  {
    title: "memory: of those above their requests the least priority goes first, though it uses less",
    signal: "memory.available",
    pods: { high: { memory: 300, priority: 10 }, low: { memory: 1, priority: -5 }, mid: { memory: 900 } },
    order: "low mid high",
  },
  {
    title: "memory: of equals the one furthest above its request",
    signal: "memory.available",
    pods: {
      big: { memory: 500, memoryRequest: 450 },
      leak: { memory: 200, memoryRequest: 50 },
      nothing: { memory: 120 },
    },
    order: "leak nothing big",
  },
  {
    title: "memory: a guaranteed pod and a burstable one within its request go last, the least priority first",
    signal: "memory.available",
    pods: {
      guaranteed: { memory: 500, memoryRequest: 500, priority: 5 },
      burstable: { memory: 10, memoryRequest: 500, priority: 4 },
      besteffort: { memory: 1, priority: 100 },
    },
    order: "besteffort burstable guaranteed",
  },
  {
    title: "memory: within their requests and of one priority, the one nearest to its request",
    signal: "memory.available",
    pods: { half: { memory: 300, memoryRequest: 600 }, nearly: { memory: 90, memoryRequest: 100 } },
    order: "nearly half",
  },
  {
    title: "memory: a pod without requests exceeds them with anything, and not with nothing",
    signal: "memory.available",
    pods: { idle: { memory: 0, priority: -9 }, one: { memory: 1 } },
    order: "one idle",
  },
  {
    title: "memory: a priority class decides among those above, of the system's even",
    signal: "memory.available",
    pods: { system: { memory: 900, priority: 2_000_001_000 }, user: { memory: 20, priority: 1_000_000_000 } },
    order: "user system",
  },
  {
    title: "memory: what is swapped out counts",
    signal: "memory.available",
    pods: { resident: { memory: 200 }, swapped: { memory: 50, swap: 400 }, within: { memory: 80, memoryRequest: 100 } },
    order: "swapped resident within",
  },
  {
    title: "memory: with what is swapped out a pod can exceed its request",
    signal: "memory.available",
    pods: {
      hidden: { memory: 80, swap: 30, memoryRequest: 100, priority: 9 },
      open: { memory: 99, memoryRequest: 100 },
    },
    order: "hidden open",
  },
  {
    title: "one disk: images' threshold counts everything too",
    signal: "imagefs.available",
    pods: { writer: { rootfs: 50 }, logger: { logs: 60 }, keeper: { volumes: 70 } },
    order: "keeper logger writer",
  },
  {
    title: "one disk: what containers write, likewise",
    signal: "containerfs.inodesFree",
    pods: { writer: { rootfs: 50 }, logger: { logs: 60 } },
    order: "logger writer",
  },
  {
    title: "images apart: what containers write is with them",
    signal: "containerfs.available",
    layout: OWN_IMAGEFS,
    pods: { writer: { rootfs: 5 }, keeper: { volumes: 900, priority: 1 } },
    order: "writer keeper",
  },
  {
    title: "containers' files apart from images: their threshold counts everything on the node's disk",
    signal: "containerfs.available",
    layout: SPLIT,
    pods: { writer: { rootfs: 50 }, keeper: { volumes: 60 } },
    order: "keeper writer",
  },
  {
    title: "disk: priority before how much, above requests before priority",
    signal: "nodefs.available",
    pods: {
      within: { volumes: 500, diskRequest: 600 },
      low: { volumes: 10, priority: 1 },
      high: { volumes: 900, priority: 2 },
    },
    order: "low high within",
  },
  {
    title: "inodes: priority before how many",
    signal: "imagefs.inodesFree",
    pods: { few: { volumes: 3, priority: 1 }, many: { volumes: 900, priority: 2 } },
    order: "few many",
  },
  {
    title: "the pods' own cgroup is ranked as memory",
    signal: "allocatableMemory.available",
    pods: { small: { memory: 10 }, large: { memory: 20 } },
    order: "large small",
  },
  {
    title: "a pod of which nothing is known is not blamed while another is known",
    signal: "memory.available",
    pods: { starting: { unseen: true, priority: -1 }, known: { memory: 5, priority: 5 } },
    order: "known starting",
  },
  {
    title: "processes: priority, then how many; requests do not count",
    signal: "pid.available",
    pods: {
      few: { pids: 3 },
      bomb: { pids: 3000 },
      important: { pids: 9000, priority: 5 },
    },
    order: "bomb few important",
  },
  {
    title: "one disk: root file systems, logs and volumes count together against the request",
    signal: "nodefs.available",
    layout: ONE_DISK,
    pods: {
      within: { rootfs: 100, logs: 100, volumes: 100, diskRequest: 400 },
      above: { rootfs: 10, logs: 10, volumes: 10, diskRequest: 20, priority: 100 },
    },
    order: "above within",
  },
  {
    title: "images apart: the node's disk knows logs and volumes alone",
    signal: "nodefs.available",
    layout: OWN_IMAGEFS,
    pods: { writer: { rootfs: 900, logs: 1 }, logger: { logs: 20 }, keeper: { volumes: 30 } },
    order: "keeper logger writer",
  },
  {
    title: "images apart: theirs knows what containers write alone",
    signal: "imagefs.available",
    layout: OWN_IMAGEFS,
    pods: { writer: { rootfs: 5 }, logger: { logs: 900 }, keeper: { volumes: 900, priority: 1 } },
    order: "writer logger keeper",
  },
  {
    title: "containers' files apart from images: they count on the node's disk",
    signal: "nodefs.available",
    layout: SPLIT,
    pods: { writer: { rootfs: 50 }, logger: { logs: 20 } },
    order: "writer logger",
  },
  {
    title: "containers' files apart from images: nothing of a pod is with the images, priority decides",
    signal: "imagefs.available",
    layout: SPLIT,
    pods: { writer: { rootfs: 50, priority: 1 }, logger: { logs: 2 } },
    order: "logger writer",
  },
  {
    title: "inodes: a request of bytes is none of inodes",
    signal: "nodefs.inodesFree",
    pods: { files: { volumes: 900, diskRequest: 1000 }, few: { volumes: 3 } },
    order: "files few",
  },
];

for (const { title, signal, layout = ONE_DISK, pods, order } of CASES) {
  test(title, () => {
    const candidates = Object.entries(pods).map(([name, figures]) => candidate(name, figures));
    for (const given of [candidates, [...candidates].reverse()]) {
      const ranked = rankForEviction(given, signal, layout);
      assert.equal(ranked.map(({ pod }) => pod.pod.metadata.name).join(" "), order);
    }
  });
}

test("a ranking is one order of all pods, the same however they come", () => {
  const figures = fc.record({
    priority: fc.integer({ min: -2, max: 2 }),
    memory: fc.integer({ min: 0, max: 4 }),
    memoryRequest: fc.integer({ min: 0, max: 4 }),
  });
  fc.assert(
    fc.property(fc.array(figures, { maxLength: 8 }), (all) => {
      const candidates = all.map((each, index) => candidate(`p${index}`, each));
      const keys = (list: readonly EvictionCandidate[]): string[] =>
        rankForEviction(list, "memory.available", ONE_DISK).map(({ pod, usage }) => {
          const used = (usage?.usage?.workingSetBytes ?? 0) / MEBIBYTE;
          const request = Number.parseInt(pod.pod.spec.containers[0]?.resources.requests?.memory ?? "0", 10);
          return `${used > request} ${pod.pod.spec.priority} ${used - request}`;
        });
      const ranked = keys(candidates);
      assert.equal(ranked.length, all.length);
      assert.deepEqual(ranked, keys([...candidates].reverse()));
    }),
  );
});
