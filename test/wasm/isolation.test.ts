/** A component's process and the node: its rights, even if component or runner were hijacked. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import type { ContainerLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import { UNPRIVILEGED_ID } from "@picolet/runtime-wasm/adapter/containers/container-launch.ts";
import { Isolation } from "@picolet/runtime-wasm/adapter/isolation/isolation.ts";
import { type JailTools, jailCommand } from "@picolet/runtime-wasm/adapter/isolation/jail.ts";
import { JailFolder } from "@picolet/runtime-wasm/adapter/isolation/jail-folder.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { openFilesOf } from "../support/unit/machine/processes.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, type WasmPodOptions, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const shared = new TempFolder();
process.once("exit", () => shared[Symbol.dispose]());

interface Bench {
  readonly runtime: WasmRuntime;
  readonly adapter: WasmAdapter;
  pod(options?: Partial<WasmPodOptions>, component?: "workload.c" | "script.c"): Promise<WasmPod>;
  /** The pid of a container's runner. */
  pid(id: string): number;
}

async function bench(context: TestContext): Promise<Bench> {
  const runtime = await WasmRuntime.create({ rootDirectory: shared.path });
  const adapter = runtime.adapter();
  context.after(async () => {
    await adapter[Symbol.asyncDispose]();
    await runtime[Symbol.asyncDispose]();
  });
  return {
    runtime,
    adapter,
    async pod(options = {}, component = "workload.c") {
      const image = `localhost/${component}:1`;
      await adapter.images.import(await testComponent(component), image, NEVER);
      return WasmPod.create(runtime, adapter, { image, ...options });
    },
    pid: (id) => runtime.runner(id)?.pid ?? assert.fail("it has a runner"),
  };
}

const mount = (containerPath: string, hostPath: string, readOnly = false): ContainerLaunch["mounts"][number] => ({
  containerPath,
  hostPath,
  readOnly,
  propagation: "private",
});

/** Fields of /proc/PID/status. */
function statusOf(pid: number): Readonly<Record<string, string>> {
  const lines = readFileSync(`/proc/${pid}/status`, "utf8").split("\n");
  return Object.fromEntries(lines.map((line) => line.split(":\t").map((each) => each.trim().replaceAll("\t", " "))));
}

const namespaceOf = (pid: number | "self", kind: string): string => readlinkSync(`/proc/${pid}/ns/${kind}`);

function limitOf(pid: number, name: string): string[] {
  const line = readFileSync(`/proc/${pid}/limits`, "utf8").match(new RegExp(`^${name} +(\\S+) +(\\S+)`, "m"));
  return line?.slice(1) ?? [];
}

/** Mount points, in order. */
const mountsOf = (pid: number): string[] =>
  readFileSync(`/proc/${pid}/mountinfo`, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.split(" ")[4] ?? "");

test("whom a pod does not say otherwise, a component runs as nobody in particular, with no rights to gain", async (context) => {
  const { adapter, pod, pid } = await bench(context);
  const made = await pod();
  const container = await made.start({ args: ["print", "stdout", "here", "stdout", "and", "sleep"] });
  await made.exit(container.id);
  const sleeping = await made.start({ attempt: 1, args: ["sleep"] });
  const user = { uid: UNPRIVILEGED_ID, gid: UNPRIVILEGED_ID, supplementalGroups: [UNPRIVILEGED_ID] };
  assert.deepEqual(sleeping.user, user, "and its status says so");
  const status = statusOf(pid(sleeping.id));
  const id = String(UNPRIVILEGED_ID);
  assert.deepEqual([status.Uid, status.Gid], [[id, id, id, id].join(" "), [id, id, id, id].join(" ")]);
  assert.equal(status.Groups, "");
  for (const set of ["CapPrm", "CapEff", "CapBnd", "CapAmb"]) assert.match(status[set] ?? "", /^0+$/, set);
  assert.equal(status.NoNewPrivs, "1");
  assert.equal(status.Seccomp, "2", "with whatever util-linux this node has");
  const [shown] = await adapter.isolation(made.desired.uid, NEVER);
  assert.deepEqual(shown, {
    container: sleeping.name,
    measures: [
      ...["own file system tree", "own IPC", "no network", "seccomp filter", "no new privileges", "no capabilities"],
      `user ${id}`,
    ],
    missing: [],
  });
  assert.match(adapter.isolationLevel() ?? "", /^jail, seccomp/);
  assert.deepEqual(limitOf(pid(sleeping.id), "Max core file size"), ["0", "0"]);
  assert.deepEqual(limitOf(pid(sleeping.id), "Max open files"), ["4096", "4096"]);
});

