/** Component pods that share a process: real components, in one real process for each namespace. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { KeyvalueService } from "@picolet/agent/store/keyvalue/keyvalue-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { memoryOf } from "../bench/measure/process-usage.ts";
import { fixedPorts } from "../support/unit/machine/fixed-port.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import type { TestComponent } from "../support/wasm/components.ts";
import { mount, type WasmBench, wasmBench } from "../support/wasm/wasm-bench.ts";
import type { Exit, WasmPod, WasmPodOptions, WasmRuntime, WasmRuntimeOptions } from "../support/wasm/wasm-runtime.ts";

const DENSE = { "wasm.picolet.io/mode": "dense" };
/** Real time, and only when something is broken. */
const PATIENCE_MS = 30_000;
const NEVER = new AbortController().signal;

interface Started {
  readonly pod: WasmPod;
  readonly container: ObservedContainer;
}

interface Bench extends WasmBench {
  dense(name: string, options?: Partial<WasmPodOptions>, component?: TestComponent): Promise<WasmPod>;
  /** A pod that does this. */
  start(name: string, args: readonly string[], options?: Partial<WasmPodOptions>): Promise<Started>;
}

async function bench(context: TestContext, options: WasmRuntimeOptions = {}): Promise<Bench> {
  const made = await wasmBench(context, options);
  const dense = (name: string, more: Partial<WasmPodOptions> = {}, component: TestComponent = "workload.c") =>
    made.pod(component, { name, ...more, annotations: { ...DENSE, ...more.annotations } });
  return Object.assign(made, {
    dense,
    async start(name: string, args: readonly string[], more: Partial<WasmPodOptions> = {}): Promise<Started> {
      const pod = await dense(name, more);
      return { pod, container: await pod.start({ args }) };
    },
  });
}

const pidOf = (runtime: WasmRuntime, { container }: Started): number =>
  runtime.reaper(container.id)?.pid ?? assert.fail("it is in a process");

const filesOf = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

async function assertRuns({ pod, container }: Started): Promise<void> {
  const { state } = await pod.container(({ id }) => id === container.id);
  assert.deepEqual(state, container.state);
}

/** The end of the pod's newest container, as this adapter sees it. */
async function ended(adapter: WasmAdapter, uid: PodUid): Promise<Exit> {
  const enough = AbortSignal.timeout(PATIENCE_MS);
  const hints = adapter.hints(enough)[Symbol.asyncIterator]();
  for (let next = hints.next(); ; next = hints.next()) {
    const state = (await adapter.inspect(uid, NEVER)).containers[0]?.state;
    if (state?.kind === "exited") return state;
    assert.notEqual((await next).done, true, "gave up waiting for a hint");
  }
}

test("components of several parts share a process, and neither they nor those of JavaScript meet another's context", async (context) => {
  const made = await bench(context);
  const pods = await Promise.all([
    ...["one", "two", "three"].map((name) => made.dense(name, {}, "parts.wat")),
    made.dense("script", {}, "calls.js"),
  ]);
  const containers = await Promise.all(pods.map((pod) => pod.start({ args: ["wait", "2000"] })));
  const exits = await Promise.all(pods.map((pod, at) => pod.exit((containers[at] as ObservedContainer).id)));
  for (const { exitCode, reason, message } of exits) assert.deepEqual([exitCode, reason], [0, "Completed"], message);
});

test("pods of one namespace share a process, and each ends by itself", async (context) => {
  const made = await bench(context);
  const sleeper = await made.start("sleeper", ["sleep"]);
  const elsewhere = await made.start("other", ["sleep"], { namespace: "other" });
  const somebody = await made.start("somebody", ["sleep"], { spec: { securityContext: { runAsUser: 1234 } } });
  const printer = await made.start("printer", ["print", "stdout", "one", "stderr", "two"]);
  const exit = await printer.pod.exit(printer.container.id);
  assert.deepEqual([exit.exitCode, exit.reason], [0, "Completed"], exit.message);
  assert.deepEqual(await printer.pod.text(printer.container, 2), ["one", "two"]);
  const [mine, ...others] = [sleeper, elsewhere, somebody].map((each) => pidOf(made.runtime, each));
  assert.equal(pidOf(made.runtime, printer), mine);
  assert.equal(new Set([mine, ...others]).size, 3, "another namespace, another user: another process");
  await sleeper.pod.stop(sleeper.container.id, seconds(30));
  assert.equal((await sleeper.pod.exit(sleeper.container.id)).exitCode, 143);
  assert.match(made.runtime.warnings.join(), /LessIsolated: its components share one process/);
});

