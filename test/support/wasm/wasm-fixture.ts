/** The conformance suite's fixture for components, with real components in real processes. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type {
  CgroupValue,
  ConformanceFixture,
  Program,
} from "@picolet/runtime-test-kit/conformance/conformance-fixture.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { testComponent } from "./components.ts";
import { WasmRuntime } from "./wasm-runtime.ts";

const WORKLOAD = "localhost/workload:1";
const EXIT_42 = "localhost/exit-42:1";
const NEVER = new AbortController().signal;
/** Long enough for an exit to be seen and handled, short enough for a suite of forty cases. */
const SETTLE_MS = 30;

const CGROUP_FILES: Readonly<Record<CgroupValue, string>> = {
  "cpu.shares": "cpu",
  "cpu.cfs_quota_us": "cpu",
  "memory.limit_in_bytes": "memory",
  "cpuset.cpus": "cpuset",
  "cpuset.mems": "cpuset",
};

/** Components are imported and transpiled once for the whole suite. */
const shared = new TempFolder();
process.once("exit", () => shared[Symbol.dispose]());

const program = (...args: readonly string[]): Program => ({ image: WORKLOAD, command: [], args });

type Kill = (runtime: WasmRuntime, containerId: string, signal: "SIGKILL" | "SIGTERM") => Promise<void>;

export const wasmFixture = (): Promise<ConformanceFixture> =>
  fixture(
    (adapter) => adapter,
    async (runtime, containerId, signal) => {
      const runner = runtime.runner(containerId);
      if (runner === undefined) throw new Error(`container ${containerId} has no runner`);
      process.kill(runner.pid, signal);
    },
  );

/** With all containers of a namespace in one process. A signal for one of them alone is what its host makes of it. */
export const denseFixture = (): Promise<ConformanceFixture> =>
  fixture(inDenseMode, async (runtime, containerId, signal) => {
    const host = runtime.reaper(containerId);
    if (host === undefined) throw new Error(`container ${containerId} has no process`);
    const together = runtime.containersOf(host.pid);
    if (signal === "SIGKILL" && together.length === 1) process.kill(host.pid, "SIGKILL");
    else await runtime.stopInHost(containerId, signal === "SIGKILL" ? 137 : 143);
  });

const MODE = { "wasm.picolet.io/mode": "dense" };

/** The adapter as the suite uses it, with all its pods in that mode. */
function inDenseMode(adapter: WasmAdapter): RuntimeAdapter {
  const annotated = (desired: DesiredPod): DesiredPod => {
    const { pod } = desired;
    return { ...desired, pod: { ...pod, metadata: { ...pod.metadata, annotations: MODE } } };
  };
  const plain = (desired: DesiredPod): DesiredPod => {
    const { annotations: _, ...metadata } = desired.pod.metadata;
    return { ...desired, pod: { ...desired.pod, metadata } };
  };
  const overrides: Partial<RuntimeAdapter> = {
    apply: (pod, action, signal) => adapter.apply(annotated(pod), action, signal),
    async inspect(uid, signal) {
      const observed = await adapter.inspect(uid, signal);
      return { ...observed, manifest: observed.manifest && plain(observed.manifest) };
    },
  };
  return new Proxy<RuntimeAdapter>(adapter, {
    get(_, key) {
      const value = Reflect.get(overrides, key) ?? Reflect.get(adapter, key);
      return typeof value === "function" ? value.bind(adapter) : value;
    },
  });
}

async function fixture(shown: (adapter: WasmAdapter) => RuntimeAdapter, kill: Kill): Promise<ConformanceFixture> {
  const runtime = await WasmRuntime.create({ rootDirectory: shared.path });
  let adapter = runtime.adapter();
  for (const [name, source] of [
    [WORKLOAD, "workload.c"],
    [EXIT_42, "exit-42.wat"],
  ] as const) {
    const isThere = (await adapter.images.status(name, NEVER)) !== undefined;
    if (!isThere) await adapter.images.import(await testComponent(source), name, NEVER);
  }
  return {
    adapter: shown(adapter),
    programs: {
      runForever: program("sleep"),
      exitWith: (code) => (code === 42 ? { image: EXIT_42, command: [], args: [] } : program("exit", String(code))),
      // The command adapter makes 1 of every failure; a code of its own takes a component that asks for it.
      exitCodes: [0, 1, 42],
      printLines: (lines) => program("print", ...lines.flatMap(({ stream, text }) => [stream, text])),
      countForever: program("count"),
      printEnvironment: (name) => program("env", name),
      printFile: (path) => program("cat", path),
    },
    async restartAgent(meanwhile) {
      await adapter[Symbol.asyncDispose]();
      await meanwhile?.();
      adapter = runtime.adapter();
      return shown(adapter);
    },
    killWorkload: (containerId, signal) => kill(runtime, containerId, signal),
    preparePod: (pod) => runtime.preparePod(pod),
    async readCgroup(containerId, value) {
      const path = runtime.cgroupOf(containerId);
      if (path === undefined || runtime.cgroups === undefined) return undefined;
      const text = await runtime.cgroups.read(path, CGROUP_FILES[value], value);
      return text === undefined ? undefined : Number(text);
    },
    async hostFolder(name, content) {
      const folder = runtime.folder.at("host");
      mkdirSync(folder);
      writeFileSync(`${folder}/${name}`, content);
      return folder;
    },
    readLog: async (path) => (existsSync(path) ? readFileSync(path, "utf8") : ""),
    renameLog: async (from, to) => renameSync(from, to),
    settle: () => wait(SETTLE_MS),
    async [Symbol.asyncDispose]() {
      await adapter[Symbol.asyncDispose]();
      await runtime[Symbol.asyncDispose]();
    },
  };
}
