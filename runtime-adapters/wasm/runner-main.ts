/**
 * Runs one component in a process of its own: `node … runner <launch.json>`. It outlives the agent and has no
 * connection to it: output goes into the log file, the exit code to the shell that waits for it (`reaper.ts`).
 * There is no handler for any signal: JavaScript cannot run while the component does, so SIGTERM ends the process.
 */
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import { describeError, PicoletError } from "../../protocol/errors.ts";
import { limitMemories } from "./binary/memory-limits.ts";
import { runConfined } from "./confined-script.ts";
import { type HostComponents, hostImports, type Imports } from "./host/host.ts";
import { LogWriter } from "./host/log-writer.ts";
import { openMounts } from "./host/mounts.ts";
import type { Sleeper } from "./host/polling.ts";
import {
  type Identity,
  MAX_END_MESSAGE_LENGTH,
  type RunnerEnd,
  type RunnerLaunch,
  STARTED_FD,
  STARTED_WORD,
  TRAP_EXIT_CODE,
  type TranspiledComponent,
} from "./launch.ts";

/** What jco's script returns. */
type Instantiate = (getCoreModule: (name: string) => WebAssembly.Module, imports: Imports) => unknown;
type Finish = (code: number, end?: RunnerEnd) => never;

const RUN_INTERFACE = "wasi:cli/run@";

function main(launchPath: string): void {
  const launch = JSON.parse(readFileSync(launchPath, "utf8")) as RunnerLaunch;
  const endFd = openSync(launch.endPath, "w", 0o600);
  const log = new LogWriter(launch.logPath, Date.now);
  const finish: Finish = (code, end) => {
    log.flushUnfinished();
    if (end !== undefined) {
      writeSync(endFd, JSON.stringify({ ...end, message: end.message.slice(0, MAX_END_MESSAGE_LENGTH) }));
    }
    return process.exit(code);
  };
  finishedAs(() => prepare(launch, log, finish), finish);
}

/** Runs the component to its end, whichever that is. */
function finishedAs(prepared: () => () => void, finish: Finish): never {
  let run: () => void;
  try {
    run = prepared();
  } catch (error) {
    const message = describeError(error);
    tellAgent(message);
    return finish(TRAP_EXIT_CODE, { kind: "start", message });
  }
  tellAgent(STARTED_WORD);
  try {
    run();
  } catch (error) {
    // The component's own `err` result.
    if (error instanceof Error && Object.hasOwn(error, "payload")) return finish(1);
    return finish(TRAP_EXIT_CODE, { kind: "trap", message: trapMessage(error) });
  }
  return finish(0);
}

/** Everything up to the component's first instruction that is its own. */
function prepare(launch: RunnerLaunch, log: LogWriter, exit: Finish): () => void {
  const preopens = openMounts(launch.mounts, launch.emptyDirectory);
  const { instantiate, modules } = load(launch.component, launch.memoryLimitBytes);
  if (launch.identity !== undefined) become(launch.identity);
  const components: HostComponents = { sleeper, wallNow: Date.now, log, exit, beforeSleep: onceAtRest(releaseMemory) };
  const { args, env, workingDir } = launch;
  const instance = instantiate(
    (name) => {
      const module = modules.get(name);
      if (module === undefined) throw new PicoletError("corrupt", `cannot find the core module ${name}`);
      return module;
    },
    hostImports(components, { args, env, workingDir, preopens }),
  );
  return runFunction(instance);
}

function load(
  component: TranspiledComponent,
  memoryLimitBytes: number | undefined,
): { readonly instantiate: Instantiate; readonly modules: ReadonlyMap<string, WebAssembly.Module> } {
  const file = (name: string): Buffer => readFileSync(`${component.directory}/${name}`);
  const modules = new Map<string, WebAssembly.Module>();
  for (const { name, memories } of component.modules) {
    const bytes = file(name);
    limitMemories(bytes, memories, memoryLimitBytes);
    modules.set(name, new WebAssembly.Module(bytes));
  }
  // Latin-1 costs half of what two-byte strings do; the transpiler writes nothing else.
  const script = file(component.script).toString("latin1");
  return { instantiate: runConfined(script, component.script) as Instantiate, modules };
}

function runFunction(instance: unknown): () => void {
  for (const [name, exported] of Object.entries(instance as Record<string, Record<string, unknown>>)) {
    const run = name.startsWith(RUN_INTERFACE) ? exported.run : undefined;
    if (typeof run === "function") return () => void run();
  }
  throw new PicoletError("invalid", "the component exports no wasi:cli/run");
}

function become({ uid, gid, groups }: Identity): void {
  process.setgroups?.([...groups]);
  process.setgid?.(gid);
  process.setuid?.(uid);
}

function tellAgent(text: string): void {
  try {
    writeSync(STARTED_FD, text);
    closeSync(STARTED_FD);
  } catch {
    // The agent that started this is gone; the next one looks at the state folder.
  }
}

function trapMessage(error: unknown): string {
  if (error instanceof RangeError) return "wasm trap: call stack exhausted";
  const message = describeError(error);
  return error instanceof WebAssembly.RuntimeError && !message.startsWith("wasm trap")
    ? `wasm trap: ${message}`
    : message;
}

const sleepCell = new Int32Array(new SharedArrayBuffer(4));

const sleeper: Sleeper = {
  now: () => process.hrtime.bigint(),
  sleep: (milliseconds) => void Atomics.wait(sleepCell, 0, 0, milliseconds),
};

/** The component's first sleep is where starting up has ended. */
function onceAtRest(task: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    task();
  };
}

/** What starting up left behind is a fifth of the process; with it gone the heap stays at that size. */
function releaseMemory(): void {
  void globalThis.gc?.({ type: "major", flavor: "last-resort", execution: "sync" });
}

main(process.argv[2] ?? "launch.json");
