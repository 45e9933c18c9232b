/** Components that misbehave, and what becomes of them: real components in real processes, through the adapter. */
import assert from "node:assert/strict";
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { test } from "node:test";
import { isPicoletError, type PicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { ContainerLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import { killGroup } from "@picolet/runtime-wasm/adapter/state/process-id.ts";
import { cpuSecondsOf, memoryOf } from "../bench/measure/process-usage.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import type { TestComponent } from "../support/wasm/components.ts";
import { wasmBench as bench, imageOf, mount, type WasmBench } from "../support/wasm/wasm-bench.ts";
import { WasmPod, type WasmPodOptions, type WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;

const limits = (memory: string, more: object = {}) => ({ container: { resources: { limits: { memory, ...more } } } });

/** As the kubelet makes an emptyDir: every user may write to it. */
function volumeOf(runtime: WasmRuntime): string {
  const volume = runtime.folder.at("volume");
  mkdirSync(volume);
  chmodSync(volume, 0o777);
  return volume;
}

/** Runs `files.c` and shows every step that went wrong. */
async function runFiles(pod: WasmPod, run: Partial<ContainerLaunch>): Promise<string[]> {
  const container = await pod.start(run);
  const { exitCode, message } = await pod.exit(container.id);
  const lines = await pod.text(container, 1);
  assert.deepEqual(
    lines.filter((line) => !line.startsWith("ok ")),
    [],
  );
  assert.equal(exitCode, 0, message);
  return lines;
}

test("a component uses a volume as any program does", async (context) => {
  const { runtime, pod } = await bench(context);
  const volume = volumeOf(runtime);
  symlinkSync("sub/b", `${volume}/inner-link`);
  const lines = await runFiles(await pod("files.c"), { args: ["use"], mounts: [mount("/data", volume)] });
  assert.ok(lines.length > 20, `${lines.length} steps`);
  assert.deepEqual(readdirSync(volume), ["inner-link"]);
});

test("no link and no dots lead out of a volume", async (context) => {
  const { runtime, pod } = await bench(context);
  const volume = volumeOf(runtime);
  const outside = runtime.folder.at("outside-folder");
  mkdirSync(outside);
  writeFileSync(`${outside}/secret`, "secret");
  writeFileSync(runtime.folder.at("outside"), "secret");
  writeFileSync(`${volume}/a-file`, "mine");
  symlinkSync("../outside", `${volume}/up-link`);
  symlinkSync("/etc/passwd", `${volume}/absolute-link`);
  symlinkSync("../outside-folder", `${volume}/folder-link`);
  symlinkSync("up-link", `${volume}/chain-link`);
  symlinkSync("loop-link", `${volume}/loop-link`);
  symlinkSync("../made-outside", `${volume}/dangling-link`);
  await runFiles(await pod("files.c"), { args: ["escape"], mounts: [mount("/data", volume)] });
  assert.deepEqual(readdirSync(outside), ["secret"]);
  assert.equal(existsSync(runtime.folder.at("made-outside")), false);
});

test("a folder that somebody keeps replacing by a link out is never followed out", async (context) => {
  const { runtime, pod } = await bench(context);
  const at = (name: string): string => runtime.folder.at(name);
  for (const folder of ["volume", "volume/moving", "outside"]) mkdirSync(at(folder));
  writeFileSync(at("volume/moving/file"), "inside");
  writeFileSync(at("outside/file"), "outside");
  symlinkSync("../outside", at("link"));
  const raced = await pod("files.c");
  let running = true;
  const swap = (async () => {
    for (let swaps = 0; running; swaps += 1) {
      renameSync(at("volume/moving"), at("parked"));
      renameSync(at("link"), at("volume/moving"));
      renameSync(at("volume/moving"), at("link"));
      renameSync(at("parked"), at("volume/moving"));
      if (swaps % 20 === 0) await new Promise(setImmediate);
    }
  })();
  try {
    const lines = await runFiles(raced, { args: ["race", "4000"], mounts: [mount("/data", at("volume"))] });
    assert.match(lines.join(), /ok inside [1-9]\d* times/, "it was inside at times, so the race was one");
  } finally {
    running = false;
    await swap;
  }
});

test("read-only is read-only, and single files are mounted as files", async (context) => {
  const { runtime, pod } = await bench(context);
  const at = (name: string): string => runtime.folder.at(name);
  volumeOf(runtime);
  mkdirSync(at("config"));
  writeFileSync(at("config/setting"), "on");
  writeFileSync(at("one-file"), "alone");
  chmodSync(at("one-file"), 0o666);
  writeFileSync(at("nested"), "hides");
  writeFileSync(at("volume/nested"), "hidden");
  writeFileSync(at("volume/other"), "");
  const mounts = [
    mount("/config", at("config"), true),
    mount("/etc/app/one-file", at("one-file")),
    mount("/data/", at("volume")),
    mount("/data/nested", at("nested"), true),
  ];
  await runFiles(await pod("files.c"), { args: ["read-only"], mounts });
  assert.equal(readFileSync(at("config/setting"), "utf8"), "on");
  assert.equal(readFileSync(at("one-file"), "utf8"), "other", "what is mounted to be written is written");
  assert.equal(readFileSync(at("volume/nested"), "utf8"), "hidden");
});

test("a component sees its own environment and arguments, and nothing of the host's", async (context) => {
  const { pod } = await bench(context);
  const made = await pod("workload.c");
  const environment = await made.start({ args: ["env"], env: [{ name: "ONLY", value: "this" }] });
  await made.exit(environment.id);
  assert.deepEqual(await made.text(environment, 1), ["ONLY=this"]);
  const named = await made.start({ attempt: 1, args: ["args", "a b", ""] });
  await made.exit(named.id);
  assert.deepEqual(await made.text(named, 4), ["workload-c.wasm", "args", "a b", ""]);
  const commanded = await made.start({ attempt: 2, command: ["/bin/mine", "args"], args: ["c"] });
  await made.exit(commanded.id);
  assert.deepEqual(await made.text(commanded, 3), ["/bin/mine", "args", "c"]);
});

test("a piece of a line is in the log before the component sleeps", async (context) => {
  const { pod } = await bench(context);
  const made = await pod("workload.c");
  const container = await made.start({ args: ["prompt"] });
  const [line] = await made.lines(container, 1);
  assert.deepEqual([line?.stream, line?.tag, line?.text], ["stdout", "P", "no newline yet"]);
});

test("a trap ends a component with 1, and its message says which", async (context) => {
  const { pod } = await bench(context);
  const made = await pod("workload.c");
  for (const [attempt, [what, message]] of [
    ["trap", /^wasm trap: .*unreachable/],
    ["overflow", /^wasm trap: (call stack exhausted|out of bounds memory access|memory access out of bounds)/],
    ["beyond", /^wasm trap: memory access out of bounds$/],
  ].entries()) {
    const { id } = await made.start({ attempt, args: [String(what)] });
    const exit = await made.exit(id);
    assert.deepEqual([exit.exitCode, exit.reason], [1, "Error"]);
    assert.match(exit.message, message as RegExp);
  }
});

test("what a trap was is in the log behind what the component wrote, with where it was", async (context) => {
  const { pod } = await bench(context);
  const made = await pod("script.c");
  const container = await made.start({ args: ["say", "one", "trap"] });
  const { message } = await made.exit(container.id);
  const lines = (await made.lines(container, 2)).map(({ stream, text }) => `${stream} ${text}`);
  assert.deepEqual(lines.slice(0, 2), ["stdout one", `stderr picolet: ${message}`]);
  assert.match(lines[2] ?? "", /^stderr {5}at (?:\S+ )?wasm-function\[\d+\]:0x[0-9a-f]+$/);
  assert.ok(lines.length <= 12);
  const ended = await made.start({ attempt: 1, args: ["say", "one", "exit", "1"] });
  await made.exit(ended.id);
  assert.deepEqual(await made.text(ended, 1), ["one"]);
});

test("linear memory ends at the limit, with or without cgroups", async (context) => {
  const { pod } = await bench(context, { cgroups: false });
  const made = await pod("workload.c", limits("48Mi"));
  const container = await made.start({ args: ["allocate"] });
  assert.equal((await made.exit(container.id)).exitCode, 0);
  const last = (await made.text(container, 1)).at(-1);
  const allocated = Number(/^(\d+) MiB$/.exec(last ?? "")?.[1]);
  assert.ok(allocated >= 44 && allocated < 48, last);
});

test("a component that takes more memory than its cgroup has is OOMKilled", async (context) => {
  const { runtime, pod } = await bench(context);
  const made = await pod("workload.c", limits("32Mi"));
  if (runtime.cgroups?.usable !== true) return context.skip("this machine lets us make no cgroups");
  const container = await made.start({ args: ["allocate"] });
  const exit = await made.exit(container.id);
  assert.deepEqual([exit.exitCode, exit.reason], [137, "OOMKilled"]);
});

test("a component that spins gets no more than its share of CPU, and is ended like any other", async (context) => {
  const { runtime, pod } = await bench(context);
  const made = await pod("workload.c", limits("64Mi", { cpu: "100m" }));
  if (runtime.cgroups?.usable !== true) return context.skip("this machine lets us make no cgroups");
  const { id } = await made.start({ args: ["spin"] });
  const runner = runtime.runner(id);
  assert.ok(runner);
  const [before, begun] = [cpuSecondsOf(runner.pid), performance.now()];
  const used = (): number => cpuSecondsOf(runner.pid) - before;
  // A busy machine may give it less than its share, never more.
  while (used() < 0.1) await new Promise((resolve) => setTimeout(resolve, 20));
  const share = used() / ((performance.now() - begun) / 1000);
  assert.ok(share < 0.2, `${share} of a processor`);
  await made.stop(id, seconds(30));
  assert.equal((await made.exit(id)).exitCode, 143);
});

test("a flood of output costs bounded memory, and not a line is lost", async (context) => {
  const { runtime, pod } = await bench(context);
  const made = await pod("workload.c");
  const { id, logPath } = await made.start({ args: ["flood"] });
  const runner = runtime.runner(id);
  assert.ok(runner);
  while (statSync(logPath).size < 20 * MEBIBYTE) await new Promise((resolve) => setTimeout(resolve, 50));
  const { anonMiB } = memoryOf(runner.pid);
  assert.ok(anonMiB < 32, `${anonMiB} MiB`);
  await made.stop(id);
  const lines = readFileSync(logPath, "utf8").split("\n").slice(0, -1);
  for (const [index, line] of lines.entries())
    assert.ok(line.endsWith(` stdout F flood ${index} of a line that says nothing`));
});

test("what a component makes and drops leaves nothing in its runner", async (context) => {
  const { runtime, pod } = await bench(context);
  const made = await pod("workload.c");
  const sizes: number[] = [];
  for (const [attempt, turns] of ["2000", "60000"].entries()) {
    const container = await made.start({ attempt, args: ["churn", turns] });
    const runner = runtime.runner(container.id);
    assert.ok(runner);
    assert.deepEqual(await made.text(container, 1), [`${turns} turns`]);
    sizes.push(memoryOf(runner.pid).anonMiB);
    await made.stop(container.id);
  }
  const [few = 0, many = 0] = sizes;
  // The set that jco keeps of resources' numbers would have 60,000 entries, some 4 MiB.
  assert.ok(many < few + 3, `${few} MiB after 2,000 turns, ${many} after 60,000`);
});

/** The error of a refused start; nothing of it may be left. */
async function refusedStart(
  { runtime, adapter }: WasmBench,
  pod: WasmPod,
  run: Partial<ContainerLaunch> = {},
): Promise<PicoletError> {
  const refusal = await pod.start(run).then(
    () => assert.fail("the start was to be refused"),
    (error: unknown) => error,
  );
  assert.ok(isPicoletError(refusal), String(refusal));
  assert.deepEqual((await adapter.inspect(pod.desired.uid, NEVER)).containers, []);
  assert.deepEqual(runtime.state.containerIds(pod.desired.uid), []);
  assert.deepEqual(readdirSync(runtime.state.exitsDirectory), []);
  return refusal;
}

const REFUSALS: readonly (readonly [TestComponent, Partial<WasmPodOptions>, string, RegExp])[] = [
  [
    "wants-http.wat",
    {},
    "CreateContainerConfigError",
    /imports what its pod does not grant: wasi:http\/outgoing-handler@0\.2\.0, example:board\/gpio@1\.0\.0;/,
  ],
  ["no-run.wat", {}, "CreateContainerConfigError", /exports no wasi:cli\/run, only answer/],
  ["hostile-name.wat", {}, "CreateContainerError", /quotes or control characters/],
  ["large-memory.wat", limits("32Mi"), "CreateContainerConfigError", /starts with 67108864 bytes/],
  ["workload.c", limits("8Mi"), "CreateContainerConfigError", /memory limit 8Mi is too small.*at least 16Mi/],
  [
    "workload.c",
    { spec: { securityContext: { runAsNonRoot: true, runAsUser: 0 } } },
    "CreateContainerConfigError",
    /^container's runAsUser breaks non-root policy \(pod: "/,
  ],
];

for (const [component, options, reason, text] of REFUSALS) {
  test(`${component} is refused with ${reason}: ${text.source.slice(0, 40)}`, async (context) => {
    const made = await bench(context);
    const refusal = await refusedStart(made, await made.pod(component, options));
    assert.equal(refusal.reason, reason);
    assert.match([refusal.message, String(refusal.cause)].join("\n"), text);
  });
}

test("a component that never gets to run is ended after the time it has for that", async (context) => {
  const made = await bench(context, { limits: { startTimeout: millis(500) } });
  const refusal = await refusedStart(made, await made.pod("slow-start.wat"));
  assert.deepEqual([refusal.code, refusal.reason], ["deadline_exceeded", "RunContainerError"]);
});

test("a component that the kernel kills before it begins is told what it takes at least", async (context) => {
  const made = await bench(context);
  if (made.runtime.cgroups?.usable !== true) return context.skip("this machine lets us make no cgroups");
  const refusal = await refusedStart(made, await made.pod("fill-at-start.wat", limits("16Mi")));
  assert.deepEqual([refusal.code, refusal.reason], ["resource_exhausted", "OOMKilled"]);
  assert.match(refusal.message, /: a component of this size takes at least 31Mi, more than its limit of 16Mi; raise /);
  await (await made.pod("fill-at-start.wat", limits("31Mi"))).start();
});

test("a pod has the node's addresses, and another one changes the pod", async (context) => {
  const { runtime, adapter, pod } = await bench(context);
  const { desired } = await pod("workload.c");
  const ipsOf = async () => (await adapter.inspect(desired.uid, NEVER)).sandboxes.map(({ ips }) => ips);
  assert.deepEqual(await ipsOf(), [runtime.addresses]);
  const before = await adapter.list(NEVER);
  assert.deepEqual(await adapter.list(NEVER), before);
  runtime.addresses = ["192.0.2.8"];
  assert.notDeepEqual(await adapter.list(NEVER), before);
  assert.deepEqual(await ipsOf(), [["192.0.2.8"]]);
});

test("a component that wants SIGKILL gets it at once", async (context) => {
  const { pod } = await bench(context);
  const made = await pod("workload.c", { container: { lifecycle: { stopSignal: "SIGKILL" } } });
  const { id } = await made.start({ args: ["sleep"] });
  await made.stop(id, seconds(30));
  assert.equal((await made.exit(id)).exitCode, 137);
});

test("what a component does without is said with its sandbox", async (context) => {
  const { runtime, pod } = await bench(context);
  await pod("workload.c", { spec: { dnsConfig: { searches: ["a"] } } });
  assert.deepEqual(runtime.warnings, [
    "FieldsIgnored: WebAssembly components do without: spec.dnsConfig: a component has no resolver",
  ]);
});

test("a mount of what is not there fails the start and says which", async (context) => {
  const made = await bench(context);
  const pod = await made.pod("workload.c");
  const refusal = await refusedStart(made, pod, { args: ["sleep"], mounts: [mount("/data", "/no/such/folder")] });
  assert.equal(refusal.reason, "RunContainerError");
  assert.match(String(refusal.cause), /cannot mount \/no\/such\/folder/);
});

test("a start that is given up leaves nothing", async (context) => {
  const made = await bench(context);
  const pod = await made.pod("slow-start.wat");
  const abort = new AbortController();
  const start = pod.start({}, abort.signal);
  setTimeout(() => abort.abort(), 100);
  await assert.rejects(start, (error) => isPicoletError(error, "cancelled"));
  assert.deepEqual(made.runtime.state.containerIds(pod.desired.uid), []);
});

test("a runner whose shell was killed runs on, and ends when it is told", async (context) => {
  const { runtime, adapter, pod } = await bench(context);
  const made = await pod("workload.c");
  const { id } = await made.start({ args: ["sleep"] });
  process.kill(runtime.reaper(id)?.pid ?? 0, "SIGKILL");
  await adapter.list(NEVER);
  assert.equal((await made.container((each) => each.id === id)).state.kind, "running");
  await made.stop(id, seconds(10));
  const exit = await made.exit(id);
  assert.deepEqual([exit.exitCode, exit.reason], [137, "Error"], "nobody could wait for its code");
});

test("a whole group killed from outside is seen, with a hint while the agent is its parent, with a list else", async (context) => {
  const made = await bench(context);
  const pod = await made.pod("workload.c");
  const { id } = await pod.start({ args: ["sleep"] });
  const reaper = made.runtime.reaper(id);
  assert.ok(reaper);
  killGroup(reaper);
  assert.equal((await pod.exit(id)).exitCode, 137);
  const second = await pod.start({ attempt: 1, args: ["sleep"] });
  const adapter = await made.newAgent();
  await adapter.list(NEVER);
  const other = made.runtime.reaper(second.id);
  assert.ok(other);
  killGroup(other);
  const stateOf = async () =>
    (await adapter.inspect(pod.desired.uid, NEVER)).containers.find((each) => each.id === second.id)?.state;
  for (let state = await stateOf(); state?.kind === "running"; state = await stateOf()) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    await adapter.list(NEVER);
  }
  const state = await stateOf();
  assert.deepEqual(state?.kind === "exited" && [state.exitCode, state.message], [
    137,
    "its processes were killed from outside",
  ]);
});

test("after a reboot what ran has ended and its sandbox is not ready", async (context) => {
  const made = await bench(context);
  const pod = await made.pod("workload.c");
  const { id } = await pod.start({ args: ["sleep"] });
  const ended = await pod.start({ name: "main", attempt: 1, args: ["exit", "0"] });
  await pod.exit(ended.id);
  const reaper = made.runtime.reaper(id);
  assert.ok(reaper);
  await made.adapter[Symbol.asyncDispose]();
  killGroup(reaper);
  writeFileSync(`${made.runtime.state.path}/boot_id`, "another boot\n");
  const adapter = await made.newAgent();
  for (const life of [adapter, made]) {
    const observed = await ("newAgent" in life ? await life.newAgent() : life).inspect(pod.desired.uid, NEVER);
    assert.deepEqual(
      observed.sandboxes.map((each) => each.state),
      ["notReady"],
    );
    assert.deepEqual(
      observed.containers.map(({ state }) => state.kind === "exited" && [state.exitCode, state.reason]),
      [
        [0, "Completed"],
        [137, "ContainerStatusUnknown"],
      ],
    );
    assert.deepEqual(observed.manifest, pod.desired);
  }
});

test("a container that an agent only began is gone with the next one, and a shell that comes late does nothing", async (context) => {
  const made = await bench(context);
  const pod = await made.pod("workload.c");
  const { id } = await pod.start({ args: ["sleep"] });
  const folder = made.runtime.state.container(pod.desired.uid, id);
  const container = readFileSync(`${folder}/container.json`, "utf8");
  await made.adapter[Symbol.asyncDispose]();
  const begun = made.runtime.state.container(pod.desired.uid, "1".repeat(64));
  const unfinished = made.runtime.state.container(pod.desired.uid, "2".repeat(64));
  mkdirSync(begun);
  writeFileSync(`${begun}/container.json`, container.replaceAll(id, "1".repeat(64)));
  mkdirSync(unfinished);
  writeFileSync(`${unfinished}/launch.json`, "{");
  const adapter = await made.newAgent();
  const { containers } = await adapter.inspect(pod.desired.uid, NEVER);
  assert.deepEqual(
    containers.map((each) => [each.id, each.state.kind]),
    [[id, "running"]],
  );
  assert.deepEqual(made.runtime.state.containerIds(pod.desired.uid), [id]);
});

test("a transpiled component that was damaged is made anew", async (context) => {
  const root = new TempFolder();
  context.after(() => root[Symbol.dispose]());
  const made = await bench(context, { rootDirectory: root.path });
  const pod = await made.pod("workload.c");
  const run = async (attempt: number): Promise<number> =>
    (await pod.exit((await pod.start({ attempt, args: ["exit", "0"] })).id)).exitCode;
  assert.equal(await run(0), 0);
  const [entry] = readdirSync(root.at("transpiled")).filter((name) => name !== "tmp");
  const at = (name: string): string => root.at("transpiled", entry ?? "", name);
  const transpilations = (): number =>
    made.runtime.log.entries.filter(({ message }) => message === "transpiled a component").length;
  assert.equal(transpilations(), 1);
  appendFileSync(at("component.js"), " ");
  assert.equal(await run(1), 0, "noticed in the life of one agent");
  assert.equal(transpilations(), 2);
  await made.newAgent();
  for (const damage of [
    () => rmSync(at("component.core.wasm")),
    () => writeFileSync(at("component.core2.wasm"), ""),
    () => writeFileSync(at("manifest.json"), "{"),
    () => rmSync(at("manifest.json")),
  ]) {
    damage();
    const adapter = await made.newAgent();
    const again = await WasmPod.create(made.runtime, adapter, {
      name: `again-${transpilations()}`,
      image: imageOf("workload.c"),
    });
    const before = transpilations();
    const container = await again.start({ args: ["exit", "0"] });
    assert.equal((await again.exit(container.id)).exitCode, 0);
    assert.equal(transpilations(), before + 1);
  }
});

test("a component runs as the user of its securityContext, and its log is rotated all the same", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("another user can only be taken by root");
  const { runtime, adapter, pod } = await bench(context);
  const volume = runtime.folder.at("volume");
  mkdirSync(volume, { mode: 0o700 });
  writeFileSync(`${volume}/file`, "for root only", { mode: 0o600 });
  const made = await pod("workload.c", { spec: { securityContext: { runAsUser: 65534, runAsGroup: 65534 } } });
  const refused = await made.start({ args: ["cat", "/data/file"], mounts: [mount("/data", volume)] });
  assert.equal((await made.exit(refused.id)).exitCode, 1);
  assert.match((await made.text(refused, 1))[0] ?? "", /Permission denied/);
  const counting = await made.start({ attempt: 1, args: ["count"] });
  const runner = runtime.runner(counting.id);
  await made.lines(counting, 2);
  assert.match(readFileSync(`/proc/${runner?.pid}/status`, "utf8"), /^Uid:\t65534\t65534\t65534\t65534$/m);
  renameSync(counting.logPath, `${counting.logPath}.old`);
  await adapter.reopenLog(made.desired.uid, counting.id, NEVER);
  await made.lines(counting, 2);
});

test("a runner inherits nothing of the agent's environment, and cannot compile text", async (context) => {
  const { runtime, pod } = await bench(context);
  const made = await pod("workload.c");
  const { id } = await made.start({ args: ["sleep"], env: [{ name: "PATH", value: "of the component" }] });
  const runner = runtime.runner(id);
  const environment = readFileSync(`/proc/${runner?.pid}/environ`, "utf8");
  assert.equal(/(?:PATH|HOME)=/.test(environment), false, environment);
  const command = readFileSync(`/proc/${runner?.pid}/cmdline`, "utf8").split("\0");
  assert.ok(command.includes("--disallow-code-generation-from-strings"));
});
