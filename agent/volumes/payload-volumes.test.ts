/** On a real file system, with real mounts where the process may mount. */
import assert from "node:assert/strict";
import { mkdirSync, openSync, readdirSync, readFileSync, readlinkSync, readSync, statSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { PodManifest } from "../../protocol/pod.ts";
import { millis } from "../../protocol/ports.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { TestClusterObjects } from "../../test/support/cluster-objects.ts";
import { desired, podOf } from "../../test/support/pods.ts";
import { RecordedLog } from "../../test/support/recorders.ts";
import { TempFolder } from "../../test/support/temp-folder.ts";
import { VirtualClock } from "../../test/support/virtual-clock.ts";
import { writeAtomically } from "./atomic-writer.ts";
import { EmptyDirs } from "./empty-dirs.ts";
import { SystemMounter } from "./mounter.ts";
import { PayloadVolumes } from "./payload-volumes.ts";
import { PodPaths } from "./pod-paths.ts";

type ManifestVolume = NonNullable<NonNullable<PodManifest["spec"]>["volumes"]>[number];

const NEVER = new AbortController().signal;
const mounter = new SystemMounter();
const isRoot = process.geteuid?.() === 0;
const skip = mounter.allowed && isRoot ? false : "needs root and the right to mount";
const base64 = (text: string): string => Buffer.from(text).toString("base64");

class Bench implements AsyncDisposable {
  readonly folder = new TempFolder();
  readonly clock = new VirtualClock();
  readonly objects = new TestClusterObjects(this.clock);
  readonly log = new RecordedLog();
  readonly paths = new PodPaths({ rootDir: this.folder.at("lib"), podLogsDir: this.folder.at("logs") });
  #life = new AbortController();
  #volumes = this.#make();
  #running = this.#volumes.run(this.#life.signal);

  /** A pod with one volume `v`, set up. */
  async pod(volume: Omit<ManifestVolume, "name">, spec: object = {}, metadata = {}): Promise<DesiredPod> {
    const container = { name: "app", image: "app", volumeMounts: [{ name: "v", mountPath: "/v" }] };
    const pod = desired(
      podOf(
        { containers: [container], volumes: [{ name: "v", ...volume }], serviceAccountName: "runner", ...spec },
        metadata,
      ),
      "uid-1",
    );
    await this.setUp(pod);
    return pod;
  }

  async setUp(pod: DesiredPod): Promise<void> {
    const [volume] = pod.pod.spec.volumes ?? [];
    assert.ok(volume);
    mkdirSync(this.paths.volumes(pod.uid), { recursive: true });
    await this.#volumes.setUp(pod, volume, NEVER);
  }

  /** Another agent, with nothing in memory. */
  async restart(): Promise<void> {
    this.#life.abort();
    await this.#running;
    this.#life = new AbortController();
    this.#volumes = this.#make();
    this.#running = this.#volumes.run(this.#life.signal);
  }

  at(pod: DesiredPod, path = ""): string {
    const [volume] = pod.pod.spec.volumes ?? [];
    assert.ok(volume);
    return `${this.#volumes.locate(pod, volume)}/${path}`;
  }

  read(pod: DesiredPod, path: string): string {
    return readFileSync(this.at(pod, path), "utf8");
  }

  names(pod: DesiredPod): string[] {
    return readdirSync(this.at(pod))
      .filter((name) => !name.startsWith(".."))
      .sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
    await mounter.unmount(mounter.mountPointsWithin(this.folder.path), NEVER);
    this.folder[Symbol.dispose]();
  }

  #make(): PayloadVolumes {
    const { clock, objects, log, paths } = this;
    const emptyDirs = new EmptyDirs({ mounter, log }, { memoryBytes: 2 ** 29 });
    const parts = { clock, objects, objectsChanged: objects.changed, log, paths, emptyDirs };
    return new PayloadVolumes(parts, { allocatable: { cpu: "4", memory: "512Mi" } });
  }
}

