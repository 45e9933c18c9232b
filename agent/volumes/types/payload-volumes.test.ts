/** On a real file system, with real mounts where the process may mount. */

import assert from "node:assert/strict";
import { mkdirSync, openSync, readdirSync, readFileSync, readlinkSync, readSync, statSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { PodManifest } from "@picolet/protocol/pod/pod.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { MountFolder } from "@picolet/test/support/unit/machine/mount-folder.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { writeAtomically } from "../files/atomic-writer.ts";
import { SystemMounter } from "../files/mounter.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { EmptyDirs } from "./empty-dirs.ts";
import { PayloadVolumes } from "./payload-volumes.ts";

type ManifestVolume = NonNullable<NonNullable<PodManifest["spec"]>["volumes"]>[number];

const NEVER = new AbortController().signal;
const mounter = new SystemMounter();
const isRoot = process.geteuid?.() === 0;
const skip = mounter.allowed && isRoot ? false : "needs root and the right to mount";
const base64 = (text: string): string => Buffer.from(text).toString("base64");

class Bench implements AsyncDisposable {
  readonly folder = new MountFolder();
  readonly clock = new VirtualClock();
  readonly objects = new TestClusterObjects(this.clock);
  readonly log = new RecordedLog();
  readonly events = new RecordedEvents();
  readonly paths = new PodPaths({ rootDir: this.folder.at("lib"), podLogsDir: this.folder.at("logs") });
  #life = new AbortController();
  #volumes = this.#make();
  #running = endOfRun(this.#volumes.run(this.#life.signal));

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
    this.#running = endOfRun(this.#volumes.run(this.#life.signal));
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
    this.folder[Symbol.dispose]();
  }

  #make(): PayloadVolumes {
    const { clock, objects, log, paths } = this;
    const emptyDirs = new EmptyDirs({ paths, mounter, log }, { memoryBytes: 2 ** 29 });
    const parts = { clock, objects, objectsChanged: objects.changed, log, events: this.events, paths, emptyDirs };
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

test("what is optional comes into being under the eyes of a running pod, and goes again", { skip }, async () => {
  await using bench = new Bench();
  const items = [
    { key: "a", path: "a" },
    { key: "b", path: "deep/b" },
  ];
  const pod = await bench.pod({ configMap: { name: "cm", optional: true, items } });
  assert.deepEqual(bench.names(pod), []);
  const becomes = async (names: readonly string[]): Promise<void> => {
    await bench.clock.advance(millis(1_000));
    await waitFor(() => bench.names(pod).join() === names.join());
  };
  bench.objects.set("ConfigMap/default/cm", { data: { a: "1" } });
  await becomes(["a"]);
  bench.objects.set("ConfigMap/default/cm", { data: { a: "1", b: "2" } });
  await becomes(["a", "deep"]);
  bench.objects.delete("ConfigMap/default/cm");
  await becomes([]);
});

test("an object that is deleted while it is mounted leaves its files with the pod, which is told of once", {
  skip,
}, async () => {
  await using bench = new Bench();
  bench.objects.set("Secret/default/s", { data: { a: base64("1") } });
  const pod = await bench.pod({ secret: { secretName: "s" } });
  bench.objects.delete("Secret/default/s");
  await bench.clock.advance(millis(1_000));
  const said = 'Warning FailedMount: MountVolume.SetUp failed for volume "v" : secret "s" not found';
  await waitFor(() => bench.events.lines.length === 1);
  assert.deepEqual(bench.events.lines, [said]);
  assert.equal(bench.read(pod, "a"), "1");
  // Tried again for something else's sake, it says nothing new; but once it has been well, it does.
  bench.objects.set("Secret/default/other", { data: {} });
  await bench.clock.advance(millis(1_000));
  bench.objects.set("Secret/default/s", { data: { a: base64("2") } });
  await bench.clock.advance(millis(1_000));
  await waitFor(() => bench.read(pod, "a") === "2");
  bench.objects.delete("Secret/default/s");
  await bench.clock.advance(millis(1_000));
  await waitFor(() => bench.events.lines.length > 1);
  assert.deepEqual(bench.events.lines, [said, said]);
});

test("a projected volume says at once all that is wrong with its sources", { skip }, async () => {
  await using bench = new Bench();
  const sources = [
    { secret: { name: "none" } },
    { configMap: { name: "none" } },
    { clusterTrustBundle: { name: "ca", path: "ca.pem" } },
    { clusterTrustBundle: { signerName: "example.com/s", labelSelector: {}, path: "s.pem" } },
  ];
  await assert.rejects(bench.pod({ projected: { sources } }), (error) => {
    assert.ok(isPicoletError(error) && error.retryable);
    assert.equal(
      error.message,
      '[secret "none" not found, configmap "none" not found, while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "ca" not found, combination of signerName and labelSelector matched zero ClusterTrustBundles]',
    );
    return true;
  });
  const podCertificate = { signerName: "example.com/s", keyType: "ED25519", keyPath: "key" };
  await assert.rejects(bench.pod({ projected: { sources: [{ podCertificate }] } }), (error) =>
    isPicoletError(error, "invalid"),
  );
});

test("trust anchors of the cluster are a file, each once; optional ones that are not there an empty file", {
  skip,
}, async () => {
  await using bench = new Bench();
  const pem = (body: string): string => `-----BEGIN CERTIFICATE-----\n${body}\n-----END CERTIFICATE-----\n`;
  const bundle = (signerName: string, trustBundle: string, labels = {}): object => ({
    metadata: { labels },
    spec: { signerName, trustBundle },
  });
  bench.objects.set("ClusterTrustBundle//one", { ...bundle("example.com/s", `note\n${pem("BBBB")}${pem("AAAA")}`) });
  bench.objects.set("ClusterTrustBundle//two", { ...bundle("example.com/s", pem("AAAA"), { tier: "x" }) });
  bench.objects.set("ClusterTrustBundle//three", { ...bundle("example.com/other", pem("CCCC"), { tier: "x" }) });
  const bySigner = (labelSelector?: object) => ({
    signerName: "example.com/s",
    ...(labelSelector && { labelSelector }),
  });
  const sources = [
    { clusterTrustBundle: { name: "one", path: "one" } },
    { clusterTrustBundle: { name: "none", path: "none", optional: true } },
    { clusterTrustBundle: { ...bySigner({}), path: "all" } },
    { clusterTrustBundle: { ...bySigner({ matchLabels: { tier: "x" } }), path: "labelled" } },
    { clusterTrustBundle: { ...bySigner(), path: "nothing", optional: true } },
  ];
  const pod = await bench.pod({ projected: { sources } });
  assert.equal(bench.read(pod, "one"), `${pem("AAAA")}${pem("BBBB")}`);
  assert.equal(bench.read(pod, "all"), `${pem("AAAA")}${pem("BBBB")}`);
  assert.equal(bench.read(pod, "labelled"), pem("AAAA"));
  assert.equal(bench.read(pod, "none"), "");
  assert.equal(bench.read(pod, "nothing"), "");
});

test("an fsGroup may read what is mounted for the pod, and after an update too", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("Secret/default/s", { data: { a: base64("1") } });
  const sources = [
    { secret: { name: "s", items: [{ key: "a", path: "deep/a", mode: 0o400 }] } },
    { serviceAccountToken: { path: "token" } },
  ];
  const securityContext = { fsGroup: 2000, runAsUser: 1000 };
  const pod = await bench.pod({ projected: { sources } }, { securityContext });
  const rights = (path: string): readonly number[] => {
    const { uid, gid, mode } = statSync(bench.at(pod, path));
    return [uid, gid, mode & 0o7777];
  };
  const check = (): void => {
    assert.deepEqual(rights(""), [0, 2000, 0o2777]);
    assert.deepEqual(rights("deep"), [0, 2000, 0o2755]);
    assert.deepEqual(rights("deep/a"), [0, 2000, 0o440]);
    assert.deepEqual(rights("token"), [1000, 2000, 0o640]);
  };
  check();
  bench.objects.set("Secret/default/s", { data: { a: base64("2") } });
  await bench.setUp(pod);
  assert.equal(bench.read(pod, "deep/a"), "2");
  check();
});

