import assert from "node:assert/strict";
import { test } from "node:test";
import { settledMemory } from "@picolet/test/support/unit/machine/held-memory.ts";
import { anyUsageSample, usageSample } from "@picolet/test/support/unit/tunnel/usage-samples.ts";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import { decodeCbor, encodeCbor } from "../tunnel/encoding/cbor.ts";
import { SampleDecoder, SampleEncoder } from "./sample-codec.ts";
import { LengthPrefixedReader } from "./stream-messages.ts";
import {
  MAX_POD_CONTAINERS,
  MAX_SAMPLED_CONTAINERS,
  MAX_SAMPLED_PODS,
  type PodSample,
  type UsageSample,
} from "./usage-sample.ts";

/** The message of a frame. */
function unframed(frame: Uint8Array): Uint8Array {
  const [message, ...others] = new LengthPrefixedReader().push(frame);
  assert.ok(message !== undefined && others.length === 0);
  return message;
}

const byName = (one: PodSample, other: PodSample): number => key(one).localeCompare(key(other));
const key = ({ pod: { namespace, name, uid } }: PodSample): string => `${namespace}/${name}/${uid}`;
const sorted = (sample: UsageSample): UsageSample => ({ ...sample, pods: sample.pods.toSorted(byName) });

test("samples come back as they were, whatever came, went or counted backwards between them", () => {
  fc.assert(
    fc.property(fc.array(anyUsageSample, { maxLength: 8 }), (samples) => {
      const [encoder, decoder] = [new SampleEncoder(), new SampleDecoder()];
      for (const [index, sample] of samples.entries()) {
        const back = decoder.decode(unframed(encoder.encode(index + 1, sample)));
        assert.equal(back.sequence, index + 1);
        assert.deepEqual(sorted(back.sample), sorted(sample));
      }
    }),
    { numRuns: 500 },
  );
});

test("with ten pods a minute costs at most 300 bytes, and the first at most 1,200", () => {
  const encoder = new SampleEncoder();
  const sizes = Array.from({ length: 60 }, (_, minute) => encoder.encode(minute + 1, usageSample(10, minute)).length);
  const [first = 0, ...others] = sizes;
  assert.ok(first <= 1200, `${first} bytes`);
  assert.ok(Math.max(...others) <= 300, `${Math.max(...others)} bytes`);
});

test("a container that began again is reported with its new beginning", () => {
  const [encoder, decoder] = [new SampleEncoder(), new SampleDecoder()];
  const next = (sequence: number, sample: UsageSample): PodSample | undefined =>
    decoder.decode(unframed(encoder.encode(sequence, sample))).sample.pods[0];
  const [whole] = usageSample(1, 1).pods;
  assert.ok(whole !== undefined);
  // A UID is any text: in the decoder it is behind the names.
  const pod = { ...whole.pod, uid: "a/b//c" };
  assert.deepEqual(next(1, { ...usageSample(1, 1), pods: [{ ...whole, pod }] })?.pod, pod);
  const containers = pod.containers.map((each) => ({ ...each, sinceSeconds: each.sinceSeconds + 90 }));
  const again = next(2, { ...usageSample(1, 2), pods: [{ ...whole, pod: { ...pod, containers } }] });
  assert.deepEqual(again?.pod, { ...pod, containers });
});

test("a hub keeps at most 5 KiB between the samples of a board with ten pods", async () => {
  const boards = 1000;
  const messages = ((): readonly Uint8Array[] => {
    const encoder = new SampleEncoder();
    return [1, 2, 3].map((minute) => unframed(encoder.encode(minute, usageSample(10, minute))));
  })();
  const decoders: SampleDecoder[] = [];
  const feed = (count: number): void => {
    for (let board = 0; board < count; board += 1) {
      const decoder = new SampleDecoder();
      for (const message of messages) decoder.decode(message);
      decoders.push(decoder);
    }
  };
  feed(50);
  const before = await settledMemory();
  feed(boards);
  const after = await settledMemory();
  const kib = (after.heap + after.buffers - before.heap - before.buffers) / boards / 1024;
  assert.ok(kib <= 5, `${kib.toFixed(2)} KiB`);
  assert.equal(decoders.length, boards + 50);
});

/** Pods of so many containers each. */
function crowd(pods: number, containers: number): UsageSample {
  const [one] = usageSample(1, 1).pods;
  assert.ok(one !== undefined);
  const usage = { cpuMs: 2 ** 43, workingSetBytes: 2 ** 51 };
  const name = "n".repeat(250);
  return {
    ...usageSample(0, 1),
    pods: Array.from({ length: pods }, (_, index) => ({
      usage,
      containers: Array.from({ length: containers }, () => usage),
      pod: {
        ...one.pod,
        name: `${name}${index}`,
        containers: Array.from({ length: containers }, (__, at) => ({
          name: `${"c".repeat(60)}${at}`,
          sinceSeconds: 1_769_860_800,
        })),
      },
    })),
  };
}

for (const [pods, containers] of [
  [MAX_SAMPLED_PODS + 40, 1],
  [100, MAX_POD_CONTAINERS],
  [3, MAX_POD_CONTAINERS + 1],
] as const) {
  test(`${pods} pods of ${containers} containers: the new ones come little by little, up to the limits`, () => {
    const [encoder, decoder] = [new SampleEncoder(), new SampleDecoder()];
    let last: UsageSample | undefined;
    const counts: number[] = [];
    for (let sequence = 1; sequence <= 20; sequence += 1) {
      const frame = encoder.encode(sequence, crowd(pods, containers));
      assert.ok(frame.length <= 64 * 1024, `${frame.length} bytes`);
      last = decoder.decode(unframed(frame)).sample;
      counts.push(last.pods.length);
    }
    const fitting = Math.min(pods, MAX_SAMPLED_PODS, Math.floor(MAX_SAMPLED_CONTAINERS / containers));
    assert.equal(counts.at(-1), containers > MAX_POD_CONTAINERS ? 0 : fitting, counts.join(" "));
  });
}

