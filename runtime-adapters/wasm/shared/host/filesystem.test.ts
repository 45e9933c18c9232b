/** Each function of wasi:filesystem with the error codes that its specification names. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { swapFolder } from "@picolet/test/support/unit/wasm/folder-swapper.ts";
import { Failure } from "../resources/failure.ts";
import { Handles } from "../resources/handles.ts";
import { BlockingWaiter, Poller } from "../resources/polling.ts";
import type { StreamContext } from "../resources/streams.ts";
import { type Descriptor, preopenedDirectories } from "./filesystem.ts";
import { openMounts } from "./mounts.ts";

const READ = { read: true };
const WRITE = { read: true, write: true };
const NOW = { tag: "now" } as const;
const SAME = { tag: "no-change" } as const;
const LONG_NAME = "n".repeat(256);
const LONG_PATH = `${"d/".repeat(2048)}x`;
const DEEP_PATH = `${"dir/../".repeat(10)}file`;

/** Two volumes, the second for reading only, and what may be in a volume. */
class Volumes {
  readonly folder = new TempFolder();
  readonly root: Descriptor;
  readonly readOnly: Descriptor;

  constructor(context: TestContext) {
    context.after(() => this.folder[Symbol.dispose]());
    for (const name of ["rw", "ro"]) {
      const at = (path: string): string => this.folder.at(name, path);
      mkdirSync(at("dir/inner"), { recursive: true });
      mkdirSync(at("empty"));
      writeFileSync(at("file"), "content");
      writeFileSync(at("other"), "");
      symlinkSync("file", at("link"));
      symlinkSync("../outside", at("up"));
      symlinkSync("/etc/passwd", at("absolute"));
      symlinkSync("loop", at("loop"));
      symlinkSync("dir", at("dir-link"));
    }
    writeFileSync(this.folder.at("outside"), "outside");
    const waiter = new BlockingWaiter({ now: () => 0n, sleep: () => undefined });
    const poller = new Poller(waiter, () => undefined);
    const streams: StreamContext = { handles: new Handles(), poller, wallNow: () => 1_700_000_000_000 };
    const mounts = ["rw", "ro"].map((name) => ({
      guestPath: `/${name}`,
      hostPath: this.folder.at(name),
      readOnly: name === "ro",
    }));
    const [[root], [readOnly]] = preopenedDirectories(streams, openMounts(mounts, this.folder.path)) as [
      [Descriptor, string],
      [Descriptor, string],
    ];
    this.root = root;
    this.readOnly = readOnly;
  }
}

const codeOf = (call: () => unknown): unknown => {
  try {
    call();
  } catch (error) {
    if (error instanceof Failure) return error.payload;
    throw error;
  }
  return "ok";
};

type Call = (root: Descriptor, volumes: Volumes) => unknown;
const open =
  (path: string, how: object = {}, flags: object = READ, follow = true): Call =>
  (root) =>
    root.openAt({ symlinkFollow: follow }, path, how, flags);
const fileOf = (root: Descriptor, flags: object = WRITE): Descriptor => root.openAt({}, "file", {}, flags);

const WAYS_OUT = ["..", "../outside", "dir/../../outside", "/etc/passwd", "up", "absolute", "dir-link/../../outside"];

