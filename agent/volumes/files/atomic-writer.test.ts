/** On a real file system; on a tmpfs of a few pages where the disk must be full. */
import assert from "node:assert/strict";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import { type Payload, writeAtomically } from "./atomic-writer.ts";
import { SystemMounter } from "./mounter.ts";
import { nestedMountpoints } from "./nested-mountpoints.ts";

const NEVER = new AbortController().signal;
const mounter = new SystemMounter();
const isRoot = process.geteuid?.() === 0;
const skip = mounter.allowed && isRoot ? false : "needs root and the right to mount";

const payloadOf = (files: Readonly<Record<string, string | Buffer>>, gid = -1): Payload =>
  new Map(
    Object.entries(files).map(([path, content]) => [
      path,
      { content: Buffer.from(content), mode: 0o640, uid: -1, gid },
    ]),
  );

const visible = (folder: string): string[] =>
  readdirSync(folder)
    .filter((name) => !name.startsWith(".."))
    .sort();

test("the layout is Kubernetes' own", async () => {
  using folder = new TempFolder();
  assert.equal(await writeAtomically(folder.path, payloadOf({ a: "1", "deep/b": "2" })), true);
  assert.match(readlinkSync(folder.at("..data")), /^\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\w+$/);
  assert.equal(readlinkSync(folder.at("a")), "..data/a");
  assert.equal(readlinkSync(folder.at("deep")), "..data/deep");
  assert.equal(readFileSync(folder.at("deep/b"), "utf8"), "2");
  assert.equal(lstatSync(realpathSync(folder.at("..data"))).mode & 0o7777, 0o755);
  assert.equal(lstatSync(folder.at("a")).isSymbolicLink(), true);
  assert.equal(await writeAtomically(folder.path, payloadOf({ a: "1", "./deep//b": "2" })), false);
});

test("folders for other volumes stay, links that lead nowhere any more go, also those of a crash", async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("mounted"));
  await writeAtomically(folder.path, payloadOf({ a: "1", old: "x" }));
  symlinkSync("..data/lost", folder.at("lost"));
  mkdirSync(folder.at("..half-written"));
  symlinkSync("nowhere", folder.at("..data_tmp"));
  await writeAtomically(folder.path, payloadOf({ a: "2" }));
  assert.deepEqual(visible(folder.path), ["a", "mounted"]);
  assert.equal(readdirSync(folder.path).filter((name) => name.startsWith("..")).length, 2);
});

test("what belongs to a group lets it in, folders and links too, and after each change", { skip }, async () => {
  using folder = new TempFolder();
  const rights = (path: string): readonly number[] => {
    const { gid, mode } = lstatSync(folder.at(path));
    return [gid, mode & 0o7777];
  };
  for (const content of ["1", "2"]) {
    await writeAtomically(folder.path, payloadOf({ "deep/a": content }, 2000), 2000);
    const data = readlinkSync(folder.at("..data"));
    assert.deepEqual(rights(data), [2000, 0o2755]);
    assert.deepEqual(rights(`${data}/deep`), [2000, 0o2755]);
    assert.deepEqual(rights(`${data}/deep/a`), [2000, 0o640]);
    assert.equal(lstatSync(folder.at("deep")).gid, 2000);
    assert.equal(lstatSync(folder.at("..data")).gid, 2000);
  }
  assert.equal(await writeAtomically(folder.path, payloadOf({ "deep/a": "2" }, 2000), 2000), false);
  assert.equal(await writeAtomically(folder.path, payloadOf({ "deep/a": "2" }, 3000), 3000), true);
});

test("a disk that is full in the middle of an update leaves the old files, whole, and no rubbish", {
  skip,
}, async () => {
  using folder = new TempFolder();
  const volume = folder.at("volume");
  mkdirSync(volume);
  await mounter.mountTmpfs(volume, 64 * 1024, NEVER);
  try {
    await writeAtomically(volume, payloadOf({ a: "old", b: "old" }));
    const before = readlinkSync(join(volume, "..data"));
    const large = payloadOf({ a: "new", b: Buffer.alloc(48 * 1024), c: Buffer.alloc(48 * 1024) });
    await assert.rejects(writeAtomically(volume, large), /ENOSPC/);
    assert.equal(readlinkSync(join(volume, "..data")), before);
    assert.deepEqual(visible(volume), ["a", "b"]);
    assert.equal(readFileSync(join(volume, "a"), "utf8"), "old");
    assert.equal(readdirSync(volume).filter((name) => name.startsWith("..")).length, 2);
    // There is room again.
    await writeAtomically(volume, payloadOf({ a: "new", b: Buffer.alloc(40 * 1024) }));
    assert.equal(readFileSync(join(volume, "a"), "utf8"), "new");
  } finally {
    mounter.unmountNow(volume);
  }
});

