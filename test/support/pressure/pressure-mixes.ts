/** Random mixes of pods for a board that runs short of something: from a seed, so that a bad one can be had again. */
import type { Random } from "@picolet/protocol/ports.ts";
import { BUSYBOX_IMAGE } from "../containerd/test-images.ts";
import { seededRandom } from "../unit/ports/seeded-random.ts";

/** The resource that a misbehaving pod uses up. */
export type Resource = "memory" | "disk" | "inodes" | "pids";

export interface MixedPod {
  readonly name: string;
  /** Static pods come from a manifest, and are never evicted. */
  readonly source: "api" | "static";
  readonly runtime: "container" | "component";
  readonly priority: "low" | "normal" | "high";
  /** The memory that it holds, and its request; undefined: none. */
  readonly holdMiB: number;
  readonly requestMiB: number | undefined;
  readonly limitMiB: number | undefined;
  /** Requests ephemeral storage, more than it uses. */
  readonly requestsDisk: boolean;
  /** Undefined: it behaves. */
  readonly usesUp: Resource | undefined;
  /** MiB, files or processes a second; 0: as fast as it can. */
  readonly rate: number;
}

export interface PressureMix {
  readonly seed: number;
  readonly pods: readonly MixedPod[];
}

export const PRIORITIES: Readonly<Record<MixedPod["priority"], number>> = { low: -10, normal: 0, high: 1_000 };
/** The memory of a container beside what it holds: its pause process, page tables, the kernel's own memory for it. */
const OVERHEAD_MIB = 12;
/** Bounds the memory of all that behave, of the 300 MiB for pods on a 512 MB board. */
const MOST_HELD_MIB = 90;
const RATES: Readonly<Record<Resource, readonly number[]>> = {
  memory: [10, 30, 100, 0],
  disk: [40, 150, 0],
  inodes: [1_500, 4_000],
  pids: [60, 200],
};

/** One pod that misbehaves, now and then two, beside one to six that do not. */
export function pressureMix(seed: number): PressureMix {
  const random = seededRandom(seed);
  const culprits = Array.from({ length: chance(random, 0.2) ? 2 : 1 }, (_, index) => culprit(random, `bad-${index}`));
  const others: MixedPod[] = [];
  const count = 1 + Math.floor(random.next() * 6);
  for (let held = 0; others.length < count; held += others.at(-1)?.holdMiB ?? 0)
    others.push(bystander(random, `good-${others.length}`, MOST_HELD_MIB - held));
  return { seed, pods: [...others, ...culprits] };
}

function culprit(random: Random, name: string): MixedPod {
  const usesUp = pick(random, ["memory", "memory", "disk", "inodes", "pids"] as const);
  const requestMiB = pick(random, [undefined, 8]);
  const common = { name, source: "api", runtime: "container", holdMiB: 0, limitMiB: undefined } as const;
  const rate = pick(random, RATES[usesUp]);
  return { ...common, priority: anyPriority(random), requestMiB, requestsDisk: false, usesUp, rate };
}

function bystander(random: Random, name: string, leftMiB: number): MixedPod {
  const isComponent = leftMiB > 40 && chance(random, 0.2);
  const holdMiB = isComponent ? 30 : Math.floor(random.next() * Math.min(24, Math.max(1, leftMiB)));
  const enough = holdMiB + (isComponent ? 34 : OVERHEAD_MIB);
  // Guaranteed, burstable within or beyond what it asks for, best effort.
  const [requestMiB, limitMiB] = pick(random, [
    [enough, enough],
    [enough, undefined],
    [1, undefined],
    [undefined, undefined],
  ] as const);
  return {
    name,
    source: chance(random, 0.25) ? "static" : "api",
    runtime: isComponent ? "component" : "container",
    priority: anyPriority(random),
    ...{ holdMiB, requestMiB, limitMiB },
    requestsDisk: chance(random, 0.5),
    ...{ usesUp: undefined, rate: 0 },
  };
}

/**
 * As its manifest says it. What misbehaves leaves a volume full, or its own layer. With less of an emulated CPU a start
 * takes minutes.
 */
export function manifestOf(pod: MixedPod, nodeName: string): unknown {
  const { name, source, runtime, priority, usesUp } = pod;
  const amount = (mebibytes: number | undefined): object =>
    mebibytes === undefined ? {} : { memory: `${mebibytes}Mi`, ...(pod.limitMiB === undefined ? {} : { cpu: "200m" }) };
  const disk = pod.requestsDisk ? { "ephemeral-storage": "64Mi" } : {};
  const resources = { requests: { ...amount(pod.requestMiB), ...disk }, limits: amount(pod.limitMiB) };
  const program =
    runtime === "component"
      ? { image: "file:///opt/picolet/dist/examples/hello.wasm" }
      : { image: BUSYBOX_IMAGE, command: commandOf(pod), volumeMounts: [{ name: "data", mountPath: "/data" }] };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", labels: { app: name } },
    spec: {
      ...(source === "static" ? {} : { nodeName, priorityClassName: `mix-${priority}` }),
      ...(runtime === "component" ? { runtimeClassName: "wasm" } : { volumes: [{ name: "data", emptyDir: {} }] }),
      terminationGracePeriodSeconds: 1,
      // A pod that the OOM killer ends must not come back.
      restartPolicy: usesUp === "memory" ? "Never" : "Always",
      containers: [{ name: "app", imagePullPolicy: "Never", resources, ...program }],
    },
  };
}

function commandOf({ usesUp, rate, holdMiB }: MixedPod): readonly string[] {
  if (usesUp === "memory") return ["load", "leak", String(rate)];
  if (usesUp === "disk") return ["load", "fill", "/data", String(rate)];
  if (usesUp === "inodes") return ["load", "inodes", "/data", String(rate)];
  if (usesUp === "pids") return ["load", "fork", String(rate)];
  return ["load", "hold", String(holdMiB)];
}

const chance = (random: Random, share: number): boolean => random.next() < share;
const anyPriority = (random: Random): MixedPod["priority"] =>
  pick(random, ["low", "normal", "normal", "high"] as const);

function pick<T>(random: Random, from: readonly T[]): T {
  const chosen = from[Math.floor(random.next() * from.length)];
  if (chosen === undefined && from.length === 0) throw new Error("nothing to choose from");
  return chosen as T;
}