const CASES: Readonly<Record<string, readonly (readonly [what: string, call: Call, code: string])[]>> = {
  "open-at": [
    ...WAYS_OUT.map((path) => [`leads out: ${path}`, open(path), "not-permitted"] as const),
    ["nothing", open("nothing"), "no-entry"],
    ["no path", open(""), "no-entry"],
    ["a NUL", open("a\0b"), "invalid"],
    ["a loop", open("loop"), "loop"],
    ["a link not followed", open("link", {}, READ, false), "loop"],
    ["a link followed", open("link"), "ok"],
    ["through a file", open("file/x"), "not-directory"],
    ["a file with a slash", open("file/"), "not-directory"],
    ["a file as a directory", open("file", { directory: true }), "not-directory"],
    ["a directory to write", open("dir", {}, WRITE), "is-directory"],
    ["a directory to truncate", open("dir", { truncate: true }), "is-directory"],
    ["a directory to make", open("new", { create: true, directory: true }), "invalid"],
    ["a name with a slash to make", open("new/", { create: true }, WRITE), "is-directory"],
    ["what is there, exclusively", open("file", { create: true, exclusive: true }, WRITE), "exist"],
    ["a link, exclusively", open("link", { create: true, exclusive: true }, WRITE), "exist"],
    ["a link out, exclusively", open("up", { create: true, exclusive: true }, WRITE, false), "exist"],
    ["what is there", open("file", { create: true }, WRITE), "ok"],
    ["what is not", open("new", { create: true }, WRITE), "ok"],
    ["a name too long", open(LONG_NAME), "name-too-long"],
    ["a path too long", open(LONG_PATH), "name-too-long"],
    ["a deep path", open(DEEP_PATH), "ok"],
    ["below a file", (root) => fileOf(root).openAt({}, "x", {}, READ), "not-directory"],
  ],
  "stat-at": [
    ...WAYS_OUT.map(
      (path) => [path, (root: Descriptor) => root.statAt({ symlinkFollow: true }, path), "not-permitted"] as const,
    ),
    ["nothing", (root) => root.statAt({}, "nothing"), "no-entry"],
    ["a link itself", (root) => assert.equal(root.statAt({}, "up").type, "symbolic-link"), "ok"],
    ["a file with a slash", (root) => root.statAt({}, "file/"), "not-directory"],
  ],
  "metadata-hash-at": [
    ["a way out", (root) => root.metadataHashAt({ symlinkFollow: true }, "up"), "not-permitted"],
    ["nothing", (root) => root.metadataHashAt({}, "nothing"), "no-entry"],
    ["the same twice", (root) => assert.deepEqual(root.metadataHashAt({}, "file"), fileOf(root).metadataHash()), "ok"],
  ],
  "set-times-at": [
    ["a way out", (root) => root.setTimesAt({ symlinkFollow: true }, "up", NOW, NOW), "not-permitted"],
    ["a link itself", (root) => root.setTimesAt({}, "up", NOW, SAME), "ok"],
    ["nothing", (root) => root.setTimesAt({}, "nothing", NOW, NOW), "no-entry"],
    ["a file with a slash", (root) => root.setTimesAt({}, "file/", NOW, NOW), "not-directory"],
    ["reading only", (_, { readOnly }) => readOnly.setTimesAt({}, "file", NOW, NOW), "read-only"],
  ],
  "set-times": [
    ["a file", (root) => fileOf(root).setTimes(NOW, SAME), "ok"],
    ["reading only", (_, { readOnly }) => fileOf(readOnly, READ).setTimes(NOW, NOW), "read-only"],
    ["reading only, the root", (_, { readOnly }) => readOnly.setTimes(NOW, NOW), "read-only"],
  ],
  "create-directory-at": [
    ["a way out", (root) => root.createDirectoryAt("../made"), "not-permitted"],
    ["through a link out", (root) => root.createDirectoryAt("up/made"), "not-permitted"],
    ["what is there", (root) => root.createDirectoryAt("dir"), "exist"],
    ["a link out", (root) => root.createDirectoryAt("up"), "exist"],
    ["below nothing", (root) => root.createDirectoryAt("nothing/x"), "no-entry"],
    ["reading only", (_, { readOnly }) => readOnly.createDirectoryAt("new"), "read-only"],
  ],
  "remove-directory-at": [
    ["the parent", (root) => root.removeDirectoryAt(".."), "not-permitted"],
    ["itself", (root) => root.removeDirectoryAt("."), "invalid"],
    ["a file", (root) => root.removeDirectoryAt("file"), "not-directory"],
    ["a link to a directory", (root) => root.removeDirectoryAt("dir-link"), "not-directory"],
    ["one with files", (root) => root.removeDirectoryAt("dir"), "not-empty"],
    ["nothing", (root) => root.removeDirectoryAt("nothing"), "no-entry"],
    ["reading only", (_, { readOnly }) => readOnly.removeDirectoryAt("empty"), "read-only"],
    ["an empty one", (root) => root.removeDirectoryAt("empty/"), "ok"],
  ],
  "unlink-file-at": [
    ["a way out", (root) => root.unlinkFileAt("../outside"), "not-permitted"],
    ["a directory", (root) => root.unlinkFileAt("dir"), "is-directory"],
    ["a file with a slash", (root) => root.unlinkFileAt("file/"), "not-directory"],
    ["nothing", (root) => root.unlinkFileAt("nothing"), "no-entry"],
    ["reading only", (_, { readOnly }) => readOnly.unlinkFileAt("file"), "read-only"],
    ["a link out, itself", (root) => root.unlinkFileAt("up"), "ok"],
  ],
  "readlink-at": [
    ["a file", (root) => root.readlinkAt("file"), "invalid"],
    ["nothing", (root) => root.readlinkAt("nothing"), "no-entry"],
    ["a way out", (root) => root.readlinkAt("../up"), "not-permitted"],
    ["a link", (root) => assert.equal(root.readlinkAt("link"), "file"), "ok"],
  ],
  "symlink-at": [
    ["an absolute target", (root) => root.symlinkAt("/etc/passwd", "new"), "not-permitted"],
    ["a way out", (root) => root.symlinkAt("file", "../new"), "not-permitted"],
    ["what is there", (root) => root.symlinkAt("file", "other"), "exist"],
    ["with a slash", (root) => root.symlinkAt("file", "new/"), "no-entry"],
    ["reading only", (_, { readOnly }) => readOnly.symlinkAt("file", "new"), "read-only"],
  ],
  "link-at": [
    ["a way out", (root) => root.linkAt({}, "../outside", root, "new"), "not-permitted"],
    ["through a link out", (root) => root.linkAt({ symlinkFollow: true }, "up", root, "new"), "not-permitted"],
    ["to the outside", (root) => root.linkAt({}, "file", root, "../new"), "not-permitted"],
    ["what is there", (root) => root.linkAt({}, "file", root, "other"), "exist"],
    ["a directory", (root) => root.linkAt({}, "dir", root, "new"), "not-permitted"],
    ["a file with a slash", (root) => root.linkAt({}, "file/", root, "new"), "not-directory"],
    ["nothing", (root) => root.linkAt({}, "nothing", root, "new"), "no-entry"],
    ["into another volume", (root, { readOnly }) => root.linkAt({}, "file", readOnly, "new"), "cross-device"],
    ["out of another volume", (root, { readOnly }) => readOnly.linkAt({}, "file", root, "new"), "cross-device"],
    ["reading only", (_, { readOnly }) => readOnly.linkAt({}, "file", readOnly, "new"), "read-only"],
  ],
  "rename-at": [
    ["a way out", (root) => root.renameAt("file", root, "../stolen"), "not-permitted"],
    ["a way in", (root) => root.renameAt("../outside", root, "new"), "not-permitted"],
    ["into itself", (root) => root.renameAt("dir", root, "dir/inner/x"), "invalid"],
    ["a file onto a directory", (root) => root.renameAt("file", root, "dir"), "is-directory"],
    ["a directory onto a file", (root) => root.renameAt("dir", root, "file"), "not-directory"],
    ["onto one with files", (root) => root.renameAt("empty", root, "dir"), "not-empty"],
    ["a file with a slash", (root) => root.renameAt("file/", root, "new"), "not-directory"],
    ["nothing", (root) => root.renameAt("nothing", root, "new"), "no-entry"],
    ["into another volume", (root, { readOnly }) => root.renameAt("file", readOnly, "new"), "cross-device"],
    ["reading only", (_, { readOnly }) => readOnly.renameAt("file", readOnly, "new"), "read-only"],
  ],
  "read, write, set-size, streams": [
    ["read of a directory", (root) => root.read(1n, 0n), "is-directory"],
    ["write of a directory", (root) => root.write(new Uint8Array(1), 0n), "is-directory"],
    ["size of a directory", (root) => root.setSize(1n), "is-directory"],
    ["a stream of a directory", (root) => root.readViaStream(0n), "is-directory"],
    ["advice about a directory", (root) => root.advise(), "is-directory"],
    ["a listing of a file", (root) => fileOf(root).readDirectory(), "not-directory"],
    ["write of one opened to read", (root) => fileOf(root, READ).write(new Uint8Array(1), 0n), "bad-descriptor"],
    ["size of one opened to read", (root) => fileOf(root, READ).setSize(0n), "bad-descriptor"],
    ["a stream into one opened to read", (root) => fileOf(root, READ).writeViaStream(0n), "bad-descriptor"],
    ["appending to one opened to read", (root) => fileOf(root, READ).appendViaStream(), "bad-descriptor"],
    ["read of one opened to write", (root) => fileOf(root, { write: true }).read(1n, 0n), "bad-descriptor"],
    ["an offset beyond all", (root) => fileOf(root).write(new Uint8Array(1), 1n << 63n), "file-too-large"],
    ["a size beyond all", (root) => fileOf(root).setSize(1n << 63n), "file-too-large"],
    ["reading only, to write", (_, { readOnly }) => fileOf(readOnly), "read-only"],
    [
      "reading only, to truncate",
      (_, { readOnly }) => open("file", { truncate: true })(readOnly, _ as never),
      "read-only",
    ],
    ["reading only, to make", (_, { readOnly }) => open("new", { create: true })(readOnly, _ as never), "read-only"],
    ["the same object", (root) => assert.equal(fileOf(root).isSameObject(fileOf(root)), true), "ok"],
    ["sync", (root) => [root.sync(), root.syncData(), fileOf(root).sync(), fileOf(root).syncData()], "ok"],
  ],
};

