import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { readsAndWritesOf, straceTotals, wakeupsOf } from "./process-usage.ts";

test("waiting for something is a wake-up", async () => {
  const before = wakeupsOf(process.pid);
  assert.ok(before > 0);
  await once(spawn("true"), "exit");
  assert.ok(wakeupsOf(process.pid) > before);
});

test("system calls that read and write are counted", () => {
  const before = readsAndWritesOf(process.pid);
  for (let index = 0; index < 10; index += 1) readFileSync("/proc/self/status");
  assert.ok(readsAndWritesOf(process.pid) >= before + 10);
});

test("strace's summary is read, with errors and without", () => {
  const summary = `strace: Process 1 attached with 2 threads
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.001200           2       600           read
 40.00    0.000800           1       712         3 openat
------ ----------- ----------- --------- --------- ----------------
100.00    0.002000           1      1312         3 total
`;
  const expected = { read: 600, openat: 712, total: 1312 };
  assert.deepEqual(Object.fromEntries(straceTotals(summary)), expected);
});
