/** The conformance suite's fixture for components, with real components in real processes. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import type { CgroupValue, ConformanceFixture, Program } from "../../runtime-adapters/contract/conformance.ts";
import { testComponent } from "./components.ts";
import { TempFolder } from "./temp-folder.ts";
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

export async function wasmFixture(): Promise<ConformanceFixture> {
  const runtime = await WasmRuntime.create({ rootDirectory: shared.path });
  let adapter = runtime.adapter();
  await adapter.images.import(await testComponent("workload.c"), WORKLOAD, NEVER);
  await adapter.images.import(await testComponent("exit-42.wat"), EXIT_42, NEVER);
  return {
    adapter,
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
      return adapter;
    },
    async killWorkload(containerId, signal) {
      const runner = runtime.runner(containerId);
      if (runner === undefined) throw new Error(`container ${containerId} has no runner`);
      process.kill(runner.pid, signal);
    },
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
