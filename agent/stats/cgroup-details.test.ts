/** On folders as the kernel has them; the real ones are in test/e2e/node/metrics.test.ts. */
import assert from "node:assert/strict";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { CgroupDetailsReader } from "./cgroup-details.ts";

const DISKSTATS = "   8       0 sda 1 2 3\n 179       0 mmcblk0 1 2 3\n";

function write(folder: TempFolder, files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(folder.at(name)), { recursive: true });
    writeFileSync(folder.at(name), text);
  }
}

const known = (details: object): object =>
  Object.fromEntries(Object.entries(details).filter(([, value]) => value !== undefined));

test("version 2", () => {
  using folder = new TempFolder();
  write(folder, {
    "pod/cpu.stat":
      "usage_usec 900\nuser_usec 500000\nsystem_usec 250000\nnr_periods 7\nnr_throttled 2\nthrottled_usec 3000000\n",
    "pod/cpu.max": "50000 100000\n",
    "pod/cpu.weight": "39\n",
    "pod/memory.stat": "anon 1\nfile 2\nkernel 3\nfile_mapped 4\nactive_file 5\ninactive_file 6\n",
    "pod/memory.events": "low 0\nhigh 0\nmax 8\noom 1\noom_kill 9\n",
    "pod/memory.max": "1024\n",
    "pod/memory.swap.max": "max\n",
    "pod/memory.low": "10\n",
    "pod/memory.peak": "11\n",
    "pod/pids.max": "12\n",
    "pod/io.stat": "179:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n7:0 \n",
    "proc/diskstats": DISKSTATS,
    "proc/42/limits":
      "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1048576              1048576              files\n",
  });
  mkdirSync(folder.at("proc/42/fd"));
  symlinkSync("/dev/null", folder.at("proc/42/fd/0"));
  symlinkSync("socket:[123]", folder.at("proc/42/fd/1"));
  const reader = new CgroupDetailsReader({ kind: "v2", folder: () => folder.path }, folder.at("proc"));
  assert.deepEqual(known(reader.read("/pod", [42, 4242])), {
    ...{ userSeconds: 0.5, systemSeconds: 0.25, periods: 7, throttledPeriods: 2, throttledSeconds: 3 },
    ...{ cpuPeriodUs: 100_000, cpuQuotaUs: 50_000, cpuShares: 998, cacheBytes: 2, mappedFileBytes: 4, kernelBytes: 3 },
    ...{ activeFileBytes: 5, inactiveFileBytes: 6, maxUsageBytes: 11, failures: 8, oomKills: 9 },
    ...{ memoryLimitBytes: 1024, memoryReservationBytes: 10, maxThreads: 12 },
    traffic: [
      ...[{ device: "/dev/mmcblk0", major: "179", minor: "0", readBytes: 1, writtenBytes: 2, reads: 3, writes: 4 }],
      ...[{ device: "", major: "7", minor: "0", readBytes: 0, writtenBytes: 0, reads: 0, writes: 0 }],
    ],
    ...{ processes: 2, descriptors: 2, sockets: 1, maxOpenFiles: 1_048_576 },
  });
});

test("version 1", () => {
  using folder = new TempFolder();
  write(folder, {
    "pod/cpu.stat": "nr_periods 7\nnr_throttled 2\nthrottled_time 3000000000\n",
    "pod/cpuacct.stat": "user 50\nsystem 25\n",
    "pod/cpu.cfs_period_us": "100000\n",
    "pod/cpu.cfs_quota_us": "-1\n",
    "pod/cpu.shares": "512\n",
    "pod/memory.stat": "cache 1\ntotal_cache 2\ntotal_mapped_file 4\ntotal_active_file 5\ntotal_inactive_file 6\n",
    "pod/memory.failcnt": "8\n",
    "pod/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n",
    "pod/memory.limit_in_bytes": "9223372036854771712\n",
    "pod/memory.max_usage_in_bytes": "11\n",
    "pod/blkio.throttle.io_service_bytes_recursive": "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n",
    "pod/blkio.throttle.io_serviced_recursive": "8:0 Read 3\n8:0 Write 4\n",
    "proc/diskstats": DISKSTATS,
  });
  const reader = new CgroupDetailsReader({ kind: "v1", folder: () => folder.path }, folder.at("proc"));
  assert.deepEqual(known(reader.read("/pod", [])), {
    ...{ userSeconds: 0.5, systemSeconds: 0.25, periods: 7, throttledPeriods: 2, throttledSeconds: 3 },
    ...{ cpuPeriodUs: 100_000, cpuShares: 512, cacheBytes: 2, mappedFileBytes: 4, activeFileBytes: 5 },
    ...{ inactiveFileBytes: 6, maxUsageBytes: 11, failures: 8, oomKills: 9 },
    traffic: [{ device: "/dev/sda", major: "8", minor: "0", readBytes: 1, writtenBytes: 2, reads: 3, writes: 4 }],
  });
});

test("a cgroup that is gone, and a kernel without cgroups, have no figures", () => {
  using folder = new TempFolder();
  const gone = new CgroupDetailsReader({ kind: "v2", folder: () => folder.path }, folder.at("proc"));
  assert.deepEqual(known(gone.read("/pod", [])), { traffic: [] });
  const none = new CgroupDetailsReader({ kind: "none", folder: () => undefined }, folder.at("proc"));
  assert.deepEqual(known(none.read("", [7])), { ...{ traffic: [], processes: 1, descriptors: 0, sockets: 0 } });
});
