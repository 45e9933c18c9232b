/**
 * The agent is killed again and again while pods with volumes of many kinds come and go: when they are gone, nothing of
 * them is mounted, on disk or in containerd, and what was the node's own is as it was.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { seededRandom } from "../../support/unit/ports/seeded-random.ts";
import { settled } from "../../support/unit/ports/settled.ts";

const skip = containerdMissing() ?? false;
const KILLS = Number(process.env.PICOLET_VOLUME_KILLS ?? 12);
const SEED = Number(process.env.PICOLET_SEED ?? 20_261_120);
const NAMES = ["a", "b", "c"];
/** A kill comes this long after the agent was started at the latest: past its start, a pod's start and a pod's end. */
const LATEST_KILL_MS = 1_200;

/** Mounts something in a volume that hands it on to the node, and then sleeps. */
const SCRIPT =
  "mkdir -p /shared/in && mount -t tmpfs tmpfs /shared/in; touch /data/x; trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

function podWithVolumes(name: string, hostFolder: string, generation: number): unknown {
  const items = [{ path: "deep/name", fieldRef: { fieldPath: "metadata.name" } }];
  const volumes = [
    { name: "data", emptyDir: {} },
    { name: "shared", emptyDir: {} },
    { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
    { name: "down", downwardAPI: { items } },
    { name: "projected", projected: { sources: [{ downwardAPI: { items } }] } },
    { name: "host", hostPath: { path: hostFolder, type: "DirectoryOrCreate" } },
    { name: "image", image: { reference: BUSYBOX_IMAGE, pullPolicy: "IfNotPresent" } },
  ];
  const volumeMounts = [
    { name: "data", mountPath: "/data" },
    { name: "data", mountPath: "/sub", subPath: "sub/path" },
    { name: "shared", mountPath: "/shared", mountPropagation: "Bidirectional" },
    { name: "memory", mountPath: "/memory" },
    { name: "down", mountPath: "/down" },
    { name: "memory", mountPath: "/down/nested" },
    { name: "projected", mountPath: "/projected" },
    { name: "host", mountPath: "/host" },
    { name: "image", mountPath: "/image" },
    { name: "image", mountPath: "/part", subPath: "bin" },
  ];
  const pod = containerPod(name, SCRIPT, { volumes, securityContext: { fsGroup: 2000 } }) as {
    spec: { containers: Record<string, unknown>[] };
  };
  for (const container of pod.spec.containers) {
    container.volumeMounts = volumeMounts;
    container.securityContext = { privileged: true };
    container.env = [{ name: "GENERATION", value: String(generation) }];
  }
  return pod;
}

function operate(node: AgentNode, wanted: Set<string>, hostFolder: string, random: () => number, step: number): void {
  const name = NAMES[Math.floor(random() * NAMES.length)] ?? "a";
  if (wanted.has(name) && random() < 0.5) {
    wanted.delete(name);
    node.removeManifest(`${name}.json`);
    return;
  }
  wanted.add(name);
  node.writeManifest(`${name}.json`, podWithVolumes(name, hostFolder, step));
}

test(`after ${KILLS} kills nothing is left of pods' volumes`, { skip }, async () => {
  const random = seededRandom(SEED);
  const next = (): number => random.next();
  await using containerd = await Containerd.start();
  await using node = nodeWith(containerd);
  const hostFolder = join(node.directory, "host");
  mkdirSync(hostFolder);
  writeFileSync(join(hostFolder, "precious"), "kept");
  const images = (): string[] => containerd.ctr("--namespace", "k8s.io", "snapshots", "ls").split("\n").sort();
  const leases = (): string[] => containerd.ctr("--namespace", "k8s.io", "leases", "ls", "--quiet").split("\n");
  await node.start();
  const wanted = new Set<string>();
  for (let step = 0; step < KILLS; step += 1) {
    operate(node, wanted, hostFolder, next, step);
    await delay(next() * LATEST_KILL_MS);
    await node.kill();
    node.spawn();
  }
  await node.kill();
  await node.start();
  await node.waitForPods(
    `the end state (seed ${SEED})`,
    (pods) => pods.size === wanted.size && [...pods.values()].every(isReady),
  );
  await node.drain();
  const mounts = (): string[] => readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const within = (line: string): boolean => line.includes(`${node.directory}/root/`);
  // containerd or the next agent removes in its own time what was under way when an agent died.
  assert.deepEqual(await settled(() => mounts().filter(within)), []);
  assert.deepEqual(await settled(() => readdirSync(join(node.directory, "root", "pods"))), []);
  assert.deepEqual(await settled(() => readdirSync(join(node.directory, "logs"))), []);
  assert.deepEqual(readdirSync(hostFolder), ["precious"]);
  assert.ok(existsSync(join(hostFolder, "precious")));
  const ofPods = (lines: readonly string[]): string[] => lines.filter((line) => line.includes(node.directory));
  assert.deepEqual(await settled(() => ofPods(leases())), []);
  assert.deepEqual(await settled(() => ofPods(images())), []);
});