test("a file that is a folder for another one changes nothing", async () => {
  using folder = new TempFolder();
  await writeAtomically(folder.path, payloadOf({ a: "1" }));
  await assert.rejects(writeAtomically(folder.path, payloadOf({ x: "file", "x/y": "below it" })));
  assert.deepEqual(visible(folder.path), ["a"]);
  assert.equal(readdirSync(folder.path).filter((name) => name.startsWith("..")).length, 2);
});

test("paths are refused in the kubelet's words", async () => {
  using folder = new TempFolder();
  const cases: readonly (readonly [string, string])[] = [
    ["", 'invalid path: must not be empty: ""'],
    ["/etc/passwd", "invalid path: must be relative path: /etc/passwd"],
    ["a/../../b", "invalid path: must not contain '..': a/../../b"],
    ["..data", "invalid path: must not start with '..': ..data"],
    ["./..2026", "invalid path: must not start with '..': ./..2026"],
    ["x".repeat(256), "invalid path: filenames must be less than or equal to 255 characters"],
    ["x/".repeat(2049), "invalid path: must be less than or equal to 4096 characters"],
  ];
  for (const [path, message] of cases) {
    await assert.rejects(writeAtomically(folder.path, payloadOf({ [path]: "x" })), (error) => {
      assert.ok(isPicoletError(error, "invalid"));
      assert.equal(error.message, message);
      return true;
    });
  }
  assert.deepEqual(readdirSync(folder.path), []);
});

test("whatever the paths are, nothing is made outside of the volume, and what is taken can be read", async () => {
  const part = fc.oneof(
    fc.constantFrom("..", ".", "", "a", "b", "..data", "..data_tmp", "\0", "ä\n"),
    fc.string({ maxLength: 5 }),
  );
  const path = fc.array(part, { maxLength: 4 }).map((parts) => parts.join("/"));
  await fc.assert(
    fc.asyncProperty(fc.array(fc.dictionary(path, fc.string(), { maxKeys: 4 }), { maxLength: 3 }), async (payloads) => {
      using folder = new TempFolder();
      mkdirSync(folder.at("volume"));
      for (const files of payloads) {
        try {
          await writeAtomically(folder.at("volume"), payloadOf(files));
        } catch {
          continue;
        }
        // The last of several spellings of a path counts.
        const last = new Map(Object.entries(files).map(([name, content]) => [join("/", name, ".").slice(1), content]));
        for (const [name, content] of last) {
          assert.equal(readFileSync(join(folder.at("volume"), name), "utf8"), Buffer.from(content).toString());
        }
      }
      assert.deepEqual(readdirSync(folder.path), ["volume"]);
    }),
    { numRuns: 150 },
  );
});

test("folders for volumes in a volume: the outermost alone, of every container, and none beside it", () => {
  const mounts = (...paths: readonly (readonly [string, string])[]) => ({
    volumeMounts: paths.map(([name, mountPath]) => ({ name, mountPath })),
  });
  const pod = podOf({
    volumes: ["v", "w", "x", "y"].map((name) => ({ name, emptyDir: {} })),
    initContainers: [{ name: "i", image: "i", ...mounts(["v", "/"], ["w", "/data/deep"]) }],
    containers: [
      { name: "a", image: "a", ...mounts(["v", "/dir/"], ["w", "/dir/in"], ["x", "/dir/in/deeper"], ["y", "/dir2"]) },
      { name: "b", image: "b", ...mounts(["v", "/etc"], ["y", "/etc/a.b"], ["w", "/etc/a"], ["x", "/etc/a/b"]) },
    ],
  });
  assert.deepEqual(nestedMountpoints(pod, "v").toSorted(), ["a", "a.b", "data/deep", "in"]);
  assert.deepEqual(nestedMountpoints(pod, "w").toSorted(), ["b", "deeper"]);
});

test("a volume that was made read-only by its rights is written all the same", { skip: !isRoot }, async () => {
  using folder = new TempFolder();
  await writeAtomically(folder.path, payloadOf({ a: "1" }));
  chmodSync(folder.path, 0o555);
  await writeAtomically(folder.path, payloadOf({ b: "2" }));
  assert.deepEqual(visible(folder.path), ["b"]);
  rmSync(folder.at("b"));
  writeFileSync(folder.at("mine"), "");
  await writeAtomically(folder.path, payloadOf({ b: "2" }));
  assert.deepEqual(visible(folder.path), ["b", "mine"]);
});
