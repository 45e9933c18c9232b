import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { RuntimeFilesystem } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { FilesystemSampler, type FilesystemStatistics, usageOf } from "./filesystem-sampler.ts";

const NEVER = new AbortController().signal;
const NEW = millis(0);
const SANE = { type: 0xef53, bsize: 4096, blocks: 1000, bfree: 400, bavail: 350, files: 100, ffree: 60 };
/** Folders of two other file systems that every Linux has. */
const [OTHER, THIRD] = ["/proc", "/sys"];

class Node implements Disposable {
  readonly clock = new VirtualClock();
  readonly asked: string[] = [];
  /** Until when a file system does not answer. */
  readonly hanging = new Map<string, Promise<void>>();
  readonly folder = new TempFolder();
  readonly log = new RecordedLog();
  images: string = this.folder.path;
  containers: string = this.folder.path;
  /** The runtime does not answer. */
  isSilent = false;
  readonly said = new Map<string, FilesystemStatistics | Error>();
  readonly sampler = new FilesystemSampler(
    {
      clock: this.clock,
      log: this.log,
      images: {
        filesystems: async () => {
          if (this.isSilent) throw new PicoletError("unavailable", "no answer", { retryable: true });
          const at = (mountPoint: string): RuntimeFilesystem => ({ mountPoint, usedBytes: 7, inodesUsed: 3 });
          return { images: at(this.images), containers: at(this.containers) };
        },
      },
      statfs: async (path) => {
        this.asked.push(path);
        await this.hanging.get(path);
        const said = this.said.get(path) ?? SANE;
        if (said instanceof Error) throw said;
        return said;
      },
    },
    { rootDir: this.folder.path },
  );