for (const [name, cases] of Object.entries(CASES)) {
  test(`${name} fails by the codes of its specification`, (context) => {
    for (const [what, call, code] of cases) {
      const volumes = new Volumes(context);
      assert.equal(
        codeOf(() => call(volumes.root, volumes)),
        code,
        `${name}: ${what}`,
      );
      assert.equal(readFileSync(volumes.folder.at("outside"), "utf8"), "outside");
      assert.equal(readFileSync(volumes.folder.at("ro/file"), "utf8"), "content");
      assert.deepEqual(readdirSync(volumes.folder.path).sort(), ["outside", "ro", "rw"]);
    }
  });
}

test("special files in a volume are never opened, and none blocks the runner", async (context) => {
  const { folder, root, readOnly } = new Volumes(context);
  for (const name of ["rw", "ro"]) execFileSync("mkfifo", [folder.at(name, "fifo")]);
  const server = createServer().listen(folder.at("rw/socket"));
  await new Promise((resolve) => server.once("listening", resolve));
  context.after(() => server.close());
  for (const flags of [READ, WRITE, { write: true }]) {
    for (const path of ["fifo", "socket"]) {
      assert.equal(
        codeOf(() => root.openAt({}, path, {}, flags)),
        "not-permitted",
        path,
      );
      assert.equal(
        codeOf(() => root.openAt({}, path, { create: true, truncate: true }, flags)),
        "not-permitted",
        path,
      );
    }
  }
  assert.equal(
    codeOf(() => readOnly.openAt({}, "fifo", {}, READ)),
    "not-permitted",
  );
  assert.equal(root.statAt({}, "fifo").type, "fifo");
  assert.equal(root.statAt({}, "socket").type, "socket");
  root.unlinkFileAt("fifo");
});

