/** A runner that is kept ready, and the container that gets it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { type TestContext, test } from "node:test";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { isAlive } from "@picolet/runtime-wasm/adapter/state/process-id.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { openFilesOf, runningProcesses } from "../support/unit/machine/processes.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { settled } from "../support/unit/ports/settled.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, type WasmPodOptions, WasmRuntime, type WasmRuntimeOptions } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const IMAGE = "localhost/workload:1";
const shared = new TempFolder();
process.once("exit", () => shared[Symbol.dispose]());

interface Bench {
  readonly runtime: WasmRuntime;
  readonly adapter: WasmAdapter;
  readonly pod: WasmPod;
}

async function bench(
  context: TestContext,
  options: Partial<WasmPodOptions> = {},
  more: WasmRuntimeOptions = {},
): Promise<Bench> {
  const runtime = await WasmRuntime.create({ rootDirectory: shared.path, ...more });
  const adapter = runtime.adapter();
  context.after(async () => {
    await adapter[Symbol.asyncDispose]();
    await runtime[Symbol.asyncDispose]();
  });
  await adapter.images.import(await testComponent("workload.c"), IMAGE, NEVER);
  return { runtime, adapter, pod: await WasmPod.create(runtime, adapter, { image: IMAGE, ...options }) };
}

/** All of a process that is the same for each runner of a container. */
function portrait(pid: number): unknown {
  const status = readFileSync(`/proc/${pid}/status`, "utf8").split("\n");
  const wanted = /^(Name|Umask|Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp|Cpus_allowed_list|SigIgn|SigCgt|SigBlk):/;
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, "utf8")
    .trim()
    .split("\n")
    .map((line) => {
      const [, , , root, target, options] = line.split(" ");
      return `${root?.replace(/[0-9a-f]{64}/, "ID")} ${target} ${options}`;
    });
  return {
    status: status.filter((line) => wanted.test(line)),
    limits: readFileSync(`/proc/${pid}/limits`, "utf8"),
    oom: readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"),
    cgroup: readFileSync(`/proc/${pid}/cgroup`, "utf8").replace(/[0-9a-f]{64}/g, "ID"),
    root: readlinkSync(`/proc/${pid}/root`),
    cwd: readlinkSync(`/proc/${pid}/cwd`),
    mounts: mounts.sort(),
    files: openFilesOf(pid)
      .filter((path) => path.startsWith("/"))
      .map((path) => path.replace(/[0-9a-f]{64}/, "ID").replace(/\d\.log$/, "LOG"))
      .sort(),
    environment: readFileSync(`/proc/${pid}/environ`, "utf8")
      .split("\0")
      .filter((each) => !/^(PWD|OLDPWD|_)=/.test(each))
      .sort(),
  };
}

const ownNamespaces = (pid: number): readonly boolean[] =>
  ["mnt", "net", "ipc"].map(
    (kind) => readlinkSync(`/proc/${pid}/ns/${kind}`) !== readlinkSync(`/proc/self/ns/${kind}`),
  );

/** Processes that were made for a spare of this state, and still have its command line. */
const waiting = (runtime: WasmRuntime): number[] =>
  runningProcesses()
    .filter(({ words }) => words.join(" ").includes(`${runtime.state.path}/jail.spare-mounts`))
    .map(({ pid }) => pid);

/** True when the container's reaper was made for a spare. */
const wasSpare = (runtime: WasmRuntime, id: string): boolean =>
  waiting(runtime).includes(runtime.reaper(id)?.pid ?? assert.fail("it has a reaper"));

/** Until the one spare has its mounts, and Node runs. */
async function standing({ runtime, adapter }: Bench): Promise<void> {
  await adapter.sparesSettled;
  assert.equal(adapter.spareRunners, 1);
  const nodeRuns = (): boolean => {
    const parents = waiting(runtime);
    return runningProcesses().some(({ parent, words }) => parents.includes(parent) && words[0] === "/node");
  };
  while (!nodeRuns()) await new Promise((resolve) => setTimeout(resolve, 10));
}

