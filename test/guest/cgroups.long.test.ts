/**
 * cgroup v2 as a real kernel has it, made by the agent itself and by systemd: values are read back with `cat`. And a
 * board's life: containers and components run, are put right, are back after a power cut, and leave nothing.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { weightOfShares } from "@picolet/agent/resources/cgroup-files.ts";
import { type CgroupDriver, cgroupNames } from "@picolet/protocol/cgroup/cgroup-names.ts";
import type { QosClass } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { Guest, guestMissing } from "../support/guest/guest.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";
import { testComponent } from "../support/wasm/components.ts";
import { transpiledFiles } from "../support/wasm/loaded-component.ts";

const COMPONENT = "/root/script.wasm";
const MANIFEST = "pods.json";
const ROOT = "/sys/fs/cgroup";

type Resources = Readonly<Record<"requests" | "limits", Readonly<Record<string, string>>>>;

const GUARANTEED: Partial<Resources> = { limits: { cpu: "500m", memory: "48Mi" } };
const BURSTABLE: Partial<Resources> = { requests: { cpu: "100m", memory: "20Mi" }, limits: { memory: "60Mi" } };

const podOf = (name: string, container: unknown, spec: object): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: { terminationGracePeriodSeconds: 2, containers: [container], ...spec },
});
/** Without a network of its own, which takes an emulated processor a second. */
const containerPod = (name: string, resources: Partial<Resources>, spec: object = { hostNetwork: true }): unknown =>
  podOf(name, { name: "app", image: BUSYBOX_IMAGE, command: ["load", "hold", "0"], resources }, spec);
const componentPod = (name: string, resources: Partial<Resources>, annotations: object = {}): unknown => ({
  ...podOf(
    name,
    { name: "app", image: `file://${COMPONENT}`, args: ["hold"], resources },
    { runtimeClassName: "wasm" },
  ),
  metadata: { name, annotations },
});
const densePod = (name: string): unknown => componentPod(name, BURSTABLE, { "wasm.picolet.io/mode": "dense" });

/** Two in one process. */
const DENSE = ["d", "e"];
const DENSE_ROOT = `${ROOT}/picolet-dense`;
const WRITTEN_MIB = 24;

/**
 * On a network of its own. Its first container writes, once, and is gone: nothing is left of it but its files, and the
 * pod's own figures.
 */
function writingPod(name: string, resources: Partial<Resources>): unknown {
  const volumeMounts = [{ name: "data", mountPath: "/data" }];
  const write = `test -s /data/zeros || dd if=/dev/zero of=/data/zeros bs=1M count=${WRITTEN_MIB} conv=fsync`;
  const writer = { name: "write", image: BUSYBOX_IMAGE, command: ["sh", "-c", write], resources, volumeMounts };
  return containerPod(name, resources, { volumes: [{ name: "data", emptyDir: {} }], initContainers: [writer] });
}

interface PodCgroups {
  readonly pod: string;
  readonly container: string;
}

/** One guest with an agent, and what its pods' cgroups are. */
class Board {
  readonly guest: Guest;
  readonly agent: GuestAgent;
  readonly driver: CgroupDriver;
  readonly #pods = new Map<string, PodCgroups>();

  constructor(guest: Guest, agent: GuestAgent, driver: CgroupDriver) {
    this.guest = guest;
    this.agent = agent;
    this.driver = driver;
  }

  tier(qos: QosClass): string {
    return `${ROOT}${cgroupNames(this.driver, "/").tier(qos)}`;
  }

  /** All at once: the board has two processors. */
  async run(pods: readonly unknown[]): Promise<void> {
    await this.agent.writeManifest(MANIFEST, { apiVersion: "v1", kind: "List", items: pods });
    await this.runs(pods.length);
  }