test("the mode is dense or isolated, and nothing else", async (context) => {
  const made = await bench(context);
  const wrong = await made.pod("workload.c", { annotations: { "wasm.picolet.io/mode": "thick" } });
  await assert.rejects(wrong.start({ args: ["sleep"] }), {
    reason: "CreateContainerConfigError",
    message: /wasm\.picolet\.io\/mode: "thick" is none of isolated, dense/,
  });
  const cpuset = { cpus: "0", mems: "", exclusive: true };
  await assert.rejects((await made.dense("alone")).start({ args: ["sleep"], cpuset }), {
    reason: "CreateContainerConfigError",
    message: /cannot have CPUs of its own.*: take the annotation wasm\.picolet\.io\/mode: isolated/,
  });
});

test("however one of a hundred ends, the others are as they were; so they are for the next agent; all end with their process", async (context) => {
  const made = await bench(context);
  const { runtime } = made;
  const sleepers: Started[] = [];
  for (let index = 0; index < 97; index += 1) sleepers.push(await made.start(`sleeper-${index}`, ["sleep"]));
  const pid = pidOf(runtime, sleepers[0] ?? assert.fail());
  const held = filesOf(pid);
  const limits = { container: { resources: { limits: { memory: "4Mi" } } } };
  const ends = [
    { args: ["trap"], code: 1, message: /^wasm trap: unreachable/ },
    { args: ["exit", "3"], code: 1, message: /^$/ },
    { args: ["overflow"], code: 1, message: /^wasm trap: (call stack exhausted|memory access out of bounds)/ },
    { args: ["allocate"], code: 0, message: /^$/, options: limits },
  ];
  for (const { args, code, message, options } of ends) {
    const one = await made.start(`ends-by-${args[0]}`, args, options);
    const exit = await one.pod.exit(one.container.id);
    assert.equal(exit.exitCode, code, `${args[0]}: ${exit.message}`);
    assert.match(exit.message, message);
    const said = exit.message === "" ? [] : [`picolet: ${exit.message}`];
    const log = await one.pod.text(one.container, said.length);
    assert.deepEqual(
      log.filter((line) => line.startsWith("picolet: ")),
      said,
      "a trap is in its log",
    );
    assert.equal(pidOf(runtime, one), pid);
  }
  for (const each of sleepers) await assertRuns(each);
  await until("nothing to be held for those that ended", () => filesOf(pid) <= held);
  const { rssMiB } = memoryOf(pid);
  assert.ok(rssMiB < 160, `${rssMiB} MiB`);

  await made.newAgent();
  const seen = await Promise.all(sleepers.map(({ pod }) => made.adapter.inspect(pod.desired.uid, NEVER)));
  assert.deepEqual(
    seen.map(({ containers }) => containers[0]?.state),
    sleepers.map(({ container }) => container.state),
  );
  const next = await made.start("of-the-next-agent", ["sleep"]);
  assert.equal(pidOf(runtime, next), pid, "it goes on with the same process");

  process.kill(pid, "SIGKILL");
  const exits = await Promise.all(seen.map(({ uid }) => ended(made.adapter, uid)));
  assert.deepEqual(new Set(exits.map(({ exitCode, reason }) => `${exitCode} ${reason}`)), new Set(["137 Error"]));
  const again = await made.start("afterwards", ["sleep"]);
  assert.notEqual(pidOf(runtime, again), pid);
});

test("a component that never lets go of the process is found, and the others are not charged for it", async (context) => {
  const made = await bench(context, { limits: { denseTurnTimeout: millis(500) } });
  const sleeper = await made.start("sleeper", ["sleep"]);
  const waiting = await made.dense("waiting");
  const charged = await waiting.start({ args: ["sleep"], backoff: seconds(40) });
  const spinner = await made.start("spinner", ["spin"]);
  const exit = await spinner.pod.exit(spinner.container.id);
  assert.deepEqual([exit.exitCode, exit.reason], [137, "Error"]);
  assert.match(exit.message, /^it computed for 0\.5 s without letting others of its process run/);
  const other = await sleeper.pod.exit(sleeper.container.id);
  assert.equal(other.exitCode, 137);
  assert.match(other.message, /ended for what another container of its namespace did/);
  await waiting.exit(charged.id);
  assert.equal((await waiting.container(() => true)).backoff, 0, "it starts again at once");
  assert.equal((await made.start("afterwards", ["sleep"])).container.state.kind, "running");
});

