import assert from "node:assert/strict";
import { test } from "node:test";
import { evictionDistances } from "./eviction-distances.ts";
import { type EvictionSettings, evictionThresholds } from "./eviction-thresholds.ts";

const SETTINGS: EvictionSettings = {
  evictionHard: { "memory.available": "100", "nodefs.available": "10%", "pid.available": "5" },
  evictionSoft: { "memory.available": "300" },
  evictionSoftGracePeriod: { "memory.available": "1m" },
  evictionMinimumReclaim: {},
  enforceNodeAllocatable: [],
};

test("what is left until a hard threshold is met; 0 when it is, and nothing of what is unknown", () => {
  const distances = evictionDistances(
    evictionThresholds(SETTINGS),
    new Map([
      ["memory.available", { available: 250, capacity: 1000 }],
      ["nodefs.available", { available: 60, capacity: 1000 }],
    ]),
  );
  assert.deepEqual(
    [...distances],
    [
      ["memory.available", 150],
      ["nodefs.available", 0],
    ],
  );
});