  /** Until so many pods do. */
  async runs(count: number): Promise<void> {
    const all = await this.agent.waitForPods(
      "all run",
      (seen) => seen.size === count && [...seen.values()].every(isReady),
    );
    const folders = (await this.guest.output(`find ${this.tier("Guaranteed")} -type d`)).split("\n");
    for (const [name, { status }] of all) {
      const id = (status?.containerStatuses?.[0]?.containerID ?? "").replace(/^.*:\/\//, "");
      const container = folders.find((path) => path.includes(id));
      // One that shares its process has none of its own.
      if (container === undefined) continue;
      const pod = container.slice(0, container.lastIndexOf("/"));
      this.#pods.set(name.replace(/-guest$/, ""), { container, pod });
    }
  }

  cgroupsOf(name: string): PodCgroups {
    return this.#pods.get(name) ?? assert.fail(`no pod ${name} runs`);
  }

  /** The files' contents by name, of one cgroup. */
  async values(folder: string, ...files: readonly string[]): Promise<readonly string[]> {
    const text = await this.guest.output(`cd ${folder} && for f in ${files.join(" ")}; do cat $f; done`);
    return text.trimEnd().split("\n");
  }

  /** Until the agent's log has that, from now on. */
  async said(text: string, begin: () => Promise<void>): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    let log = "";
    const follower = await this.guest.command("journalctl --unit picolet --output cat --lines 0 --follow", (more) => {
      log += more;
      if (log.includes(text)) resolve();
    });
    await begin();
    await Promise.race([promise, follower.ended]);
    follower.kill();
  }
}

async function boardWith(guest: Guest, driver: CgroupDriver): Promise<Board> {
  const agent = await guest.agent({
    config: {
      cgroupDriver: driver,
      kubeReserved: { cpu: "100m", memory: "64Mi", pid: "500" },
      podPidsLimit: 100,
    },
    files: {
      [COMPONENT]: readFileSync(await testComponent("script.c")),
      // To transpile it takes the emulated board a minute.
      ...(await transpiledFiles("script.c", "/var/lib/picolet/wasm/transpiled")),
    },
  });
  return new Board(guest, agent, driver);
}

const skip = guestMissing() ?? false;

test("made by systemd: pods, containers and components have their values, keep them, and leave nothing", {
  skip,
}, async () => {
  await using guest = await Guest.start();
  const board = await boardWith(guest, "systemd");
  await board.run([
    ...[containerPod("g", GUARANTEED), containerPod("b", BURSTABLE), componentPod("c", BURSTABLE)],
    ...DENSE.map(densePod),
  ]);
  await haveTheirValues(board, 2 + DENSE.length);
  await inJails(board);
  const shared = await sharesAProcess(board);
  await reloaded(board);
  await outOfMemory(board, shared);
  await putRight(board);
  await removed(board);
});

test("made by the agent: the same, and all are back after a power cut", { skip }, async () => {
  await using guest = await Guest.start();
  const board = await boardWith(guest, "cgroupfs");
  await board.run([writingPod("g", GUARANTEED), containerPod("b", BURSTABLE), componentPod("c", BURSTABLE)]);
  await haveTheirValues(board, 2);
  await putRight(board);
  await guest.output("systemctl --no-reload enable picolet; sync");
  await guest.cutPower();
  await board.agent.answers();
  await board.runs(3);
  await haveTheirValues(board, 2);
  await writesWereMetered(board);
  await removed(board);
});

async function haveTheirValues(board: Board, burstablePods: number): Promise<void> {
  await guaranteed(board);
  await burstable(board);
  await component(board);
  await allPods(board, burstablePods);
}

async function guaranteed(board: Board): Promise<void> {
  const { pod, container } = board.cgroupsOf("g");
  assert.equal(pod.slice(0, pod.lastIndexOf("/")), board.tier("Guaranteed"));
  const bytes = String(48 * MEBIBYTE);
  const weight = String(weightOfShares(512));
  assert.deepEqual(
    await board.values(pod, "cpu.weight", "cpu.max", "memory.max", "memory.min", "memory.low", "pids.max"),
    [weight, "50000 100000", bytes, bytes, "0", "100"],
  );
  assert.deepEqual(
    await board.values(container, "cpu.max", "memory.max", "memory.min", "memory.high", "memory.oom.group"),
    ["50000 100000", bytes, bytes, "max", "1"],
  );
}

/** Slowed down from request + 0.9 × (limit − request) on, at a whole page. */
const HIGH = String(Math.floor((56 * MEBIBYTE) / 4096) * 4096);