test("a ConfigMap is files with its modes, its items where the pod wants them", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("ConfigMap/default/cm", { data: { a: "1", b: "2" }, binaryData: { c: base64("3") } });
  const whole = await bench.pod({ configMap: { name: "cm", defaultMode: 0o640 } });
  assert.deepEqual(bench.names(whole), ["a", "b", "c"]);
  assert.equal(bench.read(whole, "c"), "3");
  assert.equal(statSync(bench.at(whole, "a")).mode & 0o777, 0o640);
  assert.equal(readlinkSync(bench.at(whole, "a")), "..data/a");

  const items = [{ key: "a", path: "deep/er/file", mode: 0o400 }];
  const some = await bench.pod({ configMap: { name: "cm", items } });
  assert.deepEqual(bench.names(some), ["deep"]);
  assert.equal(bench.read(some, "deep/er/file"), "1");
  assert.equal(statSync(bench.at(some, "deep/er/file")).mode & 0o777, 0o400);
});

test("what is not there is said as the kubelet says it; what is optional is left out", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("ConfigMap/default/cm", { data: {} });
  const cases: readonly (readonly [Omit<ManifestVolume, "name">, string])[] = [
    [{ configMap: { name: "none" } }, 'configmap "none" not found'],
    [{ secret: { secretName: "none" } }, 'secret "none" not found'],
    [
      { configMap: { name: "cm", items: [{ key: "k", path: "p" }] } },
      "configmap references non-existent config key: k",
    ],
    [{ projected: { sources: [{ secret: { name: "none" } }] } }, 'secret "none" not found'],
  ];
  for (const [volume, message] of cases) {
    await assert.rejects(bench.pod(volume), (error) => isPicoletError(error, "not_found") && error.message === message);
  }
  const optional = await bench.pod({ configMap: { name: "none", optional: true } });
  assert.deepEqual(bench.names(optional), []);
});

test("a change of the object is seen by who reads the volume, all of it at once", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("ConfigMap/default/cm", { data: { a: "old", gone: "x" } });
  const pod = await bench.pod({ configMap: { name: "cm" } });
  const open = openSync(bench.at(pod, "a"), "r");
  const before = readlinkSync(bench.at(pod, "..data"));
  bench.objects.set("ConfigMap/default/cm", { data: { a: "new", come: "y" } });
  await bench.clock.advance(millis(1_000));
  await bench.clock.settle();
  await waitFor(() => readlinkSync(bench.at(pod, "..data")) !== before && bench.names(pod).includes("come"));
  await bench.setUp(pod);
  assert.deepEqual(bench.names(pod), ["a", "come"]);
  assert.equal(bench.read(pod, "a"), "new");
  const buffer = Buffer.alloc(3);
  readSync(open, buffer, 0, 3, 0);
  assert.equal(buffer.toString(), "old", "a file that was open stays what it was");
  assert.deepEqual(
    readdirSync(bench.at(pod)).filter((name) => name.startsWith("..")).length,
    2,
    "the old folder is gone",
  );
});

/** The refresh touches the disk, which no virtual clock waits for. */
async function waitFor(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!condition()) {
    assert.ok(performance.now() < deadline, "it never came");
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("nothing is written when nothing has changed", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("ConfigMap/default/cm", { data: { a: "1" } });
  const pod = await bench.pod({ configMap: { name: "cm" } });
  const before = readlinkSync(bench.at(pod, "..data"));
  await bench.setUp(pod);
  assert.equal(readlinkSync(bench.at(pod, "..data")), before);
});

test("Secrets are in memory, never on the disk", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("Secret/default/s", { data: { key: base64("word") } });
  const pod = await bench.pod({ secret: { secretName: "s" } });
  assert.equal(bench.read(pod, "key"), "word");
  assert.equal(mounter.mountPointsWithin(bench.folder.path).length, 1);
  await bench.setUp(pod);
  assert.equal(mounter.mountPointsWithin(bench.folder.path).length, 1, "mounted once");
});