test("a restart takes the spare, which is then what a runner of its own would be", async (context) => {
  const limits = { resources: { limits: { memory: "64Mi", cpu: "500m" } } };
  const { runtime, adapter, pod } = await bench(context, { container: limits });
  mkdirSync(runtime.folder.at("volume"));
  writeFileSync(runtime.folder.at("volume", "file"), "");
  const mounts = ["/a", "/b/c"].map((containerPath) => {
    return { containerPath, hostPath: runtime.folder.at("volume"), readOnly: true, propagation: "private" as const };
  });
  const run = { args: ["prompt"], mounts };
  // A container that has written and waits opens and closes no file any more.
  const atRest = async (attempt: number): Promise<ObservedContainer> => {
    const container = await pod.start({ ...run, attempt, logPath: `main/${attempt}.log` });
    await pod.lines(container, 1);
    return container;
  };
  const cold = await atRest(0);
  const pidOf = (id: string): number => runtime.runner(id)?.pid ?? assert.fail("it has a runner");
  const before = portrait(pidOf(cold.id));
  await adapter.sparesSettled;
  assert.equal(adapter.spareRunners, 1);
  await pod.stop(cold.id);
  const warm = await atRest(1);
  assert.equal(adapter.spareRunners, 0, "it was taken");
  assert.deepEqual(portrait(pidOf(warm.id)), before);
  assert.deepEqual(ownNamespaces(pidOf(warm.id)), [true, true, true]);
  process.kill(pidOf(warm.id), "SIGTERM");
  assert.equal((await pod.exit(warm.id)).exitCode, 143, "its reaper waited for it");
});

test("a spare that does not see what was mounted since gives way to a runner of its own", async (context) => {
  const made = await bench(context);
  const { runtime, adapter, pod } = made;
  const first = await pod.start({ args: ["sleep"] });
  await standing(made);
  const volume = runtime.folder.at("volume");
  mkdirSync(volume);
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", volume]);
  using _ = { [Symbol.dispose]: () => execFileSync("umount", ["-l", volume]) };
  writeFileSync(`${volume}/file`, "what is there\n");
  await pod.stop(first.id);
  const mounts = [{ containerPath: "/data", hostPath: volume, readOnly: true, propagation: "private" as const }];
  const second = await pod.start({ attempt: 1, args: ["cat", "/data/file"], mounts });
  assert.equal((await pod.exit(second.id)).exitCode, 0);
  assert.deepEqual(await pod.text(second, 1), ["what is there"]);
  const { containers } = await adapter.inspect(pod.desired.uid, NEVER);
  assert.deepEqual(
    containers.map(({ id }) => id),
    [second.id, first.id],
    "nothing is left of the one that came to nothing",
  );
});

test("a volume that somebody writes to all the time, and one that is another than it was, are what they are for a spare", async (context) => {
  const made = await bench(context);
  const { runtime, adapter } = made;
  const image = "localhost/script:1";
  await adapter.images.import(await testComponent("script.c"), image, NEVER);
  const pod = await WasmPod.create(runtime, adapter, { name: "script", image });
  const [busy, moved, single] = [runtime.folder.at("busy"), runtime.folder.at("moved"), runtime.folder.at("single")];
  for (const folder of [busy, moved]) mkdirSync(folder);
  writeFileSync(`${moved}/file`, "before\n");
  writeFileSync(single, "");
  const mounts = Object.entries({ "/busy": busy, "/moved": moved, "/single": single }).map(
    ([containerPath, hostPath]) => ({ containerPath, hostPath, readOnly: true, propagation: "private" as const }),
  );
  const first = await pod.start({ args: ["hold"], mounts });
  await standing(made);
  await pod.stop(first.id);
  renameSync(moved, `${moved}-away`);
  mkdirSync(moved);
  writeFileSync(`${moved}/file`, "after\n");
  const second = pod.start({ attempt: 1, args: ["cat", "/moved/file", "hold"], mounts });
  const started = second.then(() => true);
  while (!(await Promise.race([started, new Promise<false>((resolve) => setImmediate(resolve, false))]))) {
    mkdirSync(`${busy}/new`);
    rmdirSync(`${busy}/new`);
    appendFileSync(single, ".");
  }
  const container = await second;
  assert.ok(wasSpare(runtime, container.id), "it needed no runner of its own");
  assert.deepEqual(await pod.text(container, 1), ["after"]);
});

