/** Against real snapshots of this process: V8 names its parts as it likes. */
import assert from "node:assert/strict";
import { Session } from "node:inspector/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type HeapByOwner, type HeapKind, heapByOwner } from "./heap-owners.ts";
import { HeapSnapshotReader } from "./heap-snapshot.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** @param characters of a piece; the reader gets them one after the other */
async function ownHeap(characters = Number.POSITIVE_INFINITY): Promise<HeapByOwner> {
  const session = new Session();
  session.connect();
  const urls = new Map<number, string>();
  session.on("Debugger.scriptParsed", ({ params }) => urls.set(Number(params.scriptId), params.url));
  const reader = new HeapSnapshotReader();
  session.on("HeapProfiler.addHeapSnapshotChunk", ({ params: { chunk } }) => {
    for (let at = 0; at < chunk.length; at += characters) reader.push(chunk.slice(at, at + characters));
  });
  await session.post("Debugger.enable");
  await session.post("HeapProfiler.takeHeapSnapshot", { exposeInternals: true });
  session.disconnect();
  return heapByOwner(reader.end(), { urls, sourceAt: ({ url }) => url });
}

class Kept {
  readonly numbers: readonly number[];
  readonly bytes: Uint8Array;

  constructor(size: number) {
    this.bytes = new Uint8Array(size);
    this.numbers = Array.from({ length: size }, (_, index) => index + 0.5);
  }
}

const OWN = import.meta.url;
const of = (heap: HeapByOwner, kind: HeapKind): number => heap.owned.get(OWN)?.[kind] ?? 0;

test("what an object alone keeps belongs to the file of its class", async () => {
  const before = await ownHeap();
  const kept = new Kept(102_400);
  const after = await ownHeap();
  const grown = of(after, "data") - of(before, "data");
  // Eight bytes a number.
  assert.ok(grown > 780 && grown < 1100, `${grown} KiB of ${kept.numbers.length} numbers`);
  const buffers = of(after, "array buffers") - of(before, "array buffers");
  assert.ok(buffers > 99 && buffers < 120, `${buffers} KiB of ${kept.bytes.length} bytes`);
});

test("functions of a file belong to it, with its text, and the sum is the heap that V8 counts", async () => {
  collect();
  const usedKiB = process.memoryUsage().heapUsed / 1024;
  const heap = await ownHeap();
  const { code = 0 } = heap.owned.get(OWN) ?? {};
  assert.ok(code > 1, `${code} KiB`);
  const text = heap.owned.get(`file ${import.meta.url}`)?.["source text"] ?? 0;
  assert.ok(
    text > 1,
    JSON.stringify([...heap.owned.keys()].filter((name) => name.includes(fileURLToPath(import.meta.url)))),
  );
  const sum = heap.owned.values().reduce((all, each) => all + each.code + each.data + each["source text"], 0);
  assert.ok(Math.abs(sum - heap.heapKiB) < 1, `${sum} of ${heap.heapKiB}`);
  assert.ok(heap.heapKiB > 0.8 * usedKiB && heap.heapKiB < 1.2 * usedKiB, `${heap.heapKiB} of ${usedKiB}`);
});

test("a snapshot is the same in whatever pieces it comes", async () => {
  const [whole, pieces] = [await ownHeap(), await ownHeap(997)];
  assert.ok(Math.abs(whole.heapKiB - pieces.heapKiB) < 0.1 * whole.heapKiB, `${whole.heapKiB} and ${pieces.heapKiB}`);
});

test("a snapshot that is cut off is none", () => {
  const reader = new HeapSnapshotReader();
  reader.push(
    '{"snapshot":{"meta":{"node_fields":["type"],"edge_fields":["type"]},"node_count":1,"edge_count":0},"nodes":[1',
  );
  assert.throws(() => reader.end(), /cut off|JSON/);
});
