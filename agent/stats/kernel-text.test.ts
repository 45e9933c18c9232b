import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { type CgroupFolders, CgroupUsages } from "./cgroup-usage.ts";
import { fieldIn, numberIn, readKernelFile, stallsIn } from "./kernel-text.ts";
import {
  machineUptimeMs,
  machineUsage,
  maxProcesses,
  networkInterfaces,
  ownCgroup,
  ownUsage,
} from "./machine-usage.ts";

test("numbers, and what is none", () => {
  assert.deepEqual(["42\n", "0", "18446744073709551615\n"].map(numberIn), [42, 0, 18446744073709552000]);
  assert.deepEqual(["max\n", "", "-1\n", "\n", undefined].map(numberIn), Array(5).fill(undefined));
});

test("a field is one of its own line, not of another that ends so", () => {
  const text = "inactive_file 1\ntotal_inactive_file 2\nfile 3\npgfault\nanon max\n";
  assert.deepEqual(
    ["inactive_file ", "total_inactive_file ", "file ", "pgfault ", "anon ", "none "].map((name) =>
      fieldIn(text, name),
    ),
    [1, 2, 3, undefined, undefined, undefined],
  );
  assert.equal(fieldIn("MemTotal:       24684092 kB\nMemFree:  5 kB\n", "MemFree:"), 5);
});

test("stalls are read as the kernel writes them, and nothing else is", () => {
  const some = { avg10: 2.76, avg60: 0.98, avg300: 0.99, totalUs: 12_471_258_820 };
  const line = "some avg10=2.76 avg60=0.98 avg300=0.99 total=12471258820\n";
  assert.deepEqual(stallsIn(line), { some, full: undefined });
  assert.deepEqual(stallsIn(`${line}${line.replace("some", "full")}`), { some, full: some });
  assert.equal(stallsIn("some avg10=2.76 avg60=0.98\nfull avg300=0.99 total=1\n"), undefined);
  assert.equal(stallsIn("full avg10=0 avg60=0 avg300=0 total=0\n"), undefined);
});

/** Lines of a broken kernel file: right names with wrong values, and arbitrary bytes. */
const NAMES = [
  "usage_usec",
  "nr_periods",
  "throttled_usec",
  "anon",
  "inactive_file",
  "total_rss",
  "pgfault",
  "cpu",
  "MemTotal:",
];
const VALUES = [
  "-1",
  "NaN",
  "max",
  "1e400",
  "99999999999999999999999999",
  "0x10",
  "",
  "7",
  "7.5",
  "some avg10=x total=",
];
const nonsense = fc.oneof(
  fc.uint8Array({ maxLength: 400 }).map((bytes) => Buffer.from(bytes)),
  fc
    .array(fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom(" ", "\t", ":"), fc.constantFrom(...VALUES)))
    .map((lines) => Buffer.from(lines.map((line) => line.join("")).join("\n"))),
);

const FILES = {
  v1: ["memory.usage_in_bytes", "memory.limit_in_bytes", "memory.stat", "cpuacct.usage", "cpu.stat", "pids.current"],
  v2: [
    "memory.current",
    "memory.max",
    "memory.swap.current",
    "memory.swap.max",
    "memory.stat",
    "cpu.stat",
    "pids.current",
  ],
} as const;

function assertSane(value: unknown): void {
  if (typeof value === "number") assert.ok(value >= 0 && value !== Number.POSITIVE_INFINITY, String(value));
  if (typeof value === "object" && value !== null) Object.values(value).forEach(assertSane);
}

test("with any content of the kernel's files nothing fails, and no figure is impossible", () => {
  using folder = new TempFolder();
  const write = (name: string, content: Uint8Array): void => {
    mkdirSync(dirname(folder.at(name)), { recursive: true });
    writeFileSync(folder.at(name), content);
  };
  const proc = ["stat", "meminfo", "vmstat", "loadavg", "uptime", "self/net/dev", "self/cgroup", "self/status"];
  const kernel = ["sys/kernel/pid_max", "sys/kernel/threads-max", "pressure/cpu", "pressure/memory", "pressure/io"];
  fc.assert(
    fc.property(
      fc.constantFrom<"v1" | "v2">("v1", "v2"),
      fc.array(nonsense, { minLength: 8, maxLength: 8 }),
      (kind, texts) => {
        const text = (index: number): Uint8Array => texts[index % texts.length] ?? Buffer.alloc(0);
        for (const [index, name] of [...FILES[kind], "cgroup.procs"].entries()) write(`pod/${name}`, text(index));
        for (const [index, name] of ["cpu", "memory", "io"].entries()) write(`pod/${name}.pressure`, text(index));
        for (const [index, name] of [...proc, ...kernel].entries()) write(name, text(index));
        const folders: CgroupFolders = { kind, folder: () => folder.path };
        const usages = new CgroupUsages(folders);
        assertSane(usages.read("/pod", { swap: true, pressure: true }));
        assertSane(usages.processes("/pod"));
        assertSane(machineUsage(folder.path));
        assertSane(networkInterfaces(folder.path, undefined));
        assertSane([maxProcesses(folder.path), machineUptimeMs(folder.path), ownUsage(folder.path)]);
        ownCgroup(folder.path);
      },
    ),
    { numRuns: 300 },
  );
});

test("the agent's own cgroup, of either version; none where it is in several or at the top", () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("self"));
  const of = (text: string): string | undefined => {
    writeFileSync(folder.at("self/cgroup"), text);
    return ownCgroup(folder.path);
  };
  assert.equal(of("0::/system.slice/picolet.service\n"), "/system.slice/picolet.service");
  assert.equal(of("5:memory:/a:b\n2:cpu,cpuacct:/a:b\n1:name=systemd:/c\n0::/a:b\n"), "/a:b");
  assert.equal(of("5:memory:/a\n2:cpuacct:/\n"), undefined);
  assert.equal(of("0::/\n"), undefined);
});

test("a file that is not there, or a folder, is nothing", () => {
  using folder = new TempFolder();
  assert.equal(readKernelFile(folder.at("none")), undefined);
  assert.equal(readKernelFile(folder.path), undefined);
});
