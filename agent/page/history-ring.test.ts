import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { HISTORY_SERIES, type HistoryFigures } from "@picolet/protocol/page/board-data.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import {
  appendBlock,
  BLOCK_BYTES,
  decodeBlock,
  encodeBlock,
  type HistoryBlock,
  MAX_BLOCK_SAMPLES,
  RING_BLOCKS,
  readRing,
} from "./history-ring.ts";

const BOOT = "5d1f3c1e-0d3a-4a0e-9f53-2b9d1f9f0c11";

const figures = (value: number): HistoryFigures =>
  Object.fromEntries(HISTORY_SERIES.map((name) => [name, value])) as HistoryFigures;

const block = (sequence: number, count = 2): HistoryBlock => ({
  sequence,
  boot: BOOT,
  bootedAtMs: 1_795_200_000_000,
  samples: Array.from({ length: count }, (_, index) => ({ uptimeSeconds: 60 * index, figures: figures(index) })),
});

test("a block is one page of the disk, and is read as it was written", () => {
  const written = block(7, MAX_BLOCK_SAMPLES);
  const bytes = encodeBlock(written);
  assert.equal(bytes.length, BLOCK_BYTES);
  assert.deepEqual(decodeBlock(bytes), written);
  const unknown = {
    ...block(8, 1),
    bootedAtMs: Number.NaN,
    samples: [{ uptimeSeconds: 1, figures: figures(Number.NaN) }],
  };
  assert.deepEqual(decodeBlock(encodeBlock(unknown)), unknown);
  assert.equal(decodeBlock(encodeBlock(block(9, MAX_BLOCK_SAMPLES + 5)))?.samples.length, MAX_BLOCK_SAMPLES);
});

test("a ring keeps its size, and its newest blocks", async () => {
  using folder = new TempFolder();
  const path = folder.at("page", "history");
  assert.deepEqual(await readRing(path), []);
  let next: number | undefined;
  for (let sequence = 0; sequence < RING_BLOCKS + 3; sequence += 1) next = await appendBlock(path, block(0, 1), next);
  assert.equal(statSync(path).size, RING_BLOCKS * BLOCK_BYTES);
  const sequences = (await readRing(path)).map(({ sequence }) => sequence);
  assert.deepEqual([sequences.at(0), sequences.at(-1), sequences.length], [3, RING_BLOCKS + 2, RING_BLOCKS]);
  // The next agent finds the place by itself.
  assert.equal(await appendBlock(path, block(0, 1), undefined), RING_BLOCKS + 4);
});

test("a power cut within a write costs that block alone", async () => {
  using folder = new TempFolder();
  const path = folder.at("history");
  let next: number | undefined;
  for (let count = 0; count < 4; count += 1) next = await appendBlock(path, block(0, 3), next);
  const whole = readFileSync(path);
  for (const kept of [0, 1, 63, 64, 511, 512, 2048, BLOCK_BYTES - 1]) {
    const torn = Buffer.from(whole);
    // The second block was being replaced by one of another boot.
    const other = encodeBlock({ ...block(97, 3), boot: "another" });
    torn.set(other.subarray(0, kept), BLOCK_BYTES);
    writeFileSync(path, torn);
    const sequences = (await readRing(path)).map(({ sequence }) => sequence);
    assert.deepEqual(sequences, torn.equals(whole) ? [0, 1, 2, 3] : [0, 2, 3], `${kept} bytes`);
  }
  writeFileSync(path, whole.subarray(0, BLOCK_BYTES * 2 + 100));
  assert.equal((await readRing(path)).length, 2);
});

test("no bytes make it throw, and a changed one is noticed", () => {
  const good = encodeBlock(block(3, 5));
  fc.assert(
    fc.property(fc.nat(BLOCK_BYTES - 1), fc.integer({ min: 1, max: 255 }), (at, change) => {
      const bad = Uint8Array.from(good);
      bad[at] = (bad[at] ?? 0) ^ change;
      assert.equal(decodeBlock(bad), undefined);
    }),
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: BLOCK_BYTES + 8 }), (bytes) => void decodeBlock(bytes)));
});
