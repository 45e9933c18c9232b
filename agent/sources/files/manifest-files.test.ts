import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { type FileStamp, listManifests, MAX_FILES, nearestFolder, readManifestFile } from "./manifest-files.ts";

function stampOf(path: string): FileStamp {
  const listing = listManifests(path, () => false);
  assert.ok(listing.kind === "file");
  const [entry] = listing.entries;
  assert.ok(entry?.kind === "file");
  return entry.stamp;
}

test("a file that became a pipe after the look is not waited for", () => {
  using folder = new TemporaryFolder();
  const path = folder.file("web.yaml");
  writeFileSync(path, "text");
  const stamp = stampOf(path);
  rmSync(path);
  execFileSync("mkfifo", [path]);
  assert.deepEqual(readManifestFile(path, stamp), { kind: "changed" });
});

test("a file that has changed or gone since the look is not read", () => {
  using folder = new TemporaryFolder();
  const path = folder.file("web.yaml");
  writeFileSync(path, "text");
  const stamp = stampOf(path);
  assert.deepEqual(readManifestFile(path, stamp), { kind: "text", text: "text" });
  appendFileSync(path, "more");
  assert.deepEqual(readManifestFile(path, stamp), { kind: "changed" });
  rmSync(path);
  assert.deepEqual(readManifestFile(path, stamp), { kind: "changed" });
});

test("a path that is missing, in a file, or led in circles", () => {
  using folder = new TemporaryFolder();
  writeFileSync(folder.file("file"), "");
  symlinkSync(folder.file("loop"), folder.file("loop"));
  assert.deepEqual(
    listManifests(folder.file("nothing"), () => false),
    { kind: "missing" },
  );
  assert.deepEqual(
    listManifests(folder.file("file/below"), () => false),
    { kind: "missing" },
  );
  assert.deepEqual(
    listManifests(folder.file("loop"), () => false),
    {
      kind: "unavailable",
      message: "is a symbolic link that leads back to itself",
    },
  );
  assert.equal(nearestFolder(folder.file("a/b/c")), folder.path);
  assert.equal(nearestFolder("/"), "/");
});

test("of too many names the first are kept, however many there are, and those that are known", () => {
  using folder = new TemporaryFolder();
  mkdirSync(folder.file("m"));
  const count = 4 * MAX_FILES + 500;
  for (let n = count; n > 0; n -= 1) writeFileSync(folder.file(`m/${String(n).padStart(6, "0")}`), "");
  const known = folder.file(`m/${String(count).padStart(6, "0")}`);
  const listing = listManifests(folder.file("m"), (path) => path === known);
  assert.ok(listing.kind === "folder");
  assert.equal(listing.omitted, count - MAX_FILES);
  const paths = listing.entries.map(({ path }) => path);
  assert.equal(paths.length, MAX_FILES);
  assert.equal(paths[0], folder.file("m/000001"));
  assert.equal(paths.at(-2), folder.file(`m/${String(MAX_FILES - 1).padStart(6, "0")}`));
  assert.equal(paths.at(-1), known);
});
