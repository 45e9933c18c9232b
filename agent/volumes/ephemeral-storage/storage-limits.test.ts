/** With real files, measured by the real du. */

import assert from "node:assert/strict";
import { linkSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod, ObservedContainer, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { PodEnd } from "../../core/pods/pod-admission.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { diskUsage } from "./disk-usage.ts";
import { DiskUsageSampler } from "./disk-usage-sampler.ts";
import { StorageLimits } from "./storage-limits.ts";
import { storageExcess } from "./storage-verdict.ts";

const NEVER = new AbortController().signal;
type Spec = NonNullable<Parameters<typeof podOf>[0]>;

/** Reports when a sleep begins, which means that a round is over. */
class WatchedClock extends VirtualClock {
  #asleep = Promise.withResolvers<void>();

  override sleep(duration: Millis, signal: AbortSignal): Promise<void> {
    const sleeping = super.sleep(duration, signal);
    this.#asleep.resolve();
    this.#asleep = Promise.withResolvers<void>();
    return sleeping;
  }

  async untilAsleep(): Promise<void> {
    if (this.sleeping === 0) await this.#asleep.promise;
  }
}

class Bench implements AsyncDisposable {
  readonly folder = new TempFolder();
  readonly clock = new WatchedClock();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly paths = new PodPaths({ rootDir: this.folder.at("lib"), podLogsDir: this.folder.at("logs") });
  readonly changed = new WatchSource(0);
  readonly pods: AgentPod[] = [];
  /** The runtime does not answer. */
  isSilent = false;
  readonly written = new Map<string, number>();
  readonly ended: { readonly uid: string; readonly how: PodEnd }[] = [];
  readonly #life = new AbortController();
  readonly #running: Promise<void>;

  constructor() {
    const adapter = {
      name: "cri",
      writtenLayers: async () => {
        if (this.isSilent) throw new PicoletError("unavailable", "no answer", { retryable: true });
        return new Map([...this.written].map(([id, bytes]) => [id, { bytes, inodes: 1 }]));
      },
    } as unknown as RuntimeAdapter;
    const { paths, clock, log } = this;
    const disks = new DiskUsageSampler({
      pods: () => this.pods,
      adapters: [adapter],
      paths,
      writtenFolders: () => new Map(),
      clock,
      log,
    });
    const limits = new StorageLimits({
      pods: () => this.pods,
      podsChanged: this.changed,
      disk: disks.disk.bind(disks),
      ender: {
        end: async (uid, how) => {
          this.ended.push({ uid, how });
        },
      },
      events: this.events,
      clock: this.clock,
      log: this.log,
    });
    this.#running = endOfRun(limits.run(this.#life.signal));
  }

  add(spec: Spec, source: DesiredPod["source"] = "api"): DesiredPod {
    const uid = podUid(`uid-${this.pods.length}`);
    const desired = { uid, source, origin: "", pod: podOf(spec) };
    const containers = desired.pod.spec.containers.map(
      ({ name }) => ({ id: name, name, state: { kind: "running", startedAtMs: 0 } }) as ObservedContainer,
    );
    const logDirectory = this.paths.logs(desired);
    const status = { phase: "Running" } as const;
    this.pods.push({ desired, status, terminatingSinceMs: undefined, runtime: "cri", containers, logDirectory });
    this.changed.set(this.changed.current + 1);
    return desired;
  }

  write(path: string, bytes: number): void {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, Buffer.alloc(bytes, 1));
  }

  async round(): Promise<void> {
    await this.clock.untilAsleep();
    await this.clock.step();
    await this.clock.untilAsleep();
    await this.clock.settle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
    this.folder[Symbol.dispose]();
  }
}

const withEmptyDir = (sizeLimit: string): Spec => ({
  volumes: [{ name: "x", emptyDir: { sizeLimit } }],
  containers: [{ name: "app", image: "app", volumeMounts: [{ name: "x", mountPath: "/x" }] }],
});

test("an emptyDir beyond its limit gets its pod evicted, with the kubelet's event and message", async () => {
  await using bench = new Bench();
  const pod = bench.add(withEmptyDir("10Mi"));
  bench.write(`${bench.paths.volume(pod.uid, "empty-dir", "x")}/deep/file`, 11 * MEBIBYTE);
  await bench.round();
  const message = 'Usage of EmptyDir volume "x" exceeds the limit "10Mi". ';
  const decision = { kind: "storageExceeded", message: message.trim() };
  const how = { reason: "Evicted", message, gracePeriod: seconds(1), decision };
  assert.deepEqual(bench.ended, [{ uid: pod.uid, how }]);
  assert.deepEqual(bench.events.lines, [`Warning Evicted: ${message}`]);
});

