/** With real files, measured by the real du. */
import assert from "node:assert/strict";
import { linkSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, type MonotonicMs, millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { runningContainer, usagePod } from "@picolet/test/support/unit/pods/usage-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { DiskUsageSampler } from "./disk-usage-sampler.ts";

const NEVER = new AbortController().signal;
const NEW = millis(0);
const RECENT = millis(1);

/** Each reading is later by an amount that the test sets, which makes measurements take that long. */
class SlowClock extends VirtualClock {
  lateMs = 0;
  #late = 0;

  override monotonic(): MonotonicMs {
    this.#late += this.lateMs;
    return (super.monotonic() + this.#late) as MonotonicMs;
  }
}

class Disk implements Disposable {
  readonly folder = new TempFolder();
  readonly clock = new SlowClock();
  readonly log = new RecordedLog();
  readonly paths = new PodPaths({ rootDir: this.folder.at("lib"), podLogsDir: this.folder.at("logs") });
  readonly written = new Map<string, number>();
  readonly folders = new Map<string, string>();
  readonly pods: AgentPod[] = [];
  calls = 0;
  isSilent = false;
  readonly looks: DiskUsageSampler;

  constructor() {
    const adapter = {
      name: "cri",
      writtenLayers: async () => {
        this.calls += 1;
        if (this.isSilent) throw new PicoletError("unavailable", "no answer", { retryable: true });
        return new Map([...this.written].map(([id, bytes]) => [id, { bytes, inodes: 2 }]));
      },
    } as unknown as RuntimeAdapter;
    const { paths, clock, log } = this;
    this.looks = new DiskUsageSampler({
      pods: () => this.pods,
      adapters: [adapter],
      paths,
      writtenFolders: () => this.folders,
      clock,
      log,
    });
  }

  add(uid: string): AgentPod {
    const volumes = [
      { name: "data", emptyDir: {} },
      { name: "memory", emptyDir: { medium: "Memory" } },
      { name: "config", configMap: { name: "c" } },
    ];
    const pod = usagePod(
      uid,
      [`${uid}-app`],
      { containers: [{ name: `${uid}-app`, image: "i" }], volumes },
      this.folder.at("logs", uid),
    );
    this.pods.push(pod);
    return pod;
  }

  write(path: string, bytes: number): string {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, Buffer.alloc(bytes, 1));
    return path;
  }

  data(uid: string, file: string): string {
    return `${this.paths.volume(uid, "empty-dir", "data")}/${file}`;
  }

  async volumeBytes(uid: string, maxAge = NEW): Promise<number> {
    return (await this.looks.disk(maxAge, NEVER)).get(podUid(uid))?.volumes.get("data")?.bytes ?? 0;
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("everything of a pod: what containers wrote, in all of their runs, logs, volumes that are on disk, /etc/hosts", async () => {
  using disk = new Disk();
  const pod = disk.add("one");
  const again = { ...runningContainer("one-app"), id: "before" };
  disk.pods[0] = { ...pod, containers: [...pod.containers, again] };
  disk.write(disk.data("one", "deep/file"), 3 * MEBIBYTE);
  disk.write(`${disk.paths.volume("one", "empty-dir", "memory")}/file`, 8 * MEBIBYTE);
  disk.write(`${disk.paths.volume("one", "configmap", "config")}/key`, 10);
  disk.write(disk.folder.at("logs/one/one-app/0.log"), MEBIBYTE);
  disk.write(disk.paths.etcHosts("one"), 100);
  for (const [id, bytes] of [
    ["one-app", 500],
    ["before", 70],
    ["a stranger's", 9],
  ] as const)
    disk.written.set(id, bytes);
  const usage = (await disk.looks.disk(NEW, NEVER)).get(podUid("one"));
  assert.deepEqual(usage?.rootfs, new Map([["one-app", { bytes: 570, inodes: 4 }]]));
  assert.deepEqual([...(usage?.volumes.keys() ?? [])], ["data", "config"]);
  const { bytes = 0, inodes } = usage?.volumes.get("data") ?? {};
  assert.ok(bytes >= 3 * MEBIBYTE && bytes < 3.1 * MEBIBYTE, String(bytes));
  assert.equal(inodes, 3);
  assert.ok((usage?.logs.get("one-app")?.bytes ?? 0) >= MEBIBYTE);
  assert.ok((usage?.otherBytes ?? 0) >= 100);
  assert.equal(usage?.atMs, disk.clock.wall().getTime());
});

test("who is in need has what containers have written counted now, not when their runtime did so last", async () => {
  using disk = new Disk();
  disk.add("one");
  disk.written.set("one-app", 10);
  disk.folders.set("one-app", dirname(disk.write(disk.folder.at("snapshot/fs/file"), 5 * MEBIBYTE)));
  const bytes = async (maxAge: Millis): Promise<number> =>
    (await disk.looks.disk(maxAge, NEVER)).get(podUid("one"))?.rootfs.get("one-app")?.bytes ?? 0;
  assert.equal(await bytes(seconds(60)), 10);
  const now = await bytes(millis(0));
  assert.ok(now >= 5 * MEBIBYTE && now < 5.2 * MEBIBYTE, String(now));
});

test("links lead nowhere else, and a file with two names counts once", async () => {
  using disk = new Disk();
  disk.add("one");
  const outside = disk.write(disk.folder.at("outside/file"), 8 * MEBIBYTE);
  linkSync(disk.write(disk.data("one", "file"), MEBIBYTE), disk.data("one", "again"));
  symlinkSync(dirname(outside), disk.data("one", "folder"));
  symlinkSync(outside, disk.data("one", "link"));
  const bytes = await disk.volumeBytes("one");
  assert.ok(bytes >= MEBIBYTE && bytes < 1.5 * MEBIBYTE, String(bytes));
});

test("one question to the runtime and one measurement serve all who ask, and all pods", async () => {
  using disk = new Disk();
  for (let index = 0; index < 70; index += 1) disk.write(disk.data(disk.add(`pod${index}`).desired.uid, "file"), 4096);
  const [one, other] = await Promise.all([disk.looks.disk(NEW, NEVER), disk.looks.disk(NEW, NEVER)]);
  assert.deepEqual([one.size, other.size, disk.calls], [70, 70, 1]);
  assert.ok([...one.values()].every(({ volumes }) => (volumes.get("data")?.bytes ?? 0) >= 4096));
  await disk.clock.advance(seconds(59));
  await disk.looks.disk(seconds(60), NEVER);
  assert.equal(disk.calls, 1);
  await disk.clock.advance(seconds(2));
  const some = await disk.looks.disk(seconds(60), NEVER, new Set([podUid("pod3")]));
  assert.deepEqual([[...some.keys()], disk.calls], [["pod3"], 2]);
  assert.equal(disk.looks.measured().size, 70);
});

test("a pod whose folders take long is measured less often, and by itself, so that the others are not", async () => {
  using disk = new Disk();
  for (const uid of ["slow", "quick"]) disk.write(disk.data(disk.add(uid).desired.uid, "file"), 4096);
  disk.clock.lateMs = 600;
  await disk.looks.disk(NEW, NEVER);
  disk.clock.lateMs = 0;
  const before = await disk.volumeBytes("slow", RECENT);
  for (const uid of ["slow", "quick"]) disk.write(disk.data(uid, "more"), MEBIBYTE);
  // Together they took 0.6 s, so that each is due after 30.
  await disk.clock.advance(seconds(29));
  assert.equal(await disk.volumeBytes("slow", RECENT), before);
  await disk.clock.advance(seconds(3));
  assert.ok((await disk.volumeBytes("slow", RECENT)) > MEBIBYTE);
  // Each by itself was quick, in time that does not pass: they are measured together again.
  disk.write(disk.data("quick", "most"), MEBIBYTE);
  await disk.clock.advance(millis(1));
  assert.ok((await disk.volumeBytes("quick")) > 2 * MEBIBYTE);
});

test("who is in need gets new figures of a pod whose folders take long, as soon as that leaves time to others", async () => {
  using disk = new Disk();
  disk.write(disk.data(disk.add("slow").desired.uid, "file"), 4096);
  disk.clock.lateMs = 600;
  const before = await disk.volumeBytes("slow");
  disk.clock.lateMs = 0;
  disk.write(disk.data("slow", "more"), MEBIBYTE);
  await disk.clock.advance(millis(10));
  assert.equal(await disk.volumeBytes("slow"), before);
  await disk.clock.advance(seconds(2));
  assert.equal(await disk.volumeBytes("slow", RECENT), before);
  assert.ok((await disk.volumeBytes("slow")) > MEBIBYTE);
});

test("a runtime that does not answer leaves the rest to be told; what has ended is not measured", async () => {
  using disk = new Disk();
  disk.add("one");
  const ended = disk.add("two");
  disk.pods[1] = { ...ended, status: { phase: "Failed" }, containers: [] };
  disk.write(disk.data("one", "file"), MEBIBYTE);
  disk.isSilent = true;
  assert.ok((await disk.volumeBytes("one")) >= MEBIBYTE);
  await disk.clock.advance(millis(1));
  const usage = await disk.looks.disk(NEW, NEVER);
  assert.deepEqual([...usage.keys()], ["one"]);
  assert.equal(usage.get(podUid("one"))?.rootfs.size, 0);
  assert.deepEqual(disk.log.problems, ["cannot tell what containers have written"]);
  disk.pods.length = 0;
  disk.add("three");
  await disk.looks.disk(NEW, NEVER);
  assert.deepEqual([...disk.looks.measured().keys()], ["three"]);
});

test("nobody who has gone is measured for", async () => {
  using disk = new Disk();
  disk.add("one");
  const asker = new AbortController();
  const asked = disk.looks.disk(NEW, asker.signal);
  asker.abort();
  await assert.rejects(asked, { code: "cancelled" });
  assert.equal(disk.looks.measured().size, 0);
  assert.equal((await disk.looks.disk(NEW, NEVER)).size, 1);
});