test("a component that cannot start is told of with a spare as without, and the spare ends", async (context) => {
  const { runtime, adapter, pod } = await bench(context);
  const first = await pod.start({ args: ["exit", "0"] });
  await pod.exit(first.id);
  await adapter.sparesSettled;
  const mounts = [{ containerPath: "/data", hostPath: "/no/such", readOnly: true, propagation: "private" as const }];
  await assert.rejects(pod.start({ attempt: 1, args: ["sleep"], mounts }), { reason: "RunContainerError" });
  assert.equal(adapter.spareRunners, 0, "it was taken");
  assert.deepEqual(await settled(() => waiting(runtime)), []);
});

test("root gets a runner of its own", async (context) => {
  const { adapter, pod } = await bench(context, { spec: { securityContext: { runAsUser: 0 } } });
  await pod.exit((await pod.start({ args: ["exit", "0"] })).id);
  await adapter.sparesSettled;
  await pod.exit((await pod.start({ attempt: 1, args: ["exit", "0"] })).id);
  assert.equal(adapter.spareRunners, 1, "it still waits");
});

test("the spare is of the kind that was asked for last", async (context) => {
  const { runtime, adapter, pod } = await bench(context);
  const networked = await WasmPod.create(runtime, adapter, {
    ...{ name: "networked", image: IMAGE },
    annotations: { "wasm.picolet.io/network": "tcp://192.0.2.1:80" },
  });
  const once = async (of: WasmPod, attempt: number): Promise<void> => {
    await of.exit((await of.start({ attempt, args: ["exit", "0"] })).id);
    await adapter.sparesSettled;
  };
  await once(pod, 0);
  await once(networked, 0);
  const fatals = (): string[] => readdirSync(`${runtime.state.path}/spares`);
  const [first] = fatals();
  await once(networked, 1);
  const [second] = fatals().filter((name) => name !== first);
  assert.ok(second, "one without network is of no use to it");
  await networked.start({ attempt: 2, args: ["sleep"] });
  assert.equal(adapter.spareRunners, 0, "the one that was made for it is");
  await adapter.sparesSettled;
  assert.equal(adapter.spareRunners, 1, "with network, as the last");
  const { id } = await pod.start({ attempt: 1, args: ["sleep"] });
  const runner = runtime.runner(id)?.pid ?? assert.fail("it has a runner");
  assert.deepEqual(ownNamespaces(runner), [true, true, true], "one with network is not for it");
});

test("spares end with the agent, and when memory is short", async (context) => {
  const { runtime, adapter, pod } = await bench(context, {}, { limits: { spareRunners: 2 } });
  const { id } = await pod.start({ args: ["sleep"] });
  await adapter.sparesSettled;
  assert.equal(adapter.spareRunners, 2);
  assert.ok(waiting(runtime).length > 0);
  adapter.shed();
  assert.equal(adapter.spareRunners, 0);
  while (waiting(runtime).length > 0) await new Promise((resolve) => setTimeout(resolve, 10));
  const runner = runtime.runner(id);
  assert.ok(runner && isAlive(runner));
  await pod.start({ attempt: 1, args: ["sleep"] });
  await adapter.sparesSettled;
  assert.equal(adapter.spareRunners, 0, "none is made as long as it may be short still");
});
