/** Names, and archives that a container may have made to lead out of their target. */
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { Readable } from "node:stream";
import { test } from "node:test";
import { streamOf } from "@picolet/runtime-contract/archive/byte-stream.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { TAR_END, type TarMember, tarHeader, tarPadding } from "../support/tar-writer.ts";
import { pack } from "./copy-in.ts";
import { memberPath, placeOf, planCopy } from "./copy-names.ts";
import { unpack } from "./copy-out.ts";

type Given = Partial<TarMember> & { readonly name: string };

const archiveOf = (members: readonly Given[], content = "content") =>
  streamOf(
    Readable.from([
      ...members.flatMap((member) => {
        const sizeBytes = (member.type ?? "file") === "file" ? content.length : 0;
        const bytes = Buffer.from(content.slice(0, sizeBytes));
        const head = { type: "file", mode: 0o644, modifiedAtMs: 0, sizeBytes, ...member } as const;
        return [tarHeader(head), bytes, tarPadding(sizeBytes)];
      }),
      TAR_END,
    ]),
  );

test("one side is in a container", () => {
  assert.deepEqual(planCopy("web:/a", "b"), { way: "out", remote: { pod: "web", path: "/a" }, local: "b" });
  assert.deepEqual(planCopy("./a:b", "ns/web:c"), { way: "in", local: "./a:b", remote: { pod: "ns/web", path: "c" } });
  for (const [source, target, message] of [
    ["a", "b", /neither side/],
    ["a:b", "c:d", /both sides/],
    ["a:", "b", /no path/],
    [":a", "b", /no pod/],
    ["", "a:b", /a path on both sides/],
  ] as const)
    assert.throws(() => planCopy(source, target), message);
});

test("a path in a container is a folder and a name", () => {
  for (const [path, folder, name] of [
    ["/etc/hosts", "/etc", "hosts"],
    ["/etc/", "/", "etc"],
    ["/", "/", "."],
    [".", ".", "."],
    ["a/..", ".", "."],
    ["..", "..", "."],
    ["a", ".", "a"],
    ["-a/-b", "-a", "-b"],
  ] as const)
    assert.deepEqual(placeOf(path), { folder, name }, path);
});

test("no archive writes outside its target, whatever it names", async () => {
  const part = fc.constantFrom("..", ".", "a", "b", "root", "link", "", "/", "out");
  const member = fc.record({
    name: fc.array(part, { maxLength: 5 }).map((parts) => `root/${parts.join("/")}`.slice(0, 90)),
    type: fc.constantFrom("file", "folder", "symlink"),
    target: fc.constantFrom("..", "/", "../../out"),
  } as const);
  await fc.assert(
    fc.asyncProperty(fc.array(member, { maxLength: 6 }), async (members) => {
      using folder = new TempFolder();
      mkdirSync(folder.at("out"));
      mkdirSync(folder.at("target"));
      symlinkSync(folder.at("out"), folder.at("target/link"));
      const given = members.map(({ target, ...each }) => (each.type === "symlink" ? { ...each, target } : each));
      await unpack(archiveOf(given), { root: "root", target: folder.at("target"), warn: () => {} }).catch(() => {});
      assert.deepEqual(readdirSync(folder.at("out")), []);
      assert.deepEqual(readdirSync(folder.path).sort(), ["out", "target"]);
    }),
    { numRuns: 200 },
  );
});

test("what is left out is reported", async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("target"));
  symlinkSync("/tmp", folder.at("target/link"));
  const warnings: string[] = [];
  const given = [
    { name: "root", type: "folder" },
    { name: "root/../x" },
    { name: "other" },
    { name: "root/link/x" },
    { name: "root/new", type: "symlink", target: "/" },
    { name: "root/good" },
  ] as const;
  const init = { root: "root", target: folder.at("target"), warn: (text: string) => void warnings.push(text) };
  assert.deepEqual(await unpack(archiveOf(given), init), { files: 1, refused: 3 });
  assert.deepEqual(warnings, [
    '"root/../x" is left out: it would be outside the target',
    '"other" is left out: it would be outside the target',
    '"root/link/x" is left out: a link leads it outside the target',
    '"root/new" is left out: it is a link',
  ]);
  assert.equal(readFileSync(folder.at("target/good"), "utf8"), "content");
});

test("files that the kernel makes are read whole, and left out where they have no end", async () => {
  using folder = new TempFolder();
  for (const path of ["/proc/version", "/sys/kernel/uevent_seqnum", "/proc/self/pagemap", "/proc/kmsg"]) {
    const leftOut: string[] = [];
    const packed = Readable.from(pack({ source: path, name: "made", leaveOut: (each) => leftOut.push(each) }));
    const target = folder.at(path.replaceAll("/", "-"));
    await unpack(streamOf(packed), { root: "made", target, warn: () => {} });
    const isRead = path === "/proc/version" || path.startsWith("/sys/");
    assert.deepEqual(leftOut, isRead ? [] : [path]);
    if (isRead) assert.equal(readFileSync(target, "utf8"), readFileSync(path, "utf8"));
  }
});

test("a program can be executed after the way out, and has no more rights than a new file", async () => {
  using folder = new TempFolder();
  const given = [{ name: "root/run", mode: 0o4755 }, { name: "root/text" }];
  const init = { root: "root", target: folder.at("target"), warn: assert.fail };
  const umask = process.umask(0o027);
  try {
    await unpack(archiveOf(given), init);
  } finally {
    process.umask(umask);
  }
  const modeOf = (name: string): string => (statSync(folder.at(`target/${name}`)).mode & 0o7777).toString(8);
  assert.deepEqual([modeOf("run"), modeOf("text")], ["750", "640"]);
});

test("what is packed is unpacked as it was, with names of any length", async () => {
  using folder = new TempFolder();
  const deep = `source/${"d".repeat(120)}/${"e".repeat(120)}`;
  mkdirSync(folder.at(deep), { recursive: true });
  writeFileSync(folder.at(`${deep}/äöü`), "text");
  writeFileSync(folder.at("source/empty"), "");
  const left: string[] = [];
  const archive = pack({ source: folder.at("source"), name: "x", leaveOut: (path) => void left.push(path) });
  const warn = assert.fail;
  assert.deepEqual(await unpack(streamOf(archive), { root: "x", target: folder.at("copy"), warn }), {
    files: 2,
    refused: 0,
  });
  assert.equal(readFileSync(folder.at(`${deep.replace("source", "copy")}/äöü`), "utf8"), "text");
  assert.deepEqual(left, []);
  assert.equal(memberPath("x/y\0z", "x"), undefined);
});
