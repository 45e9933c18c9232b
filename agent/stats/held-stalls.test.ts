import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import type { CgroupFolders } from "./cgroup-usage.ts";
import { HeldStalls } from "./held-stalls.ts";

const PATHS = ["/kubepods/pod1", "/kubepods/pod2"];

/** Cgroups of two pods. */
class Cgroups implements Disposable {
  readonly folder = new TempFolder();
  readonly stalls: HeldStalls;

  constructor(kind: CgroupFolders["kind"] = "v2") {
    this.stalls = new HeldStalls({ kind, folder: () => this.folder.path });
  }

  write(path: string, someUs: number, events: string): void {
    mkdirSync(this.folder.at(path), { recursive: true });
    const line = (total: number): string => `avg10=0.00 avg60=0.00 avg300=0.00 total=${total}`;
    writeFileSync(this.folder.at(path, "memory.pressure"), `some ${line(someUs)}\nfull ${line(7)}\n`);
    writeFileSync(this.folder.at(path, "memory.events"), `low 0\n${events}\noom 0\noom_kill 0\n`);
  }

  at(ms: number): number {
    return this.stalls.totalUs(PATHS, ms as MonotonicMs);
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("the stalls of a pod count from its hit of a limit of its own until three seconds later", () => {
  using cgroups = new Cgroups();
  const step = (ms: number, someUs: number, events: string): number => {
    cgroups.write("/kubepods/pod1", someUs, events);
    cgroups.write("/kubepods/pod2", someUs * 10, "high 0\nmax 0");
    return cgroups.at(ms);
  };
  assert.equal(step(0, 100, "high 0\nmax 0"), 0);
  assert.equal(step(1_000, 200, "high 0\nmax 0"), 0, "it stalls with the whole board");
  assert.equal(step(2_000, 300, "high 1\nmax 0"), 100, "memory.high");
  assert.equal(step(4_999, 400, "high 1\nmax 0"), 200);
  assert.equal(step(5_000, 500, "high 1\nmax 0"), 200, "three seconds later");
  assert.equal(step(6_000, 600, "high 1\nmax 4"), 300, "memory.max");
  assert.equal(step(7_000, 50, "high 1\nmax 5"), 300, "a pod of the same path");
});

test("a pod that hit a limit before it was read first may still be delayed by the kernel", () => {
  using cgroups = new Cgroups();
  cgroups.write("/kubepods/pod1", 100, "high 9\nmax 0");
  assert.equal(cgroups.at(0), 0);
  cgroups.write("/kubepods/pod1", 150, "high 9\nmax 0");
  assert.equal(cgroups.at(1_000), 50);
});

test("a pod that has gone or has no figures, and cgroups v1, count nothing", () => {
  using cgroups = new Cgroups();
  assert.equal(cgroups.at(0), 0);
  cgroups.write("/kubepods/pod1", 100, "high 1");
  writeFileSync(cgroups.folder.at("/kubepods/pod1/memory.pressure"), "what it is not");
  assert.equal(cgroups.at(1_000), 0);
  using v1 = new Cgroups("v1");
  v1.write("/kubepods/pod1", 100, "high 1");
  v1.at(0);
  v1.write("/kubepods/pod1", 200, "high 2");
  assert.equal(v1.at(1_000), 0);
});
