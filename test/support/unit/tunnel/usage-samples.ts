/** Samples of a board's usage, for goldens, as seeds of fuzzing and at random. */
import {
  BOARD_FIGURES,
  FILESYSTEM_FIGURES,
  FILESYSTEMS,
  NODE_FIGURES,
  type PodSample,
  type UsageSample,
} from "@picolet/protocol/telemetry/usage-sample.ts";
import fc from "fast-check";

const KIBIBYTE = 1024;
const BOOT = "5f0f6f3e-9f1e-4b59-8f51-9a0b6f9f3b11";
/** Seconds of 2026-01-31T12:00:00Z. */
const STARTED = 1_769_860_800;

/** A board with pods of one container each, `minutes` after its start, as they use at rest. */
export function usageSample(pods: number, minutes: number): UsageSample {
  const used = (scale: number): number => scale * minutes;
  return {
    atMs: (STARTED + 3600) * 1000 + minutes * 60_007,
    isEstimated: false,
    bootId: BOOT,
    agentSinceSeconds: STARTED,
    node: {
      ...{ cpuMs: 800_000 + used(1_777), workingSetBytes: (95_000 + (minutes % 7) * 212) * KIBIBYTE },
      ...{ memoryCapacityBytes: 948_220 * KIBIBYTE, swapBytes: 0, processes: 160 + (minutes % 3) },
    },
    filesystems: {
      nodefs: {
        ...{ capacityBytes: 14_800_000 * KIBIBYTE, availableBytes: (9_000_000 - used(4)) * KIBIBYTE },
        ...{ usedBytes: (5_100_000 + used(4)) * KIBIBYTE, inodes: 960_000, inodesFree: 890_000 - minutes },
      },
    },
    board: {
      ...{ agentCpuMs: used(190), agentAnonymousBytes: (19_000 + (minutes % 5) * 76) * KIBIBYTE },
      ...{ tunnelReceivedBytes: used(1024), tunnelSentBytes: used(1024), tunnelSessions: 1 },
      ...{ flashTodayBytes: used(8) * KIBIBYTE, memoryDistanceBytes: (750_000 - (minutes % 7) * 212) * KIBIBYTE },
    },
    pods: Array.from({ length: pods }, (_, index) => podSample(index, minutes)),
  };
}

function podSample(index: number, minutes: number): PodSample {
  const cpuMs = 500 + minutes * (20 + index * 7);
  const workingSetBytes = (2_000 + index * 900 + (minutes % 4) * 24) * KIBIBYTE;
  const uid = `0b5a7b3e-1f52-4d0e-9d55-${(0xd8f0a3c7e111 + index).toString(16)}`;
  return {
    pod: {
      ...{
        namespace: "default",
        name: `greenhouse-${index}-7d4f9c5b6d-x2k9${index}`,
        uid,
        sinceSeconds: STARTED + index,
      },
      containers: [{ name: "sensor", sinceSeconds: STARTED + index + 2 }],
    },
    usage: { cpuMs: cpuMs + 12, workingSetBytes: workingSetBytes + 300 * KIBIBYTE },
    containers: [{ cpuMs, workingSetBytes }],
  };
}

const count = fc.oneof(
  fc.nat({ max: 300 }),
  fc.nat(),
  fc.maxSafeNat().map((value) => Math.floor(value / KIBIBYTE)),
);

const figures = <Name extends string>(names: readonly Name[]): fc.Arbitrary<Partial<Record<Name, number>>> => {
  const each = names.map(
    (name) => [name, name.endsWith("Bytes") ? count.map((kib) => kib * KIBIBYTE) : count] as const,
  );
  return fc.record(Object.fromEntries(each), { requiredKeys: [], noNullPrototype: true }) as fc.Arbitrary<
    Partial<Record<Name, number>>
  >;
};

const usage = fc.record(
  { cpuMs: count, workingSetBytes: count.map((kib) => kib * KIBIBYTE) },
  { noNullPrototype: true },
);
const since = fc.constantFrom(0, STARTED, STARTED + 61);

const pod: fc.Arbitrary<PodSample> = fc
  .record({
    name: fc.constantFrom("a", "b", "c", "d.e"),
    namespace: fc.constantFrom("default", "kube-system"),
    uid: fc.constantFrom("u1", BOOT),
    sinceSeconds: since,
    containers: fc.uniqueArray(fc.tuple(fc.constantFrom("x", "y", "z"), since, fc.option(usage, { nil: undefined })), {
      selector: ([name]) => name,
    }),
    used: fc.option(usage, { nil: undefined }),
  })
  .map(({ containers, used, ...identity }) => ({
    pod: { ...identity, containers: containers.map(([name, sinceSeconds]) => ({ name, sinceSeconds })) },
    usage: used,
    containers: containers.map(([, , each]) => each),
  }));

/** Pods come, go, restart and count backwards from one sample to the next. */
export const anyUsageSample: fc.Arbitrary<UsageSample> = fc.record(
  {
    atMs: fc.nat({ max: 4_000_000_000_000 }),
    isEstimated: fc.boolean(),
    bootId: fc.constantFrom(BOOT, "another"),
    agentSinceSeconds: since,
    node: figures(NODE_FIGURES),
    filesystems: fc.record(Object.fromEntries(FILESYSTEMS.map((name) => [name, figures(FILESYSTEM_FIGURES)])), {
      ...{ requiredKeys: [], noNullPrototype: true },
    }),
    board: figures(BOARD_FIGURES),
    pods: fc.uniqueArray(pod, {
      selector: ({ pod: { namespace, name, uid } }) => `${namespace}/${name}/${uid}`,
      maxLength: 6,
    }),
  },
  { noNullPrototype: true },
);