test("a flood of output keeps nobody else from running, and can be stopped", async (context) => {
  const made = await bench(context);
  const flood = await made.start("flood", ["flood"]);
  const printer = await made.start("printer", [
    "print",
    ...Array.from({ length: 50 }, (_, n) => ["stdout", `line ${n}`]).flat(),
  ]);
  assert.equal((await printer.pod.exit(printer.container.id)).exitCode, 0);
  await flood.pod.stop(flood.container.id, seconds(30));
  assert.equal((await flood.pod.exit(flood.container.id)).exitCode, 143);
});

test("what the process is seen to use is each container's own", async (context) => {
  const made = await bench(context);
  const sleeper = await made.start("sleeper", ["sleep"]);
  const busy = await made.start("busy", ["flood"]);
  await busy.pod.lines(busy.container, 10_000);
  const usage = await made.adapter.sharedUsage(NEVER);
  const [mine, other] = [usage.get(busy.container.id), usage.get(sleeper.container.id)];
  assert.ok(mine && other);
  assert.ok(mine.cpuNanoseconds > other.cpuNanoseconds, `${mine.cpuNanoseconds} and ${other.cpuNanoseconds} ns`);
  // The kubelet's summary has 64-bit integers, and a reader refuses the whole document if one is anything else.
  for (const each of [mine, other])
    assert.ok(
      Number.isSafeInteger(each.cpuNanoseconds) && Number.isSafeInteger(each.memoryBytes),
      JSON.stringify(each),
    );
  assert.ok(other.memoryBytes >= 65_536, `${other.memoryBytes} bytes`);
});

test("each sees its own volumes, also those that the node mounts while the process runs", async (context) => {
  const made = await bench(context);
  const { runtime } = made;
  await made.start("first", ["sleep"]);
  const [early, late] = [runtime.folder.at("early"), runtime.folder.at("late")];
  for (const folder of [early, late]) mkdirSync(folder);
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", late]);
  using _ = { [Symbol.dispose]: () => execFileSync("umount", ["-l", late]) };
  writeFileSync(`${early}/file`, "early\n");
  writeFileSync(`${late}/file`, "late\n");
  chmodSync(early, 0o755);
  for (const [name, folder] of Object.entries({ early, late })) {
    const pod = await made.dense(`reads-${name}`);
    const container = await pod.start({ args: ["cat", "/data/file"], mounts: [mount("/data", folder, true)] });
    assert.equal((await pod.exit(container.id)).exitCode, 0);
    assert.deepEqual(await pod.text(container, 1), [name]);
    const stranger = await made.start(`without-${name}`, ["cat", "/data/file"]);
    assert.equal((await stranger.pod.exit(stranger.container.id)).exitCode, 1);
  }
  // Nothing of what has ended is held: the node can take it away.
  execFileSync("umount", [late]);
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", late]);
});

test("an empty process goes, and a dead agent's folders with it", async (context) => {
  const made = await bench(context);
  const { runtime } = made;
  const one = await made.start("one", ["sleep"]);
  const pid = pidOf(runtime, one);
  await made.adapter[Symbol.asyncDispose]();
  process.kill(pid, "SIGKILL");
  const adapter = await made.newAgent();
  assert.equal((await ended(adapter, one.pod.desired.uid)).exitCode, 137);
  for (const { id } of (await adapter.inspect(one.pod.desired.uid, NEVER)).sandboxes) {
    await adapter.apply(one.pod.desired, { kind: "removeSandbox", sandboxId: id }, NEVER);
  }
  while (readdirSync(runtime.state.denseDirectory).length > 0) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(existsSync(`${runtime.state.path}/pods/${one.pod.desired.uid}`), false);
});

test("what the kernel ends the process for, its containers are told to have ended for", async (context) => {
  const made = await bench(context);
  const { runtime } = made;
  if (runtime.cgroups?.usable !== true) return context.skip("no cgroups here");
  const limits = { container: { resources: { limits: { memory: "100Mi" } } } };
  const sleeper = await made.start("sleeper", ["sleep"], limits);
  const volume = runtime.folder.at("volume");
  mkdirSync(volume);
  const grower = await made.dense("grower", limits, "script.c");
  const args = ["wait", "/data/go", "grow", "90"];
  const growing = await grower.start({ args, mounts: [mount("/data", volume)] });
  const cgroup = runtime.denseCgroupOf(sleeper.container.id) ?? assert.fail("it has a cgroup");
  const limit = await runtime.cgroups.value(cgroup, "memoryLimitBytes");
  assert.equal(limit, (2 * 100 + 24 + 2) * 1024 * 1024, "the sum of both, and the process itself");
  await runtime.cgroups.create(cgroup, { memoryLimitBytes: 48 * 1024 * 1024 });
  writeFileSync(`${volume}/go`, "now");
  for (const [pod, { id }] of [
    [grower, growing],
    [sleeper.pod, sleeper.container],
  ] as const) {
    const { exitCode, reason } = await pod.exit(id);
    assert.deepEqual([exitCode, reason], [137, "OOMKilled"]);
  }
});

