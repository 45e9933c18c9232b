import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { SystemMounter } from "./mounter.ts";
import { removeTree } from "./remove-tree.ts";

const NEVER = new AbortController().signal;
const mounter = new SystemMounter();
const mounts = (folder: string): readonly string[] => mounter.mountPointsWithin(folder);
const remove = (path: string, signal = NEVER): Promise<void> => removeTree(path, mounts, signal);
const skip = mounter.allowed ? false : "needs the right to mount";

test("everything goes; links are removed and what they lead to stays", async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("tree/a/b"), { recursive: true });
  mkdirSync(folder.at("outside"));
  writeFileSync(folder.at("outside/precious"), "kept");
  writeFileSync(folder.at("tree/a/b/file"), "");
  writeFileSync(Buffer.concat([Buffer.from(folder.at("tree/a/")), Buffer.from([0x66, 0xff, 0xfe])]), "not UTF-8");
  symlinkSync(folder.at("outside"), folder.at("tree/a/link"));
  symlinkSync(folder.at("outside/precious"), folder.at("tree/link"));
  await remove(folder.at("tree"));
  assert.equal(existsSync(folder.at("tree")), false);
  assert.equal(readFileSync(folder.at("outside/precious"), "utf8"), "kept");
  await remove(folder.at("tree"));
});

test("a link in place of the tree is itself removed", async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("outside"));
  symlinkSync(folder.at("outside"), folder.at("tree"));
  await remove(folder.at("tree"));
  assert.deepEqual(readdirSync(folder.path), ["outside"]);
});

test("folders deeper than a path can name go too", async () => {
  using folder = new TempFolder();
  const name = "d".repeat(50);
  const before = process.cwd();
  mkdirSync(folder.at("tree"));
  process.chdir(folder.at("tree"));
  try {
    for (let depth = 0; depth < 300; depth += 1) {
      mkdirSync(name);
      process.chdir(name);
      if (depth % 50 === 0) writeFileSync("file", "");
    }
  } finally {
    process.chdir(before);
  }
  await remove(folder.at("tree"));
  assert.equal(existsSync(folder.at("tree")), false);
});

test("nothing is touched while something is mounted in it, a bind mount of the same disk included", {
  skip,
}, async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("tree/mounted"), { recursive: true });
  mkdirSync(folder.at("outside"));
  writeFileSync(folder.at("outside/precious"), "");
  writeFileSync(folder.at("tree/a-file"), "");
  mounter.bind(folder.at("outside"), folder.at("tree/mounted"));
  try {
    await assert.rejects(remove(folder.at("tree")), (error) => isPicoletError(error, "conflict") && error.retryable);
    assert.ok(existsSync(folder.at("outside/precious")));
    assert.ok(existsSync(folder.at("tree/a-file")));
  } finally {
    mounter.unmountNow(folder.at("tree/mounted"));
  }
  await remove(folder.at("tree"));
  assert.ok(existsSync(folder.at("outside/precious")));
});

test("a file system mounted in between is not entered, seen by its device", { skip }, async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("tree/mounted"), { recursive: true });
  await mounter.mountTmpfs(folder.at("tree/mounted"), 2 ** 20, NEVER);
  try {
    writeFileSync(folder.at("tree/mounted/precious"), "");
    const blind = (): readonly string[] => [];
    await assert.rejects(removeTree(folder.at("tree"), blind, NEVER), (error) => isPicoletError(error, "conflict"));
    assert.ok(existsSync(folder.at("tree/mounted/precious")));
  } finally {
    mounter.unmountNow(folder.at("tree/mounted"));
  }
});

test("a removal stops when it is told to, and goes on later", async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("tree/a"), { recursive: true });
  writeFileSync(folder.at("tree/a/file"), "");
  const stop = new AbortController();
  stop.abort();
  await assert.rejects(remove(folder.at("tree"), stop.signal), (error) => isPicoletError(error, "cancelled"));
  await remove(folder.at("tree"));
  assert.deepEqual(readdirSync(folder.path), []);
});

test("whatever a pod left behind goes, and nothing outside", async () => {
  const entry = fc.record({
    path: fc.array(fc.constantFrom("a", "b", "ü", " "), { minLength: 1, maxLength: 4 }),
    kind: fc.constantFrom("folder", "file", "out", "up", "locked"),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(entry, { maxLength: 15 }), async (entries) => {
      using folder = new TempFolder();
      mkdirSync(folder.at("tree"));
      mkdirSync(folder.at("outside"));
      writeFileSync(folder.at("outside/precious"), "");
      for (const { path, kind } of entries)
        folder.plant(["tree", ...path], (at) => {
          if (kind === "folder") mkdirSync(at);
          if (kind === "file") writeFileSync(at, "x");
          if (kind === "out") symlinkSync(folder.at("outside"), at);
          if (kind === "up") symlinkSync("../..", at);
          if (kind === "locked") mkdirSync(at, { mode: 0 });
        });
      await remove(folder.at("tree"));
      assert.deepEqual(readdirSync(folder.path), ["outside"]);
      assert.deepEqual(readdirSync(folder.at("outside")), ["precious"]);
    }),
    { numRuns: 100 },
  );
});
