/** Boards whose disks fill up, on real file systems and containers, from kubectl's end. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { NODES, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerIdOf, containerPod, nodeWith, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin, type NodeCondition } from "../../support/hub/fleet-admin.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
/** An image of so much takes it twice: as it came, and unpacked. */
const IMAGE_MIB = 40;
const UNUSED = "localhost/unused:1";

let folder: TempFolder;
let fleet: Fleet;
let admin: FleetAdmin;
let archive: string;

before(async () => {
  if (skip !== false) return;
  folder = new TempFolder();
  fleet = await Fleet.start();
  admin = await FleetAdmin.of(fleet);
  writeFileSync(folder.at("content"), randomBytes(IMAGE_MIB * MEBIBYTE));
  archive = buildImageArchive({ name: UNUSED, files: { content: folder.at("content") } }, folder.at("build"));
});

after(async () => {
  if (skip !== false) return;
  await admin?.[Symbol.asyncDispose]();
  await fleet?.[Symbol.asyncDispose]();
  folder?.[Symbol.dispose]();
});

const mountMemory = (target: string, options: string): void => {
  execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", target]);
};

/** `run` gets a node that has joined. Disposal is from the inside out: pods, agent, runtime. */
interface Board extends AsyncDisposable {
  readonly name: string;
  readonly containerd: Containerd;
  readonly node: AgentNode;
}

interface BoardOptions {
  readonly name: string;
  readonly evictionHard: Readonly<Record<string, string>>;
  /** Options of the mounts; without `nodefs` everything is on one file system. */
  readonly imagefs: string;
  readonly nodefs?: string;
}

async function startBoard({ name, evictionHard, imagefs, nodefs }: BoardOptions): Promise<Board> {
  await using all = new AsyncDisposableStack();
  let images = "";
  const containerd = all.use(
    await Containerd.start({
      mountRoot: (root) => {
        images = root;
        mountMemory(root, imagefs);
      },
    }),
  );
  const config = {
    nodeName: name,
    hub: await fleet.joinConfig(),
    evictionHard,
    evictionPressureTransitionPeriod: "1s",
  };
  const node = all.use(nodeWith(containerd, { config: { ...config, containerLogMaxSize: "100Mi" } }));
  const [root, logs] = [join(node.directory, "root"), join(node.directory, "logs")];
  for (const each of [root, logs]) mkdirSync(each);
  if (nodefs === undefined) {
    mkdirSync(join(images, "agent"));
    execFileSync("mount", ["--bind", join(images, "agent"), root]);
  } else mountMemory(root, nodefs);
  mkdirSync(join(root, "logs"));
  execFileSync("mount", ["--bind", join(root, "logs"), logs]);
  await node.start();
  await admin.untilCondition(name, "Ready", "True");
  all.defer(() => admin.clear(({ spec }) => spec.nodeName === name));
  const held = all.move();
  return { name, containerd, node, [Symbol.asyncDispose]: () => held.disposeAsync() };
}

const pressure = ({ name }: Board, status: "True" | "False"): Promise<NodeCondition> =>
  admin.untilCondition(name, "DiskPressure", status);

/** Waited for from before `doing` on: what is short for a second may be over when that is done. */
const pressed = async <T>(board: Board, doing: Promise<T>): Promise<T> =>
  (await Promise.all([doing, pressure(board, "True")]))[0];

const tainted = ({ name }: Board): Promise<unknown> =>
  admin.until(NODES, `the taint of ${name}`, ({ metadata, spec }) => {
    const { taints = [] } = spec as { readonly taints?: readonly { readonly key: string }[] };
    return metadata.name === name && taints.some(({ key }) => key === "node.kubernetes.io/disk-pressure");
  });

/** A container that does `script` first and sleeps then, with an emptyDir at /data. */
async function start({ name: nodeName }: Board, name: string, script: string, isOver = false): Promise<void> {
  const app = {
    name: "app",
    image: BUSYBOX_IMAGE,
    command: ["/bin/sh", "-c", isOver ? script : `${script}; ${SLEEP_SCRIPT}`],
    volumeMounts: [{ name: "data", mountPath: "/data" }],
  };
  const volumes = [{ name: "data", emptyDir: {} }];
  const restartPolicy = isOver ? "Never" : "Always";
  const spec = { nodeName, restartPolicy, volumes, containers: [app] };
  await admin.create(PODS, containerPod(name, "", spec) as Readonly<Record<string, unknown>>);
}

/** Until it has begun, or has ended. */
async function run(board: Board, name: string, script: string, isOver = false): Promise<Pod> {
  await start(board, name, script, isOver);
  if (!isOver) return await admin.untilPod(name, "ready", isReady);
  return await admin.untilPod(name, "its end", ({ status }) => status?.phase === "Succeeded");
}