async function burstable(board: Board): Promise<void> {
  const { pod, container } = board.cgroupsOf("b");
  assert.equal(pod.slice(0, pod.lastIndexOf("/")), board.tier("Burstable"));
  const [low, max] = [String(20 * MEBIBYTE), String(60 * MEBIBYTE)];
  assert.deepEqual(await board.values(pod, "memory.max", "memory.min", "memory.low", "memory.high", "pids.max"), [
    ...[max, "0", low, "max", "100"],
  ]);
  assert.deepEqual(
    await board.values(container, "memory.max", "memory.min", "memory.low", "memory.high", "memory.swap.max"),
    [max, "0", low, HIGH, "0"],
  );
}

async function component(board: Board): Promise<void> {
  const { container, pod } = board.cgroupsOf("c");
  const [low, max] = [String(20 * MEBIBYTE), String(60 * MEBIBYTE)];
  const files = ["memory.max", "memory.low", "memory.high", "memory.swap.max", "memory.oom.group"];
  assert.deepEqual(await board.values(container, ...files), [max, low, HIGH, "0", "1"]);
  const procs = board.driver === "systemd" ? "processes/cgroup.procs" : "cgroup.procs";
  const pids = await board.values(container, procs);
  assert.ok(pids.length >= 1 && Number(pids[0]) > 1, String(pids));
  assert.equal((await board.values(pod, "memory.max"))[0], max);
}

/** A runner and the dense process, in mount namespaces of their own, as a user without rights who gains none. */
async function inJails(board: Board): Promise<void> {
  const { guest, agent } = board;
  const wasm = (await agent.status()).runtimes.find(({ name }) => name === "wasm");
  assert.deepEqual([wasm?.ready, wasm?.message], [true, ""]);
  const own = (await guest.output("readlink /proc/1/ns/mnt")).trim();
  for (const folder of [board.cgroupsOf("c").container, DENSE_ROOT]) {
    const facts = await guest.output(
      `for p in $(find ${folder} -name cgroup.procs -exec cat {} +); do case $(cat /proc/$p/comm) in sh|busybox) ;; *) echo $(readlink /proc/$p/ns/mnt; grep -E '^(Uid|CapBnd|NoNewPrivs):' /proc/$p/status) ;; esac; done`,
    );
    assert.match(facts, /^mnt:\S+ Uid: 65532 .*CapBnd: 0+ NoNewPrivs: 1\n$/, folder);
    assert.ok(!facts.startsWith(own), folder);
  }
}

/**
 * Checks the requests and limits of the containers in a shared process, and the process's own usage.
 * @returns its cgroup
 */
async function sharesAProcess(board: Board): Promise<string> {
  const { guest } = board;
  // One that has ended is taken away while the next one starts.
  await guest.output(`until [ $(ls -d ${DENSE_ROOT}/*/ | wc -l) = 1 ]; do sleep 0.2; done`);
  const name = (await guest.output(`ls -d ${DENSE_ROOT}/*/`)).trim();
  const pids = (await guest.output(`cat ${name}cgroup.procs`)).trim().split("\n").join(" ");
  const commands = await guest.output(`for pid in ${pids}; do tr '\\0' ' ' < /proc/$pid/cmdline; echo; done`);
  assert.match(commands, /wasm-dense\.cjs/);
  const kept = String(20 * DENSE.length * MEBIBYTE);
  const files = ["memory.max", "memory.low", "memory.min", "memory.swap.max", "cpu.max", "cpu.weight", "pids.max"];
  assert.deepEqual(await board.values(name, ...files), [
    ...[String((60 * DENSE.length + 24 + DENSE.length) * MEBIBYTE), kept, "0", "0", "max 100000"],
    ...[String(weightOfShares(102 * DENSE.length)), "64"],
  ]);
  assert.deepEqual(
    await board.values(DENSE_ROOT, "memory.low", "memory.min"),
    [kept, "0"],
    "nothing is kept below it else",
  );
  return name;
}

/** The kernel ends the process for what it takes: all of its containers say so, and are back in another one. */
async function outOfMemory(board: Board, shared: string): Promise<void> {
  await board.guest.output(`echo 6M > ${shared}memory.max`);
  const pods = await board.agent.waitForPods("those of the process run again", (all) =>
    DENSE.every((name) => {
      const pod = all.get(`${name}-guest`);
      return isReady(pod) && pod?.status?.containerStatuses?.[0]?.restartCount === 1;
    }),
  );
  for (const name of DENSE) {
    const { terminated } = pods.get(`${name}-guest`)?.status?.containerStatuses?.[0]?.lastState ?? {};
    assert.deepEqual([terminated?.reason, terminated?.exitCode], ["OOMKilled", 137], name);
  }
  assert.notEqual(await sharesAProcess(board), shared);
}