test("labels, annotations, names and resources as files, as Kubernetes writes them", { skip }, async () => {
  await using bench = new Bench();
  const items = [
    { path: "labels", fieldRef: { fieldPath: "metadata.labels" } },
    { path: "name", fieldRef: { fieldPath: "metadata.name" } },
    { path: "notes", fieldRef: { fieldPath: "metadata.annotations" } },
    { path: "one", fieldRef: { fieldPath: "metadata.labels['b']" } },
    { path: "cpu", resourceFieldRef: { containerName: "app", resource: "limits.cpu", divisor: "1m" } },
  ];
  const metadata = { labels: { b: "2", a: "x" }, annotations: { note: 'say "hi"\n\u0001ü' } };
  const pod = await bench.pod({ downwardAPI: { items } }, {}, metadata);
  assert.equal(bench.read(pod, "labels"), 'a="x"\nb="2"');
  assert.equal(bench.read(pod, "notes"), 'note="say \\"hi\\"\\n\\x01ü"');
  assert.equal(bench.read(pod, "name"), pod.pod.metadata.name);
  assert.equal(bench.read(pod, "one"), "2");
  assert.equal(bench.read(pod, "cpu"), "4000");
});

const TOKEN_VOLUME = {
  projected: {
    sources: [
      { serviceAccountToken: { path: "token", expirationSeconds: 3600, audience: "vault" } },
      { configMap: { name: "kube-root-ca.crt", items: [{ key: "ca.crt", path: "ca.crt" }] } },
      { downwardAPI: { items: [{ path: "namespace", fieldRef: { fieldPath: "metadata.namespace" } }] } },
    ],
  },
};

test("a token is asked for once, written for its user alone, and renewed when four fifths of its life are over", {
  skip,
}, async () => {
  await using bench = new Bench();
  bench.objects.set("ConfigMap/default/kube-root-ca.crt", { data: { "ca.crt": "CA" } });
  const pod = await bench.pod(TOKEN_VOLUME, { securityContext: { runAsUser: 1234 } });
  assert.deepEqual(bench.names(pod), ["ca.crt", "namespace", "token"]);
  assert.equal(bench.read(pod, "token"), "token-1");
  const stats = statSync(bench.at(pod, "token"));
  assert.deepEqual([stats.mode & 0o777, stats.uid], [0o600, 1234]);
  assert.deepEqual(bench.objects.requests, [
    {
      namespace: "default",
      serviceAccount: "runner",
      audiences: ["vault"],
      expirationSeconds: 3600,
      podName: pod.pod.metadata.name,
      podUid: pod.pod.metadata.uid ?? "uid-1",
    },
  ]);
  await bench.setUp(pod);
  await bench.clock.advance(millis(2_879_000));
  assert.equal(bench.objects.requests.length, 1);
  await bench.clock.advance(millis(2_000));
  await waitFor(() => bench.read(pod, "token") === "token-2");
});

test("a board that starts with no hub in reach has the tokens it had", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("ConfigMap/default/kube-root-ca.crt", { data: { "ca.crt": "CA" } });
  const pod = await bench.pod(TOKEN_VOLUME);
  // A reboot: what was in memory is gone.
  await mounter.unmount(mounter.mountPointsWithin(bench.folder.path), NEVER);
  await bench.restart();
  bench.objects.goOffline();
  await bench.clock.advance(millis(7_200_000));
  await bench.setUp(pod);
  assert.equal(bench.read(pod, "token"), "token-1");
  bench.objects.refusal = new PicoletError("permission_denied", "the account is gone");
  await bench.restart();
  await assert.rejects(bench.setUp(pod), (error) => isPicoletError(error, "permission_denied"));
});

test("without a token and without a hub the pod waits", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.goOffline();
  await assert.rejects(bench.pod(TOKEN_VOLUME), (error) => isPicoletError(error, "unavailable") && error.retryable);
});

test("no path leads out of a volume", { skip }, async () => {
  using folder = new TempFolder();
  const file = { content: Buffer.from("x"), mode: 0o644, uid: -1, gid: -1 };
  for (const path of ["../out", "/abs", "a/../../b", "..data", "..2026", "", "./..x", "a/\0", "."]) {
    await assert.rejects(
      writeAtomically(folder.path, new Map([[path, file]])),
      (error) => isPicoletError(error, "invalid"),
      path,
    );
  }
  assert.deepEqual(readdirSync(folder.path), []);
});