test("a process has room for all that are on their way into it before one of them runs, and gives it back", async (context) => {
  const made = await bench(context);
  const { runtime } = made;
  const { cgroups } = runtime;
  if (cgroups?.usable !== true) return context.skip("no cgroups here");
  const roomFor = (count: number): number => (count * (10 + 1) + 24) * 1024 * 1024;
  const limits = { container: { resources: { limits: { memory: "10Mi" } } } };
  const limitOf = ({ container }: Started): Promise<number | undefined> => {
    const cgroup = runtime.denseCgroupOf(container.id) ?? assert.fail("it has a cgroup");
    return cgroups.value(cgroup, "memoryLimitBytes");
  };
  const NAMES = ["a", "b", "c", "d", "e", "f", "g", "h"];
  const starts = NAMES.map(async (name) => {
    const started = await made.start(name, ["sleep"], limits);
    assert.equal(await limitOf(started), roomFor(NAMES.length));
    return started;
  });
  const [first = assert.fail("none has started")] = await Promise.all(starts);
  const short = await made.dense("short", limits, "exit-42.wat");
  await short.exit((await short.start()).id);
  await until("what has ended is given back", async () => (await limitOf(first)) === roomFor(NAMES.length));
});

/**
 * A container's resources are closed a moment after its end is reported, sockets with the next turn of the event loop.
 */
async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const enough = AbortSignal.timeout(PATIENCE_MS);
  while (!(await holds())) {
    assert.ok(!enough.aborted, `gave up waiting for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test("whatever a container held of the process is closed when it ends: files, sockets, ports, its way to the agent", async (context) => {
  const folder = new TempFolder();
  const ports = { clock: systemClock, log: new RecordedLog(), namedBy: () => [], isClockSet: () => true };
  const keyvalue = new KeyvalueService(
    { ...ports, onDamage: () => assert.fail("damaged") },
    { path: folder.at("keyvalue.db") },
  );
  const made = await bench(context, { services: { keyvalue: () => keyvalue } });
  context.after(() => {
    keyvalue[Symbol.dispose]();
    folder[Symbol.dispose]();
  });
  const { runtime } = made;
  const first = await fixedPorts(2);
  const second = first + 1;
  const network = { "wasm.picolet.io/network": `listen tcp:${first}-${first}; listen tcp:${second}` };
  const sleeper = await made.start("sleeper", ["sleep"], { annotations: network });
  const pid = pidOf(runtime, sleeper);
  const held = filesOf(pid);

  const volume = runtime.folder.at("volume");
  mkdirSync(volume);
  chmodSync(volume, 0o777);
  const hoarder = await made.dense("hoarder", { annotations: network }, "hoards.c");
  const files = await hoarder.start({ args: ["files"], mounts: [mount("/data", volume)] });
  assert.equal((await hoarder.exit(files.id)).exitCode, 0);
  await until("its files to be closed", () => filesOf(pid) <= held);

  const listener = await made.dense("listener", { annotations: network }, "net.c");
  const echo = await listener.start({ args: ["echo", String(first), "2"] });
  const socket = await connected(first);
  socket.write("hello");
  await once(socket, "data");
  await listener.stop(echo.id);
  await once(socket.resume(), "close");
  await until("the sockets to be closed", () => filesOf(pid) <= held);

  for (const turn of [0, 1]) {
    const server = await made.dense(
      `server-${turn}`,
      { annotations: { ...network, "wasm.picolet.io/http": `port=${second}` } },
      "http-server.c",
    );
    const serving = await server.start();
    assert.equal(pidOf(runtime, { pod: server, container: serving }), pid);
    (await connected(second)).destroy();
    await server.stop(serving.id);
    await until("the port to be free", () => filesOf(pid) <= held);
  }

  const annotations = {
    ...network,
    "wasm.picolet.io/interfaces": "keyvalue, config, logging, node-info",
    "wasm.picolet.io/keyvalue": "b=1Mi",
  };
  const asking = await made.dense("asking", { annotations }, "board.c");
  const waits = await asking.start({ args: ["open", "b", "set", "key", "value", "hold"] });
  await asking.lines(waits, 1);
  assert.ok(filesOf(pid) > held);
  await asking.stop(waits.id);
  await until("its connection to be closed", () => filesOf(pid) <= held);
  await assertRuns(sleeper);
});

async function connected(port: number): Promise<Socket> {
  for (;;) {
    const socket = connect(port, "127.0.0.1");
    try {
      await once(socket, "connect");
      return socket;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}
