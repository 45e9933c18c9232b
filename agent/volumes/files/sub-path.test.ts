import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { openSubPath, subPathProblem } from "./sub-path.ts";

function pathOf(volume: string, subPath: string): string {
  using handle = openSubPath(volume, subPath);
  return readlinkSync(`/proc/self/fd/${handle.fd}`);
}

const openHandles = (): number => readdirSync("/proc/self/fd").length;

test("what is there is opened, folder or file; what is missing is made with the volume's mode", () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("volume/a/b"), { recursive: true });
  writeFileSync(folder.at("volume/a/file"), "");
  assert.equal(pathOf(folder.at("volume"), "a/b"), realpathSync(folder.at("volume/a/b")));
  assert.equal(pathOf(folder.at("volume"), "./a//file"), realpathSync(folder.at("volume/a/file")));
  chmodSync(folder.at("volume"), 0o2777);
  const before = process.umask(0o022);
  try {
    assert.equal(pathOf(folder.at("volume"), "a/new/deeper"), realpathSync(folder.at("volume/a/new/deeper")));
  } finally {
    process.umask(before);
  }
  for (const made of ["volume/a/new", "volume/a/new/deeper"])
    assert.equal(statSync(folder.at(made)).mode & 0o7777, 0o2777);
});

test("a link inside the volume is followed, one that leads out is not, nor is anything made outside", () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("volume/real"), { recursive: true });
  mkdirSync(folder.at("outside"));
  mkdirSync(folder.at("volume-beside"));
  symlinkSync("real", folder.at("volume/inside"));
  symlinkSync(folder.at("outside"), folder.at("volume/absolute"));
  symlinkSync("../outside", folder.at("volume/relative"));
  symlinkSync("../volume-beside", folder.at("volume/beside"));
  symlinkSync("/", folder.at("volume/root"));
  symlinkSync("nowhere", folder.at("volume/dangling"));
  symlinkSync("loop", folder.at("volume/loop"));
  writeFileSync(folder.at("volume/file"), "");
  const volume = folder.at("volume");
  assert.equal(pathOf(volume, "inside/new"), realpathSync(folder.at("volume/real/new")));
  const before = openHandles();
  for (const out of [
    "absolute",
    "relative/new",
    "beside",
    "root/etc",
    "dangling",
    "loop",
    "absolute/../real",
    "file/below",
  ])
    assert.throws(() => openSubPath(volume, out), Error, out);
  assert.throws(() => openSubPath("/proc/self/task", "cannot-be-made"), Error);
  assert.equal(openHandles(), before, "no handle is left open");
  assert.deepEqual(readdirSync(folder.at("outside")), []);
});

test("a FIFO or a device is held without being opened", () => {
  using handle = openSubPath("/dev", "null");
  assert.equal(handle.isDirectory, false);
});

test("a folder exchanged for a link after it was looked at does not lead out", () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("volume/a/b"), { recursive: true });
  mkdirSync(folder.at("outside/b"), { recursive: true });
  using handle = openSubPath(folder.at("volume"), "a/b");
  renameSync(folder.at("volume/a"), folder.at("volume/gone"));
  symlinkSync(folder.at("outside"), folder.at("volume/a"));
  writeFileSync(`/proc/self/fd/${handle.fd}/written`, "");
  assert.ok(existsSync(folder.at("volume/gone/b/written")));
  assert.ok(!existsSync(folder.at("outside/b/written")));
});

test("however fast somebody exchanges a folder for a link, nothing outside is ever opened", {
  timeout: 120_000,
}, async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("volume/a/b"), { recursive: true });
  mkdirSync(folder.at("outside/b"), { recursive: true });
  symlinkSync(folder.at("outside"), folder.at("link"));
  const exchange = `const { mkdirSync, renameSync, rmSync, symlinkSync } = require("node:fs");
    process.stdout.write("ready");
    for (;;) {
      try {
        renameSync("volume/a", "aside"); renameSync("link", "volume/a");
        renameSync("volume/a", "link"); renameSync("aside", "volume/a");
      } catch {
        // The other side may make the folder anew at any moment, here too; then the next turn begins with this again.
        try {
          for (const path of ["volume/a", "aside", "link"]) rmSync(path, { recursive: true, force: true });
          symlinkSync(process.argv[1], "link"); mkdirSync("aside/b", { recursive: true }); renameSync("aside", "volume/a");
        } catch {}
      }
    }`;
  const child = spawn(process.execPath, ["-e", exchange, folder.at("outside")], {
    cwd: folder.path,
    stdio: ["ignore", "pipe", "ignore"],
  });
  await once(child.stdout, "data");
  const volume = realpathSync(folder.at("volume"));
  const outside = ["outside", "outside/b"].map((path) => statSync(folder.at(path), { bigint: true }).ino);
  const outcomes = { opened: 0, refused: 0 };
  // On a machine with much to do the other process may have to wait for its turn; the test's own limit ends that.
  for (let round = 0; round < 3000 || outcomes.refused === 0 || outcomes.opened === 0; round += 1) {
    if (round % 500 === 0) await setImmediate();
    assert.equal(child.exitCode, null, "the one that exchanges them has ended");
    try {
      using handle = openSubPath(volume, round % 2 === 0 ? "a" : "a/b");
      outcomes.opened += 1;
      // By what it is, not by its name: the name changes all the time.
      assert.equal(handle.isDirectory, true);
      assert.ok(!outside.includes(handle.inode));
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      outcomes.refused += 1;
    }
  }
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
});

test("absolute paths and steps back are refused before the disk is touched", () => {
  assert.equal(subPathProblem("/etc"), "error SubPath `/etc` must not be an absolute path");
  assert.equal(subPathProblem("a/../b"), "unable to provision SubPath `a/../b`: must not contain '..'");
  assert.equal(subPathProblem("a/..b/c.."), undefined);
});

test("whatever links a volume holds, what is opened is inside of it, and nothing is made elsewhere", () => {
  // Deep enough that even a resolver without any check could not leave the test's own folder.
  const above = ["1", "2", "3", "4", "5"];
  const name = fc.constantFrom("a", "b", "c");
  const up = fc.array(fc.constantFrom("..", "a", "b", "c", "."), { minLength: 1, maxLength: 4 });
  const entry = fc.record({
    path: fc.array(name, { minLength: 1, maxLength: 2 }),
    target: fc.oneof(fc.constantFrom("folder", "outside"), up),
  });
  const wanted = fc.array(name, { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 8 }), wanted, (entries, names) => {
      using folder = new TempFolder();
      const volume = folder.at(...above, "volume");
      mkdirSync(volume, { recursive: true });
      mkdirSync(folder.at("outside"));
      for (const { path, target } of entries)
        folder.plant([...above, "volume", ...path], (at) => {
          if (target === "folder") mkdirSync(at);
          else symlinkSync(target === "outside" ? folder.at("outside") : [target].flat().join("/"), at);
        });
      const before = everythingBut(volume, folder.path);
      let opened: string | undefined;
      try {
        opened = pathOf(volume, names.join("/"));
      } catch {
        // Refused.
      }
      if (opened !== undefined) assert.ok(`${opened}/`.startsWith(`${realpathSync(volume)}/`), opened);
      assert.deepEqual(everythingBut(volume, folder.path), before);
    }),
    { numRuns: 300 },
  );
});

/** Every path in `folder` and below, without following links and without looking into `volume`. */
function everythingBut(volume: string, folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() && path !== volume ? [path, ...everythingBut(volume, path)] : [path];
  });
}