const frames = ((): readonly Uint8Array[] => {
  const encoder = new SampleEncoder();
  return [1, 2, 3].map((minute) => unframed(encoder.encode(minute, usageSample(3, minute))));
})();

test("bytes that are cut off, flipped or anything at all are refused, or are samples within the limits", () => {
  const flips = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 3 });
  const damaged = fc.tuple(fc.nat({ max: frames.length - 1 }), flips).map(([which, all]) => {
    const copies = frames.map((each) => Uint8Array.from(each));
    const bytes = copies[which] ?? new Uint8Array(1);
    for (const [at, mask] of all) bytes[at % bytes.length] = (bytes[at % bytes.length] ?? 0) ^ mask;
    return copies;
  });
  const anything = fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 3 });
  fc.assert(
    fc.property(fc.oneof(damaged, anything), (messages) => {
      const decoder = new SampleDecoder();
      try {
        for (const message of messages) checkSample(decoder.decode(message).sample);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
      }
    }),
    { numRuns: 3000 },
  );
});

function checkSample({ atMs, node, board, filesystems, pods }: UsageSample): void {
  const usages = pods.flatMap(({ usage, containers }) => [usage, ...containers]);
  const rows = [node, board, ...Object.values(filesystems), ...usages.map((usage) => usage ?? {})];
  for (const value of [atMs, ...rows.flatMap((each) => Object.values<number>(each))]) {
    assert.ok(Number.isSafeInteger(value) && value >= 0, String(value));
  }
  assert.ok(pods.length <= MAX_SAMPLED_PODS);
  for (const { pod, containers } of pods) {
    assert.equal(containers.length, pod.containers.length);
    assert.match(`${pod.namespace}/${pod.name}`, /^[a-z0-9./-]+$/);
  }
}

const LIFE = ["5f0f6f3e", 1];
const row = (slot: number, containers: number): unknown[] => [
  ...[slot, "default", `pod-${slot}`, `uid-${slot}`, 0],
  ...Array.from({ length: containers }, (_, index) => [`c${index}`, 0]).flat(),
];
const refused: readonly (readonly [string, unknown, RegExp])[] = [
  ["no list", 7, /it is no list/],
  ["sequence 0", [0, 1, false, LIFE, [], [], [], [], []], /sequence: 0 comes after 0/],
  ["a time before 1970", [1, -1, false, LIFE, [], [], [], [], []], /time: is out of range/],
  ["a time after 2255", [1, 2 ** 53 - 1, false, LIFE, [], [], [], [], []], /time: is out of range/],
  ["no life in the first", [1, 1, false, null, [], [], [], [], []], /life: is missing/],
  ["a negative counter", [1, 1, false, LIFE, [-1], [], [], [], []], /cpuMs: is no figure/],
  ["bytes beyond 2^53", [1, 1, false, LIFE, [0, 2 ** 50], [], [], [], []], /workingSetBytes: is no figure/],
  ["a fraction", [1, 1, false, LIFE, [0.5], [], [], [], []], /cpuMs: is no figure/],
  ["a slot that leaves a gap", [1, 1, false, LIFE, [], [], [], [row(1, 0)], []], /slot: is out of range/],
  ["a name that is none", [1, 1, false, LIFE, [], [], [], [[0, "a\nb", "x", "u", 0]], []], /namespace/],
  ["too many containers", [1, 1, false, LIFE, [], [], [], [row(0, MAX_POD_CONTAINERS + 1)], []], /are over 64/],
  [
    "too many containers together",
    [1, 1, false, LIFE, [], [], [], Array.from({ length: 17 }, (_, slot) => row(slot, MAX_POD_CONTAINERS)), []],
    /of all pods are over 1024/,
  ],
  ["a pod without its figures", [1, 1, false, LIFE, [], [], [], [row(0, 1)], []], /pod-0: is no list/],
];
for (const [what, message, problem] of refused) {
  test(`refused: ${what}`, () => {
    assert.throws(
      () => new SampleDecoder().decode(encodeCbor(message)),
      (error) => isPicoletError(error, "invalid") && problem.test(error.message),
    );
  });
}

test("a sequence that does not grow is refused", () => {
  const decoder = new SampleDecoder();
  const [message = new Uint8Array()] = frames;
  decoder.decode(message);
  assert.throws(() => decoder.decode(message), /sequence: 1 comes after 1/);
});

test("what a newer board adds at the end of a row is passed over, and what an older one lacks is missing", () => {
  const message = [1, 5, false, [...LIFE, "new"], [1, 2, 3, 4, 5, 6, 7], [[9], null, null, [4]], [], [row(0, 1)]];
  const newer = [...message, [[1, 2, 3, 4, 5, 6]], "new"];
  const { sample } = new SampleDecoder().decode(encodeCbor(decodeCbor(encodeCbor(newer))));
  assert.deepEqual(sample.node, {
    ...{ cpuMs: 1, workingSetBytes: 2048, memoryCapacityBytes: 3072, swapBytes: 4096, processes: 5 },
  });
  assert.deepEqual(sample.filesystems, { nodefs: { capacityBytes: 9216 } });
  assert.deepEqual(sample.board, {});
  assert.deepEqual(sample.pods[0]?.containers, [{ cpuMs: 3, workingSetBytes: 4096 }]);
});
