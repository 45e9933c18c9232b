import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import type { CgroupHierarchies } from "./cgroup-hierarchies.ts";
import { controllersOf, missingControllers, removeControllers, withheldControllers } from "./missing-controllers.ts";
import { pageBytes, pageBytesIn } from "./page-bytes.ts";

const OFF = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t60\t1\nmemory\t0\t60\t0\npids\t0\t60\t1\n";
const v2 = (mountPoint: string, ...controllers: string[]): CgroupHierarchies => ({
  kind: "v2",
  mountPoint,
  controllers: new Set(controllers),
});

/** A board's root file system with these files. */
function board(files: Readonly<Record<string, string>>): { readonly root: string } & Disposable {
  const folder = new TempFolder();
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(folder.at(path)), { recursive: true });
    writeFileSync(folder.at(path), text);
  }
  return { root: folder.at("."), [Symbol.dispose]: () => folder[Symbol.dispose]() };
}

for (const [files, where] of [
  [{ "boot/firmware/cmdline.txt": "", "boot/cmdline.txt": "" }, "the line in /boot/firmware/cmdline.txt"],
  [{ "boot/cmdline.txt": "" }, "the line in /boot/cmdline.txt"],
  [{}, "the kernel's command line"],
] as const) {
  test(`a disabled memory controller is reported, with what to add to ${where}`, async () => {
    using here = board({ ...files, "proc/cgroups": OFF });
    const v1: CgroupHierarchies = {
      kind: "v1",
      controllers: new Map([
        ["cpu", "/c"],
        ["pids", "/p"],
      ]),
      runtimesOwn: [],
    };
    for (const on of [v1, v2("/c", "cpu", "pids")]) {
      assert.deepEqual(await missingControllers(on, [], here.root), [
        {
          controller: "memory",
          message:
            "memory limits of pods are not enforced: the kernel's memory controller is off; " +
            `add "cgroup_enable=memory cgroup_memory=1" to ${where} and restart`,
        },
      ]);
    }
  });
}

test("what a kernel was built without is not to be had by its command line", async () => {
  using here = board({ "proc/cgroups": OFF.replace(/^memory.*\n/m, "") });
  const missing = await missingControllers(v2("/c", "cpu"), [], here.root);
  assert.deepEqual(
    missing.map(({ message }) => message),
    [
      "memory limits of pods are not enforced: this kernel was built without the memory controller",
      "limits of processes of pods are not enforced: this kernel has no pids controller",
    ],
  );
  assert.deepEqual(await missingControllers(v2("/c", "cpu", "memory", "pids"), [], here.root), []);
  assert.deepEqual(await missingControllers({ kind: "none", why: "" }, [], here.root), []);
});

test("controllers are delegated at the root of cgroup v2; those that are not are reported", async () => {
  using here = board({ "cgroup.subtree_control": "cpu\n" });
  const all = v2(here.root, "cpu", "memory", "io");
  assert.deepEqual(await withheldControllers(all), []);
  assert.match(readFileSync(`${here.root}/cgroup.subtree_control`, "utf8"), /^\+memory/);
  const closed = v2("/nonexistent", "cpu", "memory", "io");
  const withheld = await withheldControllers(closed);
  assert.deepEqual(withheld, ["cpu", "memory"]);
  const left = removeControllers(closed, withheld);
  assert.deepEqual(left.kind === "v2" && [...left.controllers], ["io"]);
  const [first] = await missingControllers(left, withheld, here.root);
  assert.match(first?.message ?? "", /^CPU limits of pods are not enforced: the root of cgroup v2 does not pass/);
});

test("any /proc/cgroups and auxiliary vector is read or skipped", async () => {
  assert.deepEqual(
    [...controllersOf(OFF)],
    [
      ["cpu", true],
      ["memory", false],
      ["pids", true],
    ],
  );
  fc.assert(fc.property(fc.string(), (text) => void controllersOf(text)));
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      const size = pageBytesIn(Buffer.from(bytes));
      assert.ok(size >= 4096 && Number.isInteger(Math.log2(size)));
    }),
  );
  const entry = (key: bigint, value: bigint): Buffer => {
    const bytes = Buffer.alloc(16);
    bytes.writeBigUInt64LE(key);
    bytes.writeBigUInt64LE(value, 8);
    return bytes;
  };
  assert.equal(pageBytesIn(Buffer.concat([entry(33n, 1n), entry(6n, 16_384n), entry(0n, 0n)])), 16_384);
  assert.equal(pageBytesIn(Buffer.concat([entry(6n, 5000n)])), 4096);
  assert.ok((await pageBytes()) >= 4096);
  assert.equal(await pageBytes("/nonexistent"), 4096);
});
