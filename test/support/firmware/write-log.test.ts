/** A log of a disk's writes, made here as dm-log-writes lays it out, and the disks that a cut may leave of it. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { seededRandom } from "../unit/ports/seeded-random.ts";
import { entriesAt, ReplayedDisk, readWriteLog, type WriteLog } from "./write-log.ts";

const SECTOR = 512;
const SECTORS = 16;
const FLUSH = 1;

interface Entry {
  readonly sector: number;
  /** Each sector's byte; "": a flush. */
  readonly content: string;
}

const LOG: readonly Entry[] = [
  { sector: 0, content: "ab" },
  { sector: 4, content: "c" },
  { sector: 0, content: "" },
  { sector: 1, content: "xyz" },
  { sector: 9, content: "q" },
];

const sectorsOf = (content: string): Buffer => Buffer.concat([...content].map((each) => Buffer.alloc(SECTOR, each)));

function writeLog(path: string, entries: readonly Entry[]): void {
  const head = Buffer.alloc(SECTOR);
  head.writeBigUInt64LE(0x6a736677736872n, 0);
  head.writeUInt32LE(SECTOR, 24);
  const parts = entries.flatMap(({ sector, content }) => {
    const entry = Buffer.alloc(SECTOR);
    entry.writeBigUInt64LE(BigInt(sector), 0);
    entry.writeBigUInt64LE(BigInt(content.length), 8);
    entry.writeBigUInt64LE(BigInt(content === "" ? FLUSH : 0), 16);
    return [entry, sectorsOf(content)];
  });
  writeFileSync(path, Buffer.concat([head, ...parts]));
}

class Disk implements Disposable {
  readonly #folder = new TempFolder();
  readonly log: WriteLog;
  readonly replayed: ReplayedDisk;

  constructor(entries = LOG) {
    writeLog(this.#folder.at("log"), entries);
    this.log = readWriteLog(this.#folder.at("log"));
    const pieces = ["low", "high"].map((name, index) => {
      const path = this.#folder.at(name);
      writeFileSync(path, Buffer.alloc((SECTORS / 2) * SECTOR, "."));
      return { name, path, start: (index * SECTORS) / 2, sectors: SECTORS / 2 };
    });
    this.replayed = new ReplayedDisk(this.log, pieces);
  }

  /** A character a sector, "?" for one that is of several kinds. */
  get text(): string {
    const bytes = Buffer.concat(["low", "high"].map((name) => readFileSync(this.#folder.at(name))));
    return Array.from({ length: SECTORS }, (_, index) => {
      const text = bytes.toString("latin1", index * SECTOR, (index + 1) * SECTOR);
      return text === text[0]?.repeat(SECTOR) ? text[0] : "?";
    }).join("");
  }

  [Symbol.dispose](): void {
    this.replayed[Symbol.dispose]();
    this.#folder[Symbol.dispose]();
  }
}

test("the log of a machine that was killed is read up to its last whole entry", () => {
  using disk = new Disk();
  assert.deepEqual(
    disk.log.entries.map(({ kind, sector, sectors }) => `${kind} ${sector}+${sectors}`),
    ["write 0+2", "write 4+1", "flush 0+0", "write 1+3", "write 9+1"],
  );
  const content = readFileSync(disk.log.path);
  writeFileSync(disk.log.path, content.subarray(0, content.length - 1));
  assert.equal(readWriteLog(disk.log.path).entries.length, LOG.length - 1);
  writeFileSync(disk.log.path, Buffer.alloc(SECTOR));
  assert.throws(() => readWriteLog(disk.log.path), /is no log of writes/);
});

test("an entry counts from the moment at which the log has begun to grow by it", () => {
  using disk = new Disk();
  assert.equal(entriesAt(disk.log, SECTOR), 0);
  assert.equal(entriesAt(disk.log, 2 * SECTOR), 1);
  assert.equal(entriesAt(disk.log, 1_000_000), LOG.length);
});

test("what was flushed is there after every cut, and of the rest any sectors", () => {
  using disk = new Disk();
  const seen = new Set<string>();
  for (let seed = 0; seed < 300; seed += 1) {
    const random = seededRandom(seed);
    disk.replayed.cut(LOG.length, () => random.next());
    const { text } = disk;
    assert.match(text, /^a[bx][.y][.z]c\.\.\.\.[.q]\.{6}$/);
    seen.add(text);
    disk.replayed.restore();
    assert.equal(disk.text, "ab..c...........");
  }
  for (const expected of [
    "ab..c...........",
    "axyzc....q......",
    "ab..c....q......",
    "axy.c...........",
    "ab.zc...........",
  ])
    assert.ok(seen.has(expected), `${expected} of ${[...seen].join(" ")}`);
});

test("before a flush anything may be missing, and a piece's version says what changed", () => {
  using disk = new Disk();
  const random = seededRandom(3);
  assert.equal(disk.replayed.versionOf("low"), "");
  disk.replayed.cut(2, () => random.next());
  assert.match(disk.text, /^[.a][.b]\.\.[.c]\.{11}$/);
  disk.replayed.restore();
  assert.equal(disk.text, ".".repeat(SECTORS));
  disk.replayed.cut(3, () => random.next());
  const version = disk.replayed.versionOf("low");
  assert.notEqual(version, "");
  assert.equal(disk.replayed.versionOf("high"), "");
  disk.replayed.cut(4, () => 0.3);
  assert.ok(disk.replayed.versionOf("low").startsWith(`${version}/`), "it differs until it is restored");
  disk.replayed.restore();
  assert.equal(disk.replayed.versionOf("low"), version);
});