test("a pod that says root gets root without a single capability", async (context) => {
  const { runtime, pod, pid } = await bench(context);
  mkdirSync(runtime.folder.at("volume"), { mode: 0o755 });
  writeFileSync(runtime.folder.at("volume", "file"), "root's");
  chmodSync(runtime.folder.at("volume", "file"), 0o600);
  const made = await pod({ spec: { securityContext: { runAsUser: 0, fsGroup: 4321 } } });
  const mounts = [mount("/data", runtime.folder.at("volume"))];
  const read = await made.start({ args: ["cat", "/data/file"], mounts });
  assert.equal((await made.exit(read.id)).exitCode, 0, "what is root's is its own");
  const { id } = await made.start({ attempt: 1, args: ["sleep"], mounts });
  const status = statusOf(pid(id));
  assert.deepEqual([status.Uid, status.Gid, status.Groups], ["0 0 0 0", "0 0 0 0", "4321"]);
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) assert.match(status[set] ?? "", /^0+$/, set);
});

test("what is root's on a volume is not an unprivileged component's", async (context) => {
  const { runtime, pod } = await bench(context);
  mkdirSync(runtime.folder.at("volume"), { mode: 0o755 });
  writeFileSync(runtime.folder.at("volume", "file"), "root's");
  chmodSync(runtime.folder.at("volume", "file"), 0o600);
  const made = await pod();
  const container = await made.start({
    args: ["cat", "/data/file"],
    mounts: [mount("/data", runtime.folder.at("volume"))],
  });
  assert.equal((await made.exit(container.id)).exitCode, 1);
  assert.deepEqual(await made.text(container, 1), ["/data/file: Permission denied"]);
});

test("a runner's tree holds its program, its container and its volumes, and it has no network", async (context) => {
  const { runtime, pod, pid } = await bench(context);
  const volume = runtime.folder.at("a folder # of its own");
  mkdirSync(volume);
  writeFileSync(runtime.folder.at("single"), "one");
  const made = await pod();
  const mounts = [mount("/data", volume, true), mount("/etc/single", runtime.folder.at("single"))];
  const { id } = await made.start({ args: ["sleep"], mounts });
  const runner = pid(id);
  const libraries = mountsOf(runner).filter((path) => path.startsWith("/usr/") || path.startsWith("/lib"));
  assert.ok(libraries.length > 0 && libraries.length < 4, libraries.join());
  assert.deepEqual(
    mountsOf(runner).filter((path) => !libraries.includes(path)),
    [
      ...["/", "/proc", "/node", "/runner/runner-main.cjs", "/setpriv", "/umount", "/dev/null", "/dev/urandom"],
      ...["/container", "/container/launch.json", "/container/component", "/container/log", "/container/end"],
      ...["/volumes", "/volumes/0", "/volumes/1"],
    ],
  );
  const readOnly = readFileSync(`/proc/${runner}/mountinfo`, "utf8").match(/ \/volumes\/\d \S+/g);
  assert.deepEqual(
    readOnly?.map((each) => each.split(",")[0]),
    [" /volumes/0 ro", " /volumes/1 rw"],
  );
  assert.deepEqual(readdirSync(`/proc/${runner}/root/old`), []);
  assert.notEqual(namespaceOf(runner, "mnt"), namespaceOf("self", "mnt"));
  assert.notEqual(namespaceOf(runner, "net"), namespaceOf("self", "net"));
  const interfaces = readFileSync(`/proc/${runner}/net/dev`, "utf8").split("\n").slice(2).filter(Boolean);
  assert.deepEqual(
    interfaces.map((line) => line.split(":")[0]?.trim()).filter((name) => name !== "lo"),
    [],
  );
});

test("a pod that is granted network has the node's, and what names are looked up with", async (context) => {
  const { pod, pid } = await bench(context);
  const made = await pod({ annotations: { "wasm.picolet.io/network": "tcp://192.0.2.1:80" } });
  const { id } = await made.start({ args: ["sleep"] });
  assert.equal(namespaceOf(pid(id), "net"), namespaceOf("self", "net"));
  assert.ok(mountsOf(pid(id)).includes("/etc/resolv.conf"));
});

test("nothing is left open in a runner that leads out of its tree", async (context) => {
  const { runtime, pod, pid } = await bench(context);
  const made = await pod();
  const container = await made.start({ args: ["prompt"] });
  const { id } = container;
  await made.lines(container, 1);
  const files = openFilesOf(pid(id)).filter((path) => path.startsWith("/"));
  assert.deepEqual(
    files.filter((path) => !path.startsWith("/container/") && path !== "/dev/null" && path !== "/dev/urandom"),
    [`${runtime.state.container(made.desired.uid, id)}/fatal`],
  );
});

