import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { WriteCounters } from "./write-counters.ts";

class Machine extends TemporaryFolder {
  write(files: Record<string, string>): this {
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(dirname(this.file(file)), { recursive: true });
      writeFileSync(this.file(file), text);
    }
    return this;
  }

  counters(kind: "v1" | "v2" | "none"): WriteCounters {
    return new WriteCounters({ cgroups: { kind, mountPoint: this.file("cgroup") }, proc: this.file("proc") });
  }
}

const io = (written: number, cancelled = 0): string =>
  `rchar: 9\nwchar: 9\nsyscr: 1\nsyscw: 1\nread_bytes: 7\nwrite_bytes: ${written}\ncancelled_write_bytes: ${cancelled}\n`;

test("disks are counted in sectors of 512 bytes, also those with larger ones", () => {
  using machine = new Machine();
  const line = "7 12 10596 84 256 282 17534 106 0 204 286 12 0 196620 0 158 94";
  machine.write({
    "proc/diskstats": ` 179       0 mmcblk0 ${line}\n 179 1 mmcblk0p1 ${line}\n  nonsense\n 8 0 sda 1 2 x\n`,
  });
  const found = machine.counters("none").disks(["mmcblk0", "sda", "gone"]);
  assert.deepEqual([...found], [["mmcblk0", { numbers: "179:0", bytes: 17_534 * 512 }]]);
});

test("of cgroup v2 what reached these disks counts", () => {
  using machine = new Machine();
  const stat = "179:0 rbytes=1 wbytes=4096 rios=1 wios=1 dbytes=0 dios=0\n254:0 rbytes=0 wbytes=77\n179:8\n";
  machine.write({ "cgroup/pod/io.stat": stat, "cgroup/pod/cgroup.procs": "", "cgroup/new/io.stat": "" });
  const disks = new Set(["179:0", "179:8"]);
  assert.equal(machine.counters("v2").pod("/pod", disks, "cgroup"), 4096);
  assert.equal(machine.counters("v2").pod("/new", disks, "cgroup"), 0);
  assert.equal(machine.counters("v2").pod("/gone", disks, "cgroup"), undefined);
  assert.equal(machine.counters("none").pod("/pod", disks, "cgroup"), undefined);
});

test("elsewhere what the processes of the pod have written, in whichever cgroup below it they are", () => {
  using machine = new Machine();
  machine.write({
    "cgroup/pod/cgroup.procs": "1\n",
    "cgroup/pod/a/cgroup.procs": "2\n3\n",
    "cgroup/pod/a/b/cgroup.procs": "4\n",
    ...{ "proc/1/io": io(1), "proc/2/io": io(20, 5), "proc/3/io": io(100, 300), "proc/4/io": io(4000) },
  });
  const disks = new Set<string>();
  assert.equal(machine.counters("v1").pod("/pod", disks, "cgroup"), 4016);
  rmSync(machine.file("proc/4"), { recursive: true });
  assert.equal(machine.counters("v2").pod("/pod", disks, "processes"), 16, "one that ends meanwhile is left out");
  assert.equal(machine.counters("v1").pod("/gone", disks, "cgroup"), undefined);
});

test("this process's own writes are its threads', and its children's once they were waited for", () => {
  const counters = new WriteCounters({ cgroups: { kind: "none", mountPoint: "" } });
  const start = counters.own();
  // On a file system in memory nothing is written; the working folder is on none.
  const file = `.written-${process.pid}`;
  try {
    writeFileSync(file, Buffer.alloc(MEBIBYTE));
    const own = counters.own();
    assert.ok(own.threads - start.threads >= MEBIBYTE, "written by a thread");
    execFileSync("dd", ["if=/dev/zero", `of=${file}`, "bs=1M", "count=3", "seek=1", "conv=notrunc"], {
      stdio: "ignore",
    });
    const whole = counters.own();
    assert.ok(whole.whole - own.whole >= 3 * MEBIBYTE, "written by a child");
    assert.ok(whole.threads - own.threads < 3 * MEBIBYTE);
  } finally {
    rmSync(file, { force: true });
  }
  assert.match(counters.bootId, /^[0-9a-f-]{36}$/);
});