test("a pod's limit is over all that it keeps: volumes, logs, ConfigMaps and its containers' own files", async () => {
  await using bench = new Bench();
  const resources = { limits: { "ephemeral-storage": "4Mi" } };
  const pod = bench.add({
    volumes: [
      { name: "x", emptyDir: {} },
      { name: "memory", emptyDir: { medium: "Memory" } },
      { name: "cm", configMap: { name: "cm" } },
    ],
    containers: [{ name: "app", image: "app", resources }],
  });
  const volume = bench.paths.volume(pod.uid, "empty-dir", "x");
  bench.write(`${volume}/file`, MEBIBYTE);
  bench.write(`${bench.paths.volume(pod.uid, "empty-dir", "memory")}/file`, 8 * MEBIBYTE);
  bench.write(`${bench.paths.volume(pod.uid, "configmap", "cm")}/file`, MEBIBYTE / 2);
  bench.write(`${bench.paths.logs(pod)}/app/0.log`, MEBIBYTE);
  bench.written.set("app", MEBIBYTE);
  await bench.round();
  assert.equal(bench.ended.length, 0);
  bench.written.set("app", 2 * MEBIBYTE);
  await bench.round();
  assert.equal(
    bench.ended[0]?.how.message,
    "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
  );
});

test("a runtime that says nothing holds up no judgement of volumes, and is said once", async () => {
  await using bench = new Bench();
  const resources = { limits: { "ephemeral-storage": "1Mi" } };
  const spec: Spec = { ...withEmptyDir("1Gi"), containers: [{ name: "app", image: "app", resources }] };
  const pods = [bench.add(spec), bench.add(spec), bench.add(spec)];
  bench.isSilent = true;
  bench.written.set("app", 8 * MEBIBYTE);
  await bench.round();
  assert.deepEqual(bench.ended, []);
  for (const { uid } of pods) bench.write(`${bench.paths.volume(uid, "empty-dir", "x")}/file`, 2 * MEBIBYTE);
  await bench.round();
  assert.deepEqual(
    bench.ended.map(({ uid }) => uid),
    pods.map(({ uid }) => uid),
  );
  assert.equal(bench.log.problems.filter((each) => each === "cannot tell what containers have written").length, 1);
});

test("a container has its own limit", () => {
  const limited = (name: string, limit: string) => ({
    name,
    image: "app",
    resources: { limits: { "ephemeral-storage": limit } },
  });
  const pod = podOf({ containers: [limited("small", "1Mi"), limited("large", "10Mi")] });
  const usage = (small: number) => ({
    volumes: new Map(),
    containers: new Map([["small", small]]),
    otherBytes: 0,
  });
  assert.equal(storageExcess(pod, usage(MEBIBYTE)), undefined);
  assert.equal(
    storageExcess(pod, usage(MEBIBYTE + 1)),
    'Container small exceeded its local ephemeral storage limit "1Mi". ',
  );
});

test("a static pod is critical: it is told of and left alone, once", async () => {
  await using bench = new Bench();
  const spec = withEmptyDir("1Mi");
  const resources = { limits: { "ephemeral-storage": "1Gi" } };
  const pod = bench.add({ ...spec, containers: [{ name: "app", image: "app", resources }] }, "file");
  bench.write(`${bench.paths.volume(pod.uid, "empty-dir", "x")}/file`, 2 * MEBIBYTE);
  await bench.round();
  await bench.round();
  await bench.round();
  assert.deepEqual(bench.ended, []);
  assert.deepEqual(bench.log.problems, ["a critical pod takes more disk than it may and is not evicted"]);
});

test("what is in memory has a limit of its own and is not measured", async () => {
  await using bench = new Bench();
  bench.add({ volumes: [{ name: "x", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } }] });
  await bench.clock.settle();
  assert.equal(bench.clock.sleeping, 0);
});

test("while no pod has a limit there is no timer", async () => {
  await using bench = new Bench();
  bench.add({ volumes: [{ name: "x", emptyDir: {} }] });
  await bench.clock.settle();
  assert.equal(await bench.clock.step(), false);
});

test("what is not there takes nothing, and a file with two names counts once", async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("a"));
  writeFileSync(folder.at("a/file"), Buffer.alloc(MEBIBYTE, 1));
  linkSync(folder.at("a/file"), folder.at("a/again"));
  const usage = await diskUsage([folder.at("a"), folder.at("none")], NEVER);
  const { bytes = 0, inodes } = usage.get(folder.at("a")) ?? {};
  assert.ok(bytes >= MEBIBYTE && bytes < 1.5 * MEBIBYTE, String(bytes));
  assert.equal(inodes, 2);
  assert.equal(usage.has(folder.at("none")), false);
  rmSync(folder.at("a"), { recursive: true });
  assert.equal((await diskUsage([folder.at("a")], NEVER)).size, 0);
});

test("no usage makes the verdict fail, and none is one for a pod within its limits", () => {
  const pod = podOf(withEmptyDir("10Mi"));
  fc.assert(
    fc.property(fc.nat(), fc.nat(), (bytes, other) => {
      const usage = { volumes: new Map([["x", bytes]]), containers: new Map([["app", other]]), otherBytes: other };
      assert.equal(storageExcess(pod, usage) !== undefined, bytes > 10 * MEBIBYTE);
    }),
  );
});
