import assert from "node:assert/strict";
import { test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { groupLimits } from "./dense-processes.ts";

const base = { cpuShares: 102, cpuPeriodUs: 100_000, cpuQuotaUs: 10_000, memoryLimitBytes: 16 * MEBIBYTE };

test("a process may take the sum of its containers' limits, and its own base", () => {
  assert.deepEqual(groupLimits([base, { ...base, cpuShares: 2 }]), {
    cpuShares: 104,
    cpuPeriodUs: 100_000,
    cpuQuotaUs: 20_000,
    memoryLimitBytes: (2 * 16 + 24 + 2) * MEBIBYTE,
    pidsLimit: 64,
  });
});

test("one without a limit leaves the process without", () => {
  const { memoryLimitBytes, cpuQuotaUs } = groupLimits([base, { ...base, memoryLimitBytes: -1 }]);
  assert.deepEqual([memoryLimitBytes, cpuQuotaUs], [-1, 20_000]);
  assert.equal(groupLimits([base, { ...base, cpuQuotaUs: undefined }]).cpuQuotaUs, -1);
  assert.deepEqual(groupLimits([]), {
    ...{ cpuShares: 2, cpuPeriodUs: undefined, cpuQuotaUs: -1, memoryLimitBytes: -1, pidsLimit: 64 },
  });
});

test("on cgroup v2 it may take as much swap as they may, and keeps the memory that they ask for", () => {
  const guaranteed = {
    ...base,
    memoryMinBytes: 16 * MEBIBYTE,
    memoryLowBytes: 0,
    memoryHighBytes: -1,
    swapLimitBytes: 0,
  };
  const burstable = {
    ...base,
    memoryMinBytes: 0,
    memoryLowBytes: 8 * MEBIBYTE,
    memoryHighBytes: 15 * MEBIBYTE,
    swapLimitBytes: MEBIBYTE,
  };
  const { memoryMinBytes, memoryLowBytes, memoryHighBytes, swapLimitBytes } = groupLimits([guaranteed, burstable]);
  assert.deepEqual([memoryMinBytes, memoryLowBytes, swapLimitBytes], [16 * MEBIBYTE, 8 * MEBIBYTE, MEBIBYTE]);
  assert.equal(memoryHighBytes, undefined, "it would slow all of them down");
  assert.equal(groupLimits([guaranteed]).swapLimitBytes, 0);
  assert.equal(groupLimits([guaranteed, { ...burstable, swapLimitBytes: -1 }]).swapLimitBytes, -1);
});
