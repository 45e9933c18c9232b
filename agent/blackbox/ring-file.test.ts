import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { RingFile, readLines } from "./ring-file.ts";
import { encodeLine, MAX_LINE_BYTES } from "./ring-lines.ts";

const folder = mkdtempSync(join(tmpdir(), "picolet-ring-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const SIZE = 4096;

const lineOf = (n: number, text = "x".repeat(20 + (n % 7) * 10)): Buffer => {
  const line = encodeLine({ n, text } as { n: number });
  assert.ok(line);
  return line;
};

async function sequencesIn(path: string): Promise<number[]> {
  const found: number[] = [];
  for await (const { sequence } of readLines(path)) found.push(sequence);
  return found.toSorted((a, b) => a - b);
}

/** A ring with lines from 1 to `count`, a batch each `batch` lines. */
async function ringWith(name: string, count: number, batch = 3): Promise<string> {
  const path = join(folder, name);
  const { file } = await RingFile.open(path, SIZE);
  for (let n = 1; n <= count; n += batch) {
    const lines = Array.from({ length: Math.min(batch, count - n + 1) }, (_, index) => lineOf(n + index));
    await file.append(lines);
  }
  return path;
}

test("lines are found again, the newest first of all, and the file keeps its size", async () => {
  const path = await ringWith("some", 10);
  assert.deepEqual(await sequencesIn(path), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.equal(statSync(path).size, SIZE);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const { file, newest } = await RingFile.open(path, SIZE);
  assert.equal(newest?.sequence, 10);
  await file.append([lineOf(11)]);
  assert.equal((await sequencesIn(path)).at(-1), 11);
});

test("the newest lines overwrite the oldest, and no other", async () => {
  const path = await ringWith("full", 500);
  const left = await sequencesIn(path);
  assert.equal(left.at(-1), 500);
  const [first = 0] = left;
  assert.ok(left.length > 35, `only ${left.length} lines fit`);
  assert.deepEqual(
    left,
    Array.from({ length: left.length }, (_, index) => first + index),
  );
  assert.equal(statSync(path).size, SIZE);
});

test("a file that is cut at any byte loses the lines behind the cut alone, and the ring goes on", async () => {
  const whole = await ringWith("whole", 8);
  const bytes = readFileSync(whole);
  const used = bytes.lastIndexOf(0x0a) + 1;
  const path = join(folder, "cut");
  for (let cut = 0; cut <= used; cut += 1) {
    copyFileSync(whole, path);
    truncateSync(path, cut);
    const complete = bytes.subarray(0, cut).filter((byte) => byte === 0x0a).length;
    const { file, newest } = await RingFile.open(path, SIZE);
    assert.equal(newest?.sequence, complete === 0 ? undefined : complete, `cut at ${cut}`);
    await file.append([lineOf(complete + 1, "after the cut")]);
    const expected = Array.from({ length: complete + 1 }, (_, index) => index + 1);
    assert.deepEqual(await sequencesIn(path), expected, `cut at ${cut}`);
  }
});

test("a write into a full ring that stops at any byte spoils only what it was overwriting", async () => {
  const before = readFileSync(await ringWith("before", 200));
  const path = await ringWith("torn", 200);
  const { file } = await RingFile.open(path, SIZE);
  await file.append([lineOf(201), lineOf(202), lineOf(203)]);
  const after = readFileSync(path);
  const changed = [...after.keys()].filter((at) => before[at] !== after[at]);
  const [from = 0, to = 0] = [changed[0], changed.at(-1)];
  writeFileSync(path, before);
  const old = await sequencesIn(path);
  for (let cut = from; cut <= to + 1; cut += 1) {
    writeFileSync(path, Buffer.concat([after.subarray(0, cut), before.subarray(cut)]));
    const found = await sequencesIn(path);
    const kept = found.filter((each) => each <= 200);
    // At most the lines that the three overwrite, and one in whose middle they end.
    assert.ok(kept.length >= old.length - 6, `torn at ${cut}: ${old.length - kept.length} lines are lost`);
    assert.deepEqual(kept, old.slice(-kept.length), `torn at ${cut}`);
    assert.ok(found.every((each) => each <= 203));
    const { file: next, newest } = await RingFile.open(path, SIZE);
    assert.equal(newest?.sequence, found.at(-1));
    await next.append([lineOf(204)]);
    assert.equal((await sequencesIn(path)).at(-1), 204);
  }
});

test("another size keeps the lines that fit, and goes on behind the newest", async () => {
  const path = await ringWith("resized", 200);
  const before = await sequencesIn(path);
  const larger = await RingFile.open(path, SIZE * 2);
  assert.equal(larger.newest?.sequence, 200);
  await larger.file.append([lineOf(201)]);
  const grown = await sequencesIn(path);
  assert.ok(grown.length >= before.length - 2 && grown.at(-1) === 201);
  const smaller = await RingFile.open(path, SIZE / 2);
  await smaller.file.append([lineOf(202)]);
  assert.equal(statSync(path).size, SIZE / 2);
  assert.equal((await sequencesIn(path)).at(-1), 202);
});

test("more than a whole ring at once keeps the last lines", async () => {
  const path = join(folder, "much");
  const { file } = await RingFile.open(path, SIZE);
  await file.append(Array.from({ length: 300 }, (_, index) => lineOf(index + 1)));
  assert.equal((await sequencesIn(path)).at(-1), 300);
});

test("whatever is in the file, no line is invented", async () => {
  const random = seededRandom(7);
  const path = join(folder, "garbage");
  for (let round = 0; round < 60; round += 1) {
    const bytes = readFileSync(await ringWith("good", 30 + (round % 50)));
    const good = new Set(await sequencesIn(join(folder, "good")));
    for (let flips = 0; flips < 1 + round; flips += 1) {
      const at = Math.floor(random.next() * bytes.length);
      bytes[at] = Math.floor(random.next() * 256);
    }
    writeFileSync(path, bytes);
    for (const each of await sequencesIn(path)) assert.ok(good.has(each), `round ${round}: ${each}`);
    const { file } = await RingFile.open(path, SIZE);
    await file.append([lineOf(1000)]);
    assert.ok((await sequencesIn(path)).includes(1000));
  }
});

test("a record that is too long is refused", () => {
  assert.equal(encodeLine({ n: 1, text: "x".repeat(MAX_LINE_BYTES) } as { n: number }), undefined);
});