async function allPods(board: Board, burstablePods: number): Promise<void> {
  const total = Number(/^MemTotal:\s+(\d+)/m.exec(await board.guest.output("cat /proc/meminfo"))?.[1]) * 1024;
  const limits = await board.guest.output("cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max");
  const pids = Math.min(...limits.trim().split("\n").map(Number)) - 500;
  const shares = Math.floor((1900 * 1024) / 1000);
  assert.deepEqual(
    await board.values(board.tier("Guaranteed"), "memory.max", "memory.min", "memory.low", "cpu.weight", "pids.max"),
    [
      ...[String(total - 64 * MEBIBYTE), String(48 * MEBIBYTE), String((48 + 20 * burstablePods) * MEBIBYTE)],
      ...[String(weightOfShares(shares)), String(pids)],
    ],
  );
  assert.deepEqual(await board.values(board.tier("Burstable"), "cpu.weight", "memory.low"), [
    String(weightOfShares(102 * burstablePods)),
    String(20 * burstablePods * MEBIBYTE),
  ]);
  assert.deepEqual(await board.values(board.tier("BestEffort"), "cpu.weight", "memory.low"), ["1", "0"]);
}

/**
 * systemd writes the values of its units again, and removes controllers from slices where no unit needs them. It clears
 * `memory.oom.group` of runc's scopes, because runc does not report it to systemd; no cgroup of ours is affected.
 */
async function reloaded(board: Board): Promise<void> {
  const list = `find ${board.tier("Guaranteed")} ${DENSE_ROOT} \\( -name 'memory.*' -o -name 'cpu.*' -o -name 'pids.max' -o -name cgroup.subtree_control \\)`;
  const kept = "memory.max|memory.min|memory.low|memory.high|cpu.weight|cpu.max|pids.max|subtree_control";
  const look = (): Promise<string> =>
    board.guest.output(`${list} | grep -E '/(cgroup.)?(${kept})$' | sort | xargs grep -H .`);
  const before = await look();
  await board.guest.output("systemctl daemon-reload && systemctl set-property --runtime system.slice CPUWeight=50");
  assert.equal(await look(), before);
  const slice = board.cgroupsOf("b").pod;
  const unit = slice.slice(slice.lastIndexOf("/") + 1);
  assert.equal((await board.guest.output(`systemctl show -P MemoryMax ${unit}`)).trim(), String(60 * MEBIBYTE));
}

/** By the pod's cgroup, when the agent that ended took its last look. */
async function writesWereMetered(board: Board): Promise<void> {
  const { today } = (await board.agent.status()).flash;
  const written = today.pods.find(({ name }) => name === "default/g-guest")?.bytes ?? 0;
  assert.ok(written >= WRITTEN_MIB * MEBIBYTE && written < (WRITTEN_MIB + 8) * MEBIBYTE, JSON.stringify(today));
}

async function putRight(board: Board): Promise<void> {
  const { pod } = board.cgroupsOf("g");
  await board.agent.stop();
  await board.guest.output(
    `echo max > ${pod}/memory.max; echo 7 > ${pod}/pids.max; echo max > ${board.tier("Guaranteed")}/memory.max`,
  );
  await board.said("another process changed a pod's cgroup: it is restored", () => board.agent.start());
  assert.deepEqual(await board.values(pod, "memory.max", "pids.max"), [String(48 * MEBIBYTE), "100"]);
  assert.notEqual((await board.values(board.tier("Guaranteed"), "memory.max"))[0], "max");
}

async function removed(board: Board): Promise<void> {
  await board.agent.removeManifest(MANIFEST);
  await board.agent.waitForPods("an empty node", (pods) => pods.size === 0);
  const left = await board.guest.output(
    `find ${board.tier("Guaranteed")} -mindepth 1 -type d | grep pod. | grep -v -E '(burstable|besteffort)(.slice)?$' || true`,
  );
  assert.equal(left, "");
  if (board.driver !== "systemd") return;
  const units = await board.guest.output("systemctl list-units --all --plain --no-legend 'kubepods*pod*'");
  assert.equal(units, "");
}