test("a device that is mounted as a file is refused", (context) => {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const mounts = [{ guestPath: "/dev/zero", hostPath: "/dev/zero", readOnly: false }];
  const waiter = new BlockingWaiter({ now: () => 0n, sleep: () => undefined });
  const streams = { handles: new Handles(), poller: new Poller(waiter, () => undefined), wallNow: () => 0 };
  const [[dev] = assert.fail()] = preopenedDirectories(streams, openMounts(mounts, folder.path));
  assert.equal(
    codeOf(() => dev.openAt({}, "zero", {}, READ)),
    "not-permitted",
  );
});

test("given times are set, others are kept", (context) => {
  const { folder, root } = new Volumes(context);
  const at = (seconds: bigint) => ({ tag: "timestamp", val: { seconds, nanoseconds: 0 } }) as const;
  root.setTimesAt({}, "file", at(1000n), at(2000n));
  root.setTimesAt({}, "file", SAME, at(3000n));
  const stat = root.statAt({}, "file");
  assert.deepEqual([stat.dataAccessTimestamp.seconds, stat.dataModificationTimestamp.seconds], [1000n, 3000n]);
  root.openAt({}, "file", {}, WRITE).setTimes(NOW, SAME);
  assert.equal(statSync(folder.at("rw/file")).atimeMs, 1_700_000_000_000);
  assert.equal(statSync(folder.at("rw/file")).mtimeMs, 3_000_000);
});

