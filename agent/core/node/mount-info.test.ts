import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { mountPointsWithin, parseMountInfo } from "./mount-info.ts";

test("this machine's own mountinfo is understood, root and proc among it", () => {
  const entries = parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8"));
  assert.ok(entries.some((entry) => entry.mountPoint === "/"));
  assert.ok(entries.some((entry) => entry.mountPoint === "/proc" && entry.fileSystem === "proc"));
});

test("optional fields, none or several, do not shift the rest", () => {
  const [none, two] = parseMountInfo(
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n" +
      "36 35 98:0 /sub /mnt rw,noatime master:1 shared:7 - ext4 /dev/root rw,errors=continue\n",
  );
  assert.deepEqual(none?.superOptions, ["rw", "cpu", "cpuacct"]);
  assert.equal(none?.isShared, false);
  assert.deepEqual(two, {
    device: "98:0",
    root: "/sub",
    mountPoint: "/mnt",
    fileSystem: "ext4",
    isShared: true,
    superOptions: ["rw", "errors=continue"],
  });
});

test("mounts below a folder come last mounted first, and a longer name beside it is not below it", () => {
  const line = (path: string): string => `1 1 0:1 / ${path} rw - tmpfs tmpfs rw`;
  const entries = parseMountInfo(["/pods/a", "/pods/a/x", "/pods/ab", "/pods/a/x", "/pods/a/x/y"].map(line).join("\n"));
  assert.deepEqual(mountPointsWithin(entries, "/pods/a"), ["/pods/a/x/y", "/pods/a/x", "/pods/a/x", "/pods/a"]);
  assert.deepEqual(mountPointsWithin(entries, "/").length, 5);
});

test("every path survives the kernel's escaping", () => {
  const escaped = (path: string): string =>
    path.replace(/[ \t\n\\]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`);
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), (name) => {
      const path = `/${name}`;
      const [entry] = parseMountInfo(`1 1 0:1 / ${escaped(path)} rw - tmpfs tmpfs rw`);
      assert.equal(entry?.mountPoint, path);
    }),
  );
});

test("no text makes the parser fail", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom("-", " ", "\n", "a", "\\", "0", ",", "/") }), (text) => {
      for (const entry of parseMountInfo(text)) assert.equal(typeof entry.mountPoint, "string");
    }),
  );
});
