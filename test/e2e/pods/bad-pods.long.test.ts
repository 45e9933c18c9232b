/**
 * Pods and objects that are wrong, too large, or behave badly, given to the API server of a real hub: the user gets
 * Kubernetes' words, and the pods that already run go on. Real agent, real containers.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import {
  CONFIG_MAPS,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  PODS,
  SECRETS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { type AgentNode, restartsOf } from "../../support/agent/agent-process.ts";
import { containerIdOf, containerPod, nodeWith, startedAtOf } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet } from "../../support/hub/test-fleet.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";

const skip = containerdMissing() ?? false;
const NODE = "board";
/** The size of the file system of the pods' folders: enough for all of them at once, and soon full. */
const PODS_DISK_BYTES = 8 * MEBIBYTE;
const SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/** A failing disposal does not prevent the others. */
const owned = new AsyncDisposableStack();
let node: AgentNode;
let admin: FleetAdmin;
/** Runs throughout. */
let good: Pod;

before(async () => {
  if (skip !== false) return;
  const containerd = owned.use(await Containerd.start());
  const fleet = owned.use(await Fleet.start(["--drain-time", "1s"]));
  const hub = { ...(await fleet.joinConfig()), reconnectBackoff: { initial: "100ms", max: "1s" } };
  node = owned.use(nodeWith(containerd, { config: { nodeName: NODE, hub } }));
  const pods = join(node.directory, "root", "pods");
  mkdirSync(pods, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${PODS_DISK_BYTES}`, "tmpfs", pods]);
  await node.start();
  admin = owned.use(await FleetAdmin.of(fleet));
  await admin.create(CONFIG_MAPS, { metadata: { name: "good" }, data: { key: "value" } });
  await run("good", { volumes: [{ name: "config", configMap: { name: "good" } }] });
  good = await admin.untilPod("good", "ready", isReady);
});

after(async () => {
  await owned.disposeAsync();
});

/** A pod of one container; its volumes are mounted under their names. */
async function run(name: string, spec: object = {}, container: object = {}, script = SLEEP): Promise<void> {
  const { volumes = [] } = spec as { readonly volumes?: readonly { readonly name: string }[] };
  const volumeMounts = volumes.map((volume) => ({ name: volume.name, mountPath: `/${volume.name}` }));
  const app = { name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", script], volumeMounts, ...container };
  const whole = { nodeName: NODE, automountServiceAccountToken: false, containers: [app], ...spec };
  await admin.create(PODS, containerPod(name, script, whole) as Readonly<Record<string, unknown>>);
}

/** Ends it, and sees that nothing else was touched. */
async function end(name: string): Promise<void> {
  await admin.delete(PODS, name);
  const pods = await node.waitForPods(`the end of ${name}`, (all) => !all.has(name));
  const now = pods.get("good");
  assert.deepEqual(
    [containerIdOf(now), startedAtOf(now), restartsOf(now), isReady(now)],
    [containerIdOf(good), startedAtOf(good), 0, true],
  );
}

const refused = (doing: Promise<unknown>, words: string): Promise<void> =>
  assert.rejects(doing, (error) => {
    assert.ok(isPicoletError(error, "invalid"), String(error));
    const { message, cause } = error;
    const said = `${message} ${cause instanceof Error ? cause.message : ""}`;
    assert.ok(said.includes(words), said);
    return true;
  });

const volumeFile = async (pod: string, volume: string, file: string): Promise<Buffer> => {
  const { metadata } = await admin.untilPod(pod, "ready", isReady);
  const volumes = join(node.directory, "root", "pods", metadata.uid ?? "", "volumes");
  return readFileSync(join(volumes, "kubernetes.io~configmap", volume, file));
};

const terminated = (pod: Pod): { readonly exitCode: number; readonly message?: string | undefined } | undefined =>
  pod.status?.containerStatuses?.[0]?.state.terminated;

/** Most of the time goes by in waiting. */
describe("side by side", { skip, concurrency: 3 }, () => {
  test("a ConfigMap of 1 MiB arrives; one of a byte more is refused", async () => {
    const text = "x".repeat(MEBIBYTE);
    await admin.create(CONFIG_MAPS, { metadata: { name: "large" }, data: { key: text } });
    await run("large", { volumes: [{ name: "config", configMap: { name: "large" } }] });
    assert.equal((await volumeFile("large", "config", "key")).toString(), text);
    const larger = { metadata: { name: "larger" }, data: { key: `${text}x` } };
    await refused(
      admin.create(CONFIG_MAPS, larger),
      'ConfigMap "larger" is invalid: []: Too long: may not be more than 1048576 bytes',
    );
    await end("large");
  });

  test("binaryData arrives byte for byte", async () => {
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, index) => index % 256));
    await admin.create(CONFIG_MAPS, { metadata: { name: "bytes" }, binaryData: { key: bytes.toString("base64") } });
    await run("bytes", { volumes: [{ name: "config", configMap: { name: "bytes" } }] });
    assert.deepEqual(await volumeFile("bytes", "config", "key"), bytes);
    await end("bytes");
  });

  test("keys and paths that climb out are refused", async () => {
    await refused(
      admin.create(CONFIG_MAPS, { metadata: { name: "climber" }, data: { "../key": "x" } }),
      'data[../key]: Invalid value: "../key": a valid config key must consist of alphanumeric characters',
    );
    const items = [{ key: "key", path: "../../key" }];
    await refused(
      run("climber", { volumes: [{ name: "config", configMap: { name: "good", items } }] }),
      "spec.volumes[0].configMap.items[0].path: Invalid value: \"../../key\": must not contain '..'",
    );
    const volumeMounts = [{ name: "data", mountPath: "/data", subPath: "a/../../b" }];
    await refused(
      run("climber", { volumes: [{ name: "data", emptyDir: {} }] }, { volumeMounts }),
      "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"a/../../b\": must not contain '..'",
    );
  });

  test("a pod whose Secret and claim are not there waits, says so, and goes on when they come", async () => {
    const volumes = [
      { name: "secret", secret: { secretName: "late" } },
      { name: "data", persistentVolumeClaim: { claimName: "late" } },
    ];
    await run("waiting", { volumes });
    const isMissing = (kind: string) => (event: { readonly reason: string; readonly message: string }) =>
      event.reason === "FailedMount" && event.message.includes(`${kind} "late" not found`);
    await admin.untilEvent("waiting", "an event about the claim", isMissing("persistentvolumeclaims"));
    const accessModes = ["ReadWriteOnce"];
    const hostPath = { path: join(node.directory, "late"), type: "DirectoryOrCreate" };
    const disk = { capacity: { storage: "1Mi" }, accessModes, hostPath };
    await admin.create(PERSISTENT_VOLUMES, { metadata: { name: "late" }, spec: disk });
    const claim = { accessModes, resources: { requests: { storage: "1Mi" } }, storageClassName: "" };
    await admin.create(PERSISTENT_VOLUME_CLAIMS, { metadata: { name: "late" }, spec: claim });
    await admin.untilEvent("waiting", "an event about the Secret", isMissing("secret"));
    await admin.create(SECRETS, { metadata: { name: "late" }, stringData: { key: "value" } });
    await admin.untilPod("waiting", "ready", isReady);
    await end("waiting");
  });

  test("variables that refer to each other in a circle stay as they are written", async () => {
    const env = [
      { name: "A", value: "$(B)" },
      { name: "B", value: "$(A)" },
      { name: "C", value: "$(C)-$(B)" },
    ];
    await run("circle", { restartPolicy: "Never" }, { env }, 'echo "$A $B $C" > /dev/termination-log');
    const pod = await admin.untilPod("circle", "its end", (each) => terminated(each) !== undefined);
    assert.equal(terminated(pod)?.message, "$(B) $(B) $(C)-$(B)\n");
    await end("circle");
  });

  test("a pod whose port on the node is taken fails, and the one that has it does not notice", async () => {
    const ports = [{ containerPort: 80, hostPort: await fixedPort() }];
    await run("first", {}, { ports });
    const first = await admin.untilPod("first", "ready", isReady);
    await run("second", {}, { ports });
    const { status } = await admin.untilPod("second", "its failure", (pod) => pod.status?.phase === "Failed");
    const message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert.deepEqual([status?.reason, status?.message], ["NodePorts", `Pod was rejected: ${message}`]);
    await admin.untilEvent("second", "an event", (each) => each.reason === "NodePorts" && each.message === message);
    await end("second");
    const now = await node.waitForPods("the first", (pods) => isReady(pods.get("first")));
    assert.equal(containerIdOf(now.get("first")), containerIdOf(first));
    await end("first");
  });

  test("a server that answers a probe without end is ready by its first line", async () => {
    const answer = "printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'; while :; do echo more; done";
    const readinessProbe = { httpGet: { port: 80 }, periodSeconds: 1 };
    const script = `echo "${answer}" > /answer; exec nc -ll -p 80 -e /bin/sh /answer`;
    await run("talker", {}, { readinessProbe }, script);
    await admin.untilPod("talker", "ready", isReady);
    await end("talker");
  });

  test("one that sends headers without end is unready, and so is a command that prints without end", async () => {
    const header = "printf 'HTTP/1.1 200 OK\\r\\n'; while :; do echo 'More: more'; done";
    const script = `echo "${header}" > /answer; exec nc -ll -p 80 -e /bin/sh /answer`;
    await run("header", {}, { readinessProbe: { httpGet: { port: 80 }, periodSeconds: 1 } }, script);
    const print = { exec: { command: ["/bin/sh", "-c", "while :; do echo more; done"] }, periodSeconds: 1 };
    await run("printer", {}, { readinessProbe: print });
    for (const name of ["header", "printer"]) {
      const event = await admin.untilEvent(name, "an event", ({ reason }) => reason === "Unhealthy");
      assert.match(event.message, /^Readiness probe (failed|errored)/);
      assert.ok(event.message.length < 20_000);
    }
    for (const name of ["header", "printer"]) await end(name);
  });

  test("hooks that never return hold up nobody else, and the pod's end no longer than its grace period", async () => {
    const forever = { exec: { command: ["sleep", "3600"] } };
    await run("starting", {}, { lifecycle: { postStart: forever } });
    await run("stopping", { terminationGracePeriodSeconds: 2 }, { lifecycle: { preStop: forever } });
    await admin.untilPod("stopping", "ready", isReady);
    await run("other");
    await admin.untilPod("other", "ready", isReady);
    const { status } = await admin.untilPod(
      "starting",
      "a status",
      (pod) => pod.status?.containerStatuses !== undefined,
    );
    assert.equal(status?.phase, "Pending");
    for (const name of ["starting", "stopping", "other"]) await end(name);
  });

  test("a container that ignores SIGTERM is killed when its grace period is over, with 137", async () => {
    const deaf = "trap '' TERM; while :; do sleep 1; done";
    await run("deaf", { terminationGracePeriodSeconds: 2 }, {}, deaf);
    await admin.untilPod("deaf", "ready", isReady);
    await admin.delete(PODS, "deaf");
    const pod = await admin.untilPod("deaf", "an exit code", (each) => terminated(each) !== undefined);
    assert.equal(terminated(pod)?.exitCode, 137);
    await node.waitForPods("its end", (pods) => !pods.has("deaf"));
  });

  test("a pull secret that is not JSON is refused by the API server, its text not shown", async () => {
    const type = "kubernetes.io/dockerconfigjson";
    const stringData = { ".dockerconfigjson": "no JSON" };
    await refused(
      admin.create(SECRETS, { metadata: { name: "pull" }, type, stringData }),
      'Secret "pull" is invalid: data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character',
    );
  });
});

test("a disk that is full when a volume is to change leaves the volume as it was, and says so, until there is room", {
  skip,
}, async () => {
  await admin.create(CONFIG_MAPS, { metadata: { name: "growing" }, data: { key: "first", other: "first" } });
  await run("growing", { volumes: [{ name: "config", configMap: { name: "growing" } }] });
  const { uid } = (await admin.untilPod("growing", "ready", isReady)).metadata;
  const filler = join(node.directory, "root", "pods", "filler");
  assert.throws(() => writeFileSync(filler, Buffer.alloc(PODS_DISK_BYTES)), /ENOSPC/);
  const text = "second".repeat(50_000);
  await admin.patch(CONFIG_MAPS, "growing", { data: { key: text, other: "second" } });
  const event = await admin.untilEvent("growing", "an event", ({ reason }) => reason === "FailedMount");
  assert.match(event.message, /^MountVolume\.SetUp failed for volume "config" : .*(ENOSPC|no space left on device)/);
  for (const key of ["key", "other"])
    assert.equal((await volumeFile("growing", "config", key)).toString(), "first", "all of it or nothing");
  rmSync(filler);
  // Any change makes the agent check volumes again; without one it takes a minute.
  await admin.patch(CONFIG_MAPS, "growing", { data: { other: "third" } });
  const volume = join(node.directory, "root", "pods", uid ?? "", "volumes/kubernetes.io~configmap/config");
  const shown = (): string => readFileSync(join(volume, "key"), "utf8");
  await node.waitForFile(volume, () => shown() === text);
  await end("growing");
});
