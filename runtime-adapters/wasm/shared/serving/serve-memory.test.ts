import assert from "node:assert/strict";
import { test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { MemoryGuard, serveMemory } from "./serve-memory.ts";

test("the bounds of a flood follow the limit, and are never zero", () => {
  const all = [16, 40, 64, 128, 1024].map((mib) => serveMemory(mib * MEBIBYTE));
  for (const [at, { maxConnections, maxUnsentBytes }] of all.entries()) {
    assert.ok(maxConnections >= 32 && maxConnections <= 512 && Number.isInteger(maxConnections));
    assert.ok(maxUnsentBytes >= 262_144 && maxUnsentBytes <= 8 * MEBIBYTE);
    assert.ok(maxConnections >= (all[at - 1]?.maxConnections ?? 0));
  }
  assert.equal(all[1]?.maxConnections, 192);
  assert.deepEqual(all.at(-1), serveMemory(undefined));
  // Connections of four times the weight are a quarter as many, where there is a limit.
  const heavy = [16, 40, 64].map((mib) => serveMemory(mib * MEBIBYTE, 4).maxConnections);
  assert.deepEqual(heavy, [8, 48, 96]);
});

test("a process near its limit collects garbage first, and is tight when that does not help", () => {
  let anon = 10 * MEBIBYTE;
  let garbage = 0;
  let nowMs = 0;
  let looks = 0;
  let collections = 0;
  const anonBytes = (): number => {
    looks += 1;
    return anon + garbage;
  };
  const collect = (): void => {
    collections += 1;
    garbage = 0;
  };
  const guard = new MemoryGuard({ anonBytes, collect, now: () => nowMs }, 40 * MEBIBYTE);
  assert.equal(guard.isTight, false);
  garbage = 20 * MEBIBYTE;
  assert.equal(guard.isTight, false);
  assert.equal(looks, 1, "it looks again after a while");
  nowMs += 20;
  assert.equal(guard.isTight, false);
  assert.equal(collections, 1);
  anon = 30 * MEBIBYTE;
  nowMs += 20;
  assert.equal(guard.isTight, true);
  assert.equal(collections, 1, "not again so soon");
  nowMs += 1000;
  assert.equal(guard.isTight, true);
  assert.equal(collections, 2);
  anon = 10 * MEBIBYTE;
  nowMs += 20;
  assert.equal(guard.isTight, false);
  const unlimited = new MemoryGuard({ anonBytes, collect, now: () => nowMs }, undefined);
  anon = 1000 * MEBIBYTE;
  assert.equal(unlimited.isTight, false);
});
