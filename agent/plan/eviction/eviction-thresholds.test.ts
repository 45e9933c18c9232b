import assert from "node:assert/strict";
import { test } from "node:test";
import { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import fc from "fast-check";
import {
  amountOf,
  containerfsThresholds,
  EVICTION_SIGNALS,
  type EvictionSettings,
  evictionThresholds,
  parseAmount,
} from "./eviction-thresholds.ts";

const NONE: EvictionSettings = {
  evictionHard: {},
  evictionSoft: {},
  evictionSoftGracePeriod: {},
  evictionMinimumReclaim: {},
  enforceNodeAllocatable: ["pods"],
};

/** `signal<amount`, with the grace period of a soft threshold and its minimum reclaim. */
const shown = (settings: Partial<EvictionSettings>): string[] =>
  evictionThresholds({ ...NONE, ...settings }).map(({ signal, value, gracePeriod, minReclaim }) => {
    const period = gracePeriod === undefined ? "" : ` for ${gracePeriod} ms`;
    return `${signal}<${value.text}${period}${minReclaim === undefined ? "" : ` and ${minReclaim.text}`}`;
  });

for (const [what, settings, expected] of [
  ["nothing is no threshold", {}, []],
  [
    "hard ones come before soft ones, each in the signals' order, and the pods' own last",
    {
      evictionSoft: { "nodefs.available": "20%", "memory.available": "200Mi" },
      evictionSoftGracePeriod: { "nodefs.available": "1m", "memory.available": "30s" },
      evictionHard: { "pid.available": "10%", "memory.available": "100Mi" },
      evictionMinimumReclaim: { "memory.available": "5%", "imagefs.available": "2Gi" },
    },
    [
      "memory.available<100Mi and 5%",
      "pid.available<10%",
      "memory.available<200Mi for 30000 ms and 5%",
      "nodefs.available<20% for 60000 ms",
      "allocatableMemory.available<100Mi and 5%",
    ],
  ],
  [
    "the pods' own cgroup has none where it is not enforced",
    { evictionHard: { "memory.available": "100Mi" }, enforceNodeAllocatable: ["none"] },
    ["memory.available<100Mi"],
  ],
  [
    "none, and all, are no thresholds",
    { evictionHard: { "memory.available": "0", "nodefs.available": "0%", "imagefs.available": "100%" } },
    [],
  ],
  [
    "a soft one that waits for nothing is a hard one",
    { evictionSoft: { "memory.available": "10%" }, evictionSoftGracePeriod: { "memory.available": "0s" } },
    ["memory.available<10%", "allocatableMemory.available<10%"],
  ],
  ["those for containerfs are left out", { evictionHard: { "containerfs.available": "5%" } }, []],
] as const satisfies readonly (readonly [string, Partial<EvictionSettings>, readonly string[]])[]) {
  test(what, () => assert.deepEqual(shown(settings), expected));
}

test("containerfs has the thresholds of the file system that it is", () => {
  const thresholds = evictionThresholds({
    ...NONE,
    evictionHard: { "nodefs.available": "10%", "imagefs.available": "15%", "nodefs.inodesFree": "5%" },
    evictionMinimumReclaim: { "nodefs.available": "1Gi" },
  });
  const of = (sameAs: "nodefs" | "imagefs"): string[] =>
    containerfsThresholds(thresholds, sameAs).map(({ signal, value, minReclaim }) => {
      return `${signal}<${value.text} ${minReclaim?.text ?? ""}`.trim();
    });
  assert.deepEqual(of("nodefs"), ["containerfs.available<10% 1Gi", "containerfs.inodesFree<5%"]);
  assert.deepEqual(of("imagefs"), ["containerfs.available<15%"]);
});

for (const [text, capacity, expected] of [
  ["100Mi", 1, 104_857_600],
  ["12.5%", 1000, 125],
  ["10%", 1005, 100],
  ["1e3", 0, 1000],
] as const) {
  test(`${text} of ${capacity}`, () => {
    const amount = parseAmount(text, "", new FieldProblems());
    assert.equal(amount === undefined ? undefined : amountOf(amount, capacity), expected);
  });
}

test("no text makes it throw, and what it takes is neither negative nor more than all", () => {
  const number = fc.oneof(fc.double().map(String), fc.integer().map(String), fc.string({ maxLength: 6 }));
  const text = fc.tuple(number, fc.constantFrom("", "%", "%%", "Mi", "m", "E", " %")).map((parts) => parts.join(""));
  const bySignal = fc.dictionary(fc.oneof(fc.constantFrom(...EVICTION_SIGNALS), fc.string()), text);
  fc.assert(
    fc.property(bySignal, bySignal, bySignal, (evictionHard, evictionSoft, evictionSoftGracePeriod) => {
      const settings = { ...NONE, evictionHard, evictionSoft, evictionSoftGracePeriod };
      for (const { value } of evictionThresholds(settings)) {
        assert.ok(amountOf(value, 1000) >= 0);
        if (value.kind === "percentage") assert.ok(value.share > 0 && value.share < 1);
      }
    }),
  );
});