const write = (path: string, mib: number): string => `dd if=/dev/zero of=${path} bs=1048576 count=${mib} 2>/dev/null`;

async function evicted(name: string): Promise<string> {
  const { status } = await admin.untilPod(name, "its end", (pod) => pod.status?.phase === "Failed");
  assert.equal(status?.reason, "Evicted");
  assert.ok(
    status?.containerStatuses?.every(({ state }) => state?.running === undefined),
    "nothing of it runs",
  );
  const disruption = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
  assert.deepEqual([disruption?.status, disruption?.reason], ["True", "TerminationByKubelet"]);
  return status?.message ?? "";
}

async function runsOn(...before: readonly Pod[]): Promise<void> {
  for (const pod of before) {
    const now = await admin.pod(pod.metadata.name ?? "");
    assert.equal(now.status?.phase, "Running", pod.metadata.name);
    assert.equal(containerIdOf(now), containerIdOf(pod), pod.metadata.name);
  }
}

/** They run side by side: a disk that fills up is sampled every ten seconds. */
describe("boards whose disks fill up", { skip, concurrency: true }, () => {
  test("on one disk dead containers and unused images go first, then the pod that takes most of it", async (t) => {
    const hard = { "nodefs.available": "200Mi" };
    await using board = await startBoard({ name: "node-a", evictionHard: hard, imagefs: "size=360m" });
    const { containerd } = board;
    const quiet = await run(board, "quiet", "true");

    await t.test("what the node gives back suffices", async () => {
      containerd.importArchive(archive);
      await run(board, "dead", write("/big", 30), true);
      const files = await pressed(board, run(board, "files", write("/data/file", 60)));
      await pressure(board, "False");
      assert.ok(!containerd.ctr("images", "list", "--quiet").includes(UNUSED), "the image has gone");
      await runsOn(quiet, files);
      await admin.toldOnce("node-a", "EvictionThresholdMet");
      await admin.toldOnce("node-a", "NodeHasDiskPressure");
      assert.equal(await admin.eventsOf("node-a", "FreeDiskSpaceFailed"), 0);
    });

    await t.test("the largest goes, with the figures", async () => {
      const files = await admin.pod("files");
      const loud = await run(board, "loud", "seq 1 50000");
      await Promise.all([pressed(board, start(board, "more", write("/data/file", 130))), tainted(board)]);
      assert.match(
        await evicted("more"),
        /^The node was low on resource: ephemeral-storage\. Threshold quantity: 200Mi, available: \d+\S*\. /,
      );
      await pressure(board, "False");
      await runsOn(quiet, files, loud);
      await admin.toldOnce("more", "Evicted");
    });
  });

  test("where images are on a disk of their own, each disk is relieved by what lies on it", async (t) => {
    await using board = await startBoard({
      name: "node-b",
      evictionHard: { "imagefs.available": "180Mi" },
      imagefs: "size=300m",
      nodefs: "size=64m",
    });
    const { containerd } = board;
    const quiet = await run(board, "still", "true");

    await t.test("an unused image goes, and no pod", async () => {
      containerd.importArchive(archive);
      // Less than what it takes, without the image, to cross the threshold: a pod that does that has always written
      // more.
      const small = await pressed(board, run(board, "small", write("/big", 50)));
      await pressure(board, "False");
      assert.ok(!containerd.ctr("images", "list", "--quiet").includes(UNUSED), "the image has gone");
      await runsOn(quiet, small);
    });

    await t.test("a pod whose container writes most to its own root goes next", async () => {
      const small = await admin.pod("small");
      await pressed(board, start(board, "writer", write("/big", 100)));
      assert.match(
        await evicted("writer"),
        /^The node was low on resource: ephemeral-storage\. Threshold quantity: 180Mi, available: \d+\S*\. Container app was using \d+\S*, request is 0, has larger consumption of ephemeral-storage\. $/,
      );
      await pressure(board, "False");
      await runsOn(quiet, small);
    });
  });

  test("where files are many and small, a pod with too many of them goes for want of inodes", async () => {
    await using board = await startBoard({
      name: "node-c",
      evictionHard: { "nodefs.inodesFree": "30%" },
      imagefs: "size=100m",
      nodefs: "size=64m,nr_inodes=4000",
    });
    const few = await run(board, "few", ": > /data/1");
    await pressed(board, start(board, "files-without-end", "for i in $(seq 3300); do : > /data/$i; done"));
    assert.match(
      await evicted("files-without-end"),
      /^The node was low on resource: inodes\. Threshold quantity: 1200, available: \d+\. $/,
    );
    await pressure(board, "False");
    await runsOn(few);
  });
});