test("what is mounted on a volume later, and a folder that is swapped by a link, are seen by who runs already", async (context) => {
  const { runtime, pod } = await bench(context);
  const at = (...names: string[]): string => runtime.folder.at("volumes", ...names);
  mkdirSync(at());
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", at()]);
  execFileSync("mount", ["--make-shared", at()]);
  using _ = { [Symbol.dispose]: () => execFileSync("umount", ["-R", at()]) };
  for (const name of ["one", "two", "later"]) mkdirSync(at(name));
  writeFileSync(at("one", "value"), "old\n");
  writeFileSync(at("two", "value"), "new\n");
  symlinkSync("one", at("..data"));
  symlinkSync("..data/value", at("value"));
  const made = await pod({}, "script.c");
  const mounts = [mount("/data", at())];
  const args = ["cat", "/data/value", "wait", "/data/later/come", "cat", "/data/value", "cat", "/data/later/come"];
  const container = await made.start({ args, mounts });
  await made.lines(container, 1);
  symlinkSync("two", at("..data_tmp"));
  execFileSync("mv", ["-T", at("..data_tmp"), at("..data")]);
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", at("later")]);
  writeFileSync(at("later", "come"), "mounted\n");
  assert.equal((await made.exit(container.id)).exitCode, 0);
  assert.deepEqual(await made.text(container, 3), ["old", "new", "mounted"]);
});

test("what the node unmounts is not held by a component that runs", async (context) => {
  const { runtime, pod } = await bench(context);
  const elsewhere = runtime.folder.at("elsewhere");
  mkdirSync(elsewhere);
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", elsewhere]);
  const made = await pod();
  const { id } = await made.start({ args: ["sleep"] });
  const holders = (pid: number): boolean => readFileSync(`/proc/${pid}/mountinfo`, "utf8").includes(elsewhere);
  assert.equal(holders(process.pid), true);
  assert.equal(holders(runtime.runner(id)?.pid ?? 0), false);
  execFileSync("umount", [elsewhere]);
});

/** As on a node whose /bin/sh is that one. @returns what is mounted in the jail, and how */
function jailMadeBy(shell: string, tools: JailTools): string[] {
  using folder = new TempFolder();
  const program = folder.at("program.cjs");
  writeFileSync(program, "");
  const jail = new JailFolder(folder.at("jail"), {
    ...{ nodePath: process.execPath, runnerPath: program, densePath: program },
    ...{ setprivPath: "/usr/bin/setpriv", umountPath: "/usr/bin/umount" },
  });
  const kind = { privateProc: false, seccomp: false };
  const use = { network: false, identity: undefined, use: "jail" } as const;
  const fstab = folder.at("mounts");
  writeFileSync(fstab, jail.mounts(kind, use.network, use.use));
  const command = jailCommand(tools, fstab, jail.root, { ...kind, ...use });
  const look = ["/node", "-p", 'require("node:fs").readFileSync("/proc/self/mountinfo", "utf8")'];
  const onNode = ["--mount", "sh", "-c", `mount --bind ${shell} /bin/sh && exec "$@"`, "sh"];
  const { status, stdout, stderr } = spawnSync(tools.unshare, [...onNode, ...command, ...look], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout
    .split("\n")
    .map((line) => line.split(" ").slice(4, 6).join(" "))
    .sort();
}

test("a shell that has programs of its own for what util-linux does makes the same jail, or none", () => {
  const tools = { unshare: "/usr/bin/unshare", mount: "/usr/bin/mount", pivotRoot: "/usr/sbin/pivot_root" };
  const known = jailMadeBy("/bin/dash", tools);
  assert.ok(
    known.some((line) => /^\/node ro,/.test(line)),
    known.join("\n"),
  );
  assert.deepEqual(jailMadeBy("/bin/busybox", tools), known);
  using applets = new TempFolder();
  symlinkSync("/bin/busybox", applets.at("mount"));
  assert.throws(
    () => jailMadeBy("/bin/dash", { ...tools, mount: applets.at("mount") }),
    /has left writable what was to be read-only/,
  );
});

test("a node that lets nobody be kept apart says so once, and components run", async (context) => {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const log = new RecordedLog();
  const isolation = new Isolation(log, {
    directory: folder.at("jail"),
    nodePath: "/opt/node",
    runnerPath: "/opt/runner.cjs",
    densePath: "/opt/dense.cjs",
    ownUid: 1000,
  });
  assert.equal(isolation.problem, "picolet does not run as root");
  for (const turn of [1, 2]) {
    const launch = { endPath: `/state/${turn}/end` } as Parameters<Isolation["runner"]>[0];
    const runner = await isolation.runner(launch, { folder: `/state/${turn}`, network: false });
    assert.equal(runner.command[0], "/opt/node");
    assert.deepEqual(runner.command.slice(-2), ["/opt/runner.cjs", `/state/${turn}/launch.json`]);
    assert.equal(runner.launch, launch);
  }
  assert.equal(log.entries.filter(({ level }) => level === "warn").length, 1);
  // A process that becomes another user before it opens its files needs a jail.
  assert.equal(await isolation.unjailed({ uid: 65532, gid: 65532, groups: [] }), "picolet does not run as root");
  assert.equal(await isolation.unjailed(undefined), undefined);
});