  sample() {
    return this.sampler.filesystems(NEW, NEVER);
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("one file system is one object for all of its users", async () => {
  using node = new Node();
  const { nodefs, imagefs, containerfs } = await node.sample();
  assert.ok(nodefs === imagefs && imagefs === containerfs);
  assert.deepEqual(nodefs, {
    ...{ capacityBytes: 4_096_000, availableBytes: 1_433_600, usedBytes: 2_457_600 },
    ...{ inodes: 100, inodesFree: 60, inodesUsed: 40 },
  });
});

test("images, and what containers write, may be elsewhere, together or each by itself", async () => {
  using node = new Node();
  node.images = OTHER;
  node.containers = OTHER;
  const together = await node.sample();
  assert.ok(together.imagefs !== together.nodefs && together.containerfs === together.imagefs);
  // CRI-O's read-only images on a disk of their own.
  node.containers = node.folder.path;
  const split = await node.sample();
  assert.ok(split.imagefs !== split.nodefs && split.containerfs === split.nodefs);
  node.containers = THIRD;
  const three = await node.sample();
  assert.equal(new Set([three.nodefs, three.imagefs, three.containerfs]).size, 3);
  assert.deepEqual(three.runtime?.images, { mountPoint: OTHER, usedBytes: 7, inodesUsed: 3 });
});

test("subvolumes of one btrfs are one file system", async () => {
  using node = new Node();
  node.images = OTHER;
  const btrfs = { ...SANE, type: 0x9123683e, files: 0, ffree: 0 };
  for (const path of [node.folder.path, OTHER]) node.said.set(path, btrfs);
  const { nodefs, imagefs } = await node.sample();
  assert.equal(imagefs, nodefs);
  assert.equal(nodefs.inodes, 0);
});

test("a runtime that does not answer hides no disk: where its images are is remembered, and it is said once", async () => {
  using node = new Node();
  node.isSilent = true;
  const first = await node.sample();
  assert.ok(first.imagefs === first.nodefs && first.runtime === undefined);
  node.isSilent = false;
  node.images = OTHER;
  await node.sample();
  node.isSilent = true;
  for (let round = 0; round < 3; round += 1) {
    const { nodefs, imagefs } = await node.sample();
    assert.ok(nodefs !== imagefs);
  }
  assert.deepEqual(
    node.log.problems,
    Array.from({ length: 2 }, () => "the runtime does not report where its images are"),
  );
});

test("a disk that reports nonsense is an error that names it, never figures to act upon", async () => {
  const nonsense: Partial<FilesystemStatistics>[] = [
    ...[{ blocks: 0 }, { bsize: 0 }, { bfree: 1001 }, { bavail: 1001 }, { ffree: 101 }, { blocks: Number.NaN }],
    ...[{ bfree: -1 }, { bavail: Number.POSITIVE_INFINITY }, { files: Number.NaN }, { bsize: -4096 }],
  ];
  for (const wrong of nonsense) {
    using node = new Node();
    node.said.set(node.folder.path, { ...SANE, ...wrong });
    await assert.rejects(node.sample(), (error) => {
      assert.ok(isPicoletError(error, "failed"), String(error));
      assert.ok(error.message.includes(node.folder.path), error.message);
      return true;
    });
  }
});

test("one that cannot be read at all is one too, and so is a mount point that is gone", async () => {
  using node = new Node();
  node.images = OTHER;
  node.said.set(OTHER, Object.assign(new Error("EIO: i/o error, statfs '/proc'"), { code: "EIO" }));
  await assert.rejects(node.sample(), { message: "cannot read the free space of the file system of /proc" });
  node.said.clear();
  node.images = node.folder.at("gone");
  await assert.rejects(node.sample(), (error) => isPicoletError(error, "failed"));
});

test("a file system that hangs is read once until it answers, for all callers", async () => {
  using node = new Node();
  node.images = OTHER;
  node.containers = OTHER;
  const { promise, resolve } = Promise.withResolvers<void>();
  node.hanging.set(OTHER, promise);
  const asked = (): number => node.asked.filter((path) => path === OTHER).length;
  const giveUp = new AbortController();
  const first = node.sampler.filesystems(NEW, giveUp.signal);
  // Real folders are read before it, which takes time: wait until the runtime is asked.
  while (asked() === 0) await new Promise(setImmediate);
  giveUp.abort();
  await assert.rejects(first);
  for (let times = 0; times < 10; times += 1) {
    await node.clock.advance(seconds(10));
    await assert.rejects(node.sample(), (error) => isPicoletError(error, "unavailable"));
  }
  assert.equal(asked(), 1);
  node.hanging.clear();
  resolve();
  await promise;
  await new Promise(setImmediate);
  assert.ok((await node.sample()).imagefs.capacityBytes > 0);
});

test("with any result of statfs, figures are possible ones, or there are none", () => {
  const number = fc.oneof(fc.double(), fc.integer({ min: -5, max: 5 }), fc.nat());
  const statistics = fc.record({
    ...{ type: fc.nat(), bsize: number, blocks: number, bfree: number },
    bavail: number,
    files: number,
    ffree: number,
  });
  fc.assert(
    fc.property(statistics, (said) => {
      try {
        const { capacityBytes, availableBytes, usedBytes, inodes, inodesFree, inodesUsed } = usageOf(said);
        assert.ok(capacityBytes > 0 && availableBytes >= 0 && availableBytes <= capacityBytes && usedBytes >= 0);
        assert.ok(inodes >= 0 && inodesFree >= 0 && inodesUsed >= 0 && inodesFree <= inodes);
      } catch (error) {
        if (!isPicoletError(error, "corrupt")) throw error;
      }
    }),
    { numRuns: 1000 },
  );
});

test("this machine's own disk is understood", async () => {
  using folder = new TempFolder();
  // `npm run unit` has its folders in memory, where nothing else may be in use.
  writeFileSync(folder.at("file"), "content");
  const sampler = new FilesystemSampler(
    { images: undefined, clock: new VirtualClock(), log: new RecordedLog() },
    { rootDir: folder.path },
  );
  const { nodefs, runtime } = await sampler.filesystems(NEW, NEVER);
  assert.ok(nodefs.capacityBytes > 2 ** 20 && nodefs.usedBytes > 0);
  assert.equal(runtime, undefined);
});
