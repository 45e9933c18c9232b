/** Boards whose disks fill up, on real file systems and containers, from kubectl's end. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Pod } from "../../protocol/pod.ts";
import { buildImageArchive } from "../../scripts/image-archive.ts";
import type { AgentNode } from "../support/agent-process.ts";
import { Containerd, containerdMissing } from "../support/containerd.ts";
import { Fleet, kubectlMissing } from "../support/fleet.ts";
import { BUSYBOX_IMAGE } from "../support/image-archive.ts";
import { containerIdOf, containerPod, nodeWith } from "../support/node-fixtures.ts";
import { TempFolder } from "../support/temp-folder.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const MIB = 1024 * 1024;
/** An image of so much takes it twice: as it came, and unpacked. */
const IMAGE_MIB = 40;
const UNUSED = "localhost/unused:1";
const SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

let folder: TempFolder;
let fleet: Fleet;
let archive: string;

before(async () => {
  if (skip !== false) return;
  folder = new TempFolder();
  fleet = await Fleet.start();
  writeFileSync(folder.at("content"), randomBytes(IMAGE_MIB * MIB));
  archive = buildImageArchive({ name: UNUSED, files: { content: folder.at("content") } }, folder.at("build"));
});

after(async () => {
  if (skip !== false) return;
  await fleet?.[Symbol.asyncDispose]();
  folder?.[Symbol.dispose]();
});

const mountMemory = (target: string, options: string): void => {
  execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", target]);
};

/** What `run` is given is a node that has joined. The innermost goes first: pods, agent, runtime. */
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
    evictionPressureTransitionPeriod: "3s",
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
  await fleet.untilNodeReady(name);
  all.defer(async () => {
    await fleet.tryKubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
  });
  const held = all.move();
  return { name, containerd, node, [Symbol.asyncDispose]: () => held.disposeAsync() };
}

const pressure = (board: Board, status: "True" | "False"): Promise<string> => {
  const output = `jsonpath=<{.status.conditions[?(@.type=="DiskPressure")].status}>{"\\n"}`;
  return fleet.seen(["get", "node", board.name, "--watch", "-o", output], (text) => text.endsWith(`<${status}>\n`));
};

const taints = async ({ name }: Board): Promise<string> =>
  await fleet.kubectl(["get", "node", name, "-o", "jsonpath={.spec.taints[*].key}"]);

const events = async (reasonAndName: string): Promise<number> => {
  const output = "jsonpath={range .items[*]}{.reason}:{.involvedObject.name}\n{end}";
  const all = await fleet.kubectl(["get", "events", "-A", "-o", output]);
  return all.split("\n").filter((line) => line === reasonAndName).length;
};

/** A container that does `script` first and sleeps then, with an emptyDir at /data. */
async function start({ name: nodeName }: Board, name: string, script: string, isOver = false): Promise<void> {
  const app = {
    name: "app",
    image: BUSYBOX_IMAGE,
    command: ["/bin/sh", "-c", isOver ? script : `${script}; ${SLEEP}`],
    volumeMounts: [{ name: "data", mountPath: "/data" }],
  };
  const volumes = [{ name: "data", emptyDir: {} }];
  const restartPolicy = isOver ? "Never" : "Always";
  await fleet.apply(containerPod(name, SLEEP, { nodeName, restartPolicy, volumes, containers: [app] }));
}

/** Until it has begun, or has ended. */
async function run(board: Board, name: string, script: string, isOver = false): Promise<Pod> {
  await start(board, name, script, isOver);
  const awaited = isOver ? "jsonpath={.status.phase}=Succeeded" : "condition=Ready";
  await fleet.kubectl(["wait", `--for=${awaited}`, `pod/${name}`, "--timeout=60s"]);
  return await fleet.get<Pod>("pod", name);
}

const write = (path: string, mib: number): string => `dd if=/dev/zero of=${path} bs=1048576 count=${mib} 2>/dev/null`;