test("a mebibyte of binary data arrives as it was", { skip }, async () => {
  await using bench = new Bench();
  const data = Buffer.from(Array.from({ length: 2 ** 20 }, (_, index) => (index * 7919) >> 3));
  bench.objects.set("ConfigMap/default/cm", { binaryData: { large: data.toString("base64") } });
  const pod = await bench.pod({ configMap: { name: "cm" } });
  assert.ok(readFileSync(bench.at(pod, "large")).equals(data));
});

test("a Secret that outgrows its pod's memory stays as it was, and the pod is told why", { skip }, async () => {
  await using bench = new Bench();
  bench.objects.set("Secret/default/s", { data: { a: base64("old") } });
  const resources = { limits: { memory: "64Ki" } };
  const container = { name: "app", image: "app", resources, volumeMounts: [{ name: "v", mountPath: "/v" }] };
  const pod = await bench.pod({ secret: { secretName: "s" } }, { containers: [container] });
  bench.objects.set("Secret/default/s", { data: { a: base64("new".repeat(100_000)) } });
  await assert.rejects(bench.setUp(pod), (error) => isPicoletError(error, "resource_exhausted") && error.retryable);
  assert.equal(bench.read(pod, "a"), "old");
  bench.objects.set("Secret/default/s", { data: { a: base64("new") } });
  await bench.setUp(pod);
  assert.equal(bench.read(pod, "a"), "new");
});

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