/** Everything that a component can do to a name. */
const ATTEMPTS: readonly ((root: Descriptor, turn: number) => unknown)[] = [
  (root) => assert.notEqual(textOf(root, "moving/file"), "secret", "reading"),
  (root) => assert.notEqual(textOf(root, "moving/../../target/file"), "secret", "reading by dots"),
  (root) => write(root, "moving/file", {}),
  (root) => write(root, "moving/made", { create: true }),
  (root) => write(root, "moving/made-truncated", { create: true, truncate: true }),
  (root) => write(root, "moving/made-alone", { create: true, exclusive: true }),
  (root) => root.createDirectoryAt("moving/made-folder"),
  (root) => root.symlinkAt("file", "moving/made-link"),
  (root) => root.linkAt({}, "moving/file", root, "moving/made-name"),
  (root) => root.linkAt({ symlinkFollow: true }, "moving/secret", root, "stolen"),
  (root) => root.renameAt("moving/secret", root, "stolen"),
  (root) => root.renameAt("other", root, "moving/made-moved"),
  (root) => root.renameAt("moving/made-moved", root, "other"),
  (root) => root.setTimesAt({ symlinkFollow: true }, "moving/secret", NOW, NOW),
  (root) => assert.equal(root.statAt({ symlinkFollow: true }, "moving/secret"), undefined, "looking"),
  (root) => assert.equal(root.metadataHashAt({}, "moving/secret"), undefined, "looking"),
  (root) => root.unlinkFileAt("moving/secret"),
  (root) => root.removeDirectoryAt("moving/secret-folder"),
  (root) => listed(root, "moving"),
  ...["made", "made-truncated", "made-alone", "made-link", "made-name"].map(
    (name) => (root: Descriptor) => root.unlinkFileAt(`moving/${name}`),
  ),
  (root) => root.removeDirectoryAt("moving/made-folder"),
];

function textOf(root: Descriptor, path: string): string {
  using file = root.openAt({ symlinkFollow: true }, path, {}, READ);
  return Buffer.from(file.read(100n, 0n)[0]).toString();
}

function write(root: Descriptor, path: string, how: object): void {
  using file = root.openAt({ symlinkFollow: true }, path, how, WRITE);
  file.write(Buffer.from("inside"), 0n);
}

function listed(root: Descriptor, path: string): void {
  using folder = root.openAt({ symlinkFollow: true }, path, { directory: true }, READ);
  using entries = folder.readDirectory();
  for (let entry = entries.readDirectoryEntry(); entry !== undefined; entry = entries.readDirectoryEntry()) {
    assert.notEqual(entry.name, "secret");
  }
}

test("nothing is reached outside while another process swaps a folder for a link out", async (context) => {
  const { folder, root } = new Volumes(context);
  const target = folder.at("target");
  for (const path of ["target/secret-folder", "rw/moving"]) mkdirSync(folder.at(path), { recursive: true });
  for (const name of ["file", "secret"]) writeFileSync(`${target}/${name}`, "secret");
  writeFileSync(folder.at("rw/moving/file"), "inside");
  const before = statSync(`${target}/secret`, { bigint: true });
  const end = await swapFolder(context, folder.path, "rw/moving", "../target");
  const codes = new Map<unknown, number>();
  for (let turn = 0; turn < 400; turn += 1) {
    for (const attempt of ATTEMPTS) {
      const code = codeOf(() => attempt(root, turn));
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
  }
  await end();
  assert.ok((codes.get("ok") ?? 0) > 100, "it was inside at times");
  assert.ok((codes.get("not-permitted") ?? 0) > 100, "and met the link at others");
  assert.deepEqual(readdirSync(target).sort(), ["file", "secret", "secret-folder"]);
  assert.equal(readFileSync(`${target}/file`, "utf8"), "secret");
  const after = statSync(`${target}/secret`, { bigint: true });
  assert.deepEqual([after.mtimeNs, after.nlink], [before.mtimeNs, 1n]);
});