async function evicted(name: string): Promise<string> {
  await fleet.kubectl(["wait", "--for=jsonpath={.status.phase}=Failed", `pod/${name}`, "--timeout=60s"]);
  const { status } = await fleet.get<Pod>("pod", name);
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
    const now = await fleet.get<Pod>("pod", pod.metadata?.name ?? "");
    assert.equal(now.status?.phase, "Running", pod.metadata?.name);
    assert.equal(containerIdOf(now), containerIdOf(pod), pod.metadata?.name);
  }
}

test("on one disk dead containers and unused images go first, then the pod that takes most of it", {
  skip,
}, async (t) => {
  const hard = { "nodefs.available": "200Mi" };
  await using board = await startBoard({ name: "node-a", evictionHard: hard, imagefs: "size=360m" });
  const { containerd } = board;
  const quiet = await run(board, "quiet", "true");

  await t.test("what the node gives back suffices", async () => {
    containerd.importArchive(archive);
    await run(board, "dead", write("/big", 30), true);
    const files = await run(board, "files", write("/data/file", 60));
    await pressure(board, "True");
    await pressure(board, "False");
    assert.ok(!containerd.ctr("images", "list", "--quiet").includes(UNUSED), "the image has gone");
    await runsOn(quiet, files);
    assert.equal(await events("EvictionThresholdMet:node-a"), 1);
    assert.equal(await events("NodeHasDiskPressure:node-a"), 1);
    assert.equal(await events("FreeDiskSpaceFailed:node-a"), 0);
  });

  await t.test("the largest goes, with the figures", async () => {
    const files = await fleet.get<Pod>("pod", "files");
    const loud = await run(board, "loud", "seq 1 50000");
    await start(board, "more", write("/data/file", 130));
    await pressure(board, "True");
    assert.match(await taints(board), /node\.kubernetes\.io\/disk-pressure/);
    assert.match(
      await evicted("more"),
      /^The node was low on resource: ephemeral-storage\. Threshold quantity: 200Mi, available: \d+\S*\. /,
    );
    await pressure(board, "False");
    await runsOn(quiet, files, loud);
    assert.equal(await events("Evicted:more"), 1);
  });
});

test("where images are on a disk of their own, each disk is relieved by what lies on it", { skip }, async (t) => {
  await using board = await startBoard({
    name: "node-b",
    evictionHard: { "imagefs.available": "150Mi", "nodefs.inodesFree": "30%" },
    imagefs: "size=300m",
    nodefs: "size=64m,nr_inodes=4000",
  });
  const { containerd } = board;
  const quiet = await run(board, "still", "true");

  await t.test("an unused image goes, and no pod", async () => {
    containerd.importArchive(archive);
    const small = await run(board, "small", write("/big", 80));
    await pressure(board, "True");
    await pressure(board, "False");
    assert.ok(!containerd.ctr("images", "list", "--quiet").includes(UNUSED), "the image has gone");
    await runsOn(quiet, small);
  });

  await t.test("a pod whose container writes most to its own root goes next", async () => {
    const small = await fleet.get<Pod>("pod", "small");
    await start(board, "writer", write("/big", 100));
    await pressure(board, "True");
    assert.match(
      await evicted("writer"),
      /^The node was low on resource: ephemeral-storage\. Threshold quantity: 150Mi, available: \d+\S*\. Container app was using \d+\S*, request is 0, has larger consumption of ephemeral-storage\. $/,
    );
    await pressure(board, "False");
    await runsOn(quiet, small);
  });

  await t.test("a pod with too many files goes for want of inodes", async () => {
    const small = await fleet.get<Pod>("pod", "small");
    await start(board, "files-without-end", "for i in $(seq 3300); do : > /data/$i; done");
    await pressure(board, "True");
    assert.match(
      await evicted("files-without-end"),
      /^The node was low on resource: inodes\. Threshold quantity: 1200, available: \d+\. $/,
    );
    await pressure(board, "False");
    await runsOn(quiet, small);
  });
});
