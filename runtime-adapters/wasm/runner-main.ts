/**
 * Runs one component in a process of its own: `node … runner <launch.json>`. It outlives the agent and has no
 * connection to it: output goes into the log file, the exit code to the shell that waits for it (`reaper.ts`).
 * There is no handler for any signal: JavaScript cannot run while the component does, so SIGTERM ends the process.
 */
import { closeSync, openSync, readFileSync, readSync, writeSync } from "node:fs";
import { describeError, PicoletError } from "../../protocol/errors.ts";
import type { BoardInterface } from "../contract/board-services.ts";
import type { ServeOptions } from "./grants/http-options.ts";
import { NetworkPolicy } from "./grants/network-policy.ts";
import type { AgentCalls } from "./host/board/agent-calls.ts";
import { LoopWaiter, suspendableInstantiate } from "./host/event-loop.ts";
import { type HostComponents, type HostInit, hostImports, type Imports } from "./host/host.ts";
import { LogWriter } from "./host/log-writer.ts";
import { openMounts, StaleMount } from "./host/mounts.ts";
import { ownAddresses } from "./host/own-addresses.ts";
import { BlockingWaiter, type Waiter } from "./host/polling.ts";
import type { StreamContext } from "./host/streams.ts";
import {
  type Identity,
  MAX_END_MESSAGE_LENGTH,
  type RunnerEnd,
  type RunnerLaunch,
  SPARE_ARGUMENT,
  SPARE_FD,
  STALE_WORD,
  STARTED_FD,
  STARTED_WORD,
  TRAP_EXIT_CODE,
} from "./launch.ts";
import { loadComponent } from "./load-component.ts";
import type { ServeComponents } from "./serving/serve-component.ts";

/** Runs the component to its end. On the event loop the promise is of its outcome, otherwise it has ended on return. */
type Run = () => undefined | Promise<"ok" | "err">;
/** What only some components need. */
interface Parts {
  readonly sockets: typeof import("./host/sockets/sockets.ts") | undefined;
  readonly board: typeof import("./host/board/board.ts") | undefined;
  readonly devices: typeof import("./host/board/devices/devices.ts") | undefined;
  readonly http: typeof import("./serving/serve-component.ts") | undefined;
}
type Finish = (code: number, end?: RunnerEnd) => never;

const RUN_INTERFACE = "wasi:cli/run@";
const isRun = (coreExport: string): boolean => coreExport.startsWith(RUN_INTERFACE);

async function main(launchPath: string): Promise<void> {
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
  const parts = {
    sockets: launch.network && (await import("./host/sockets/sockets.ts")),
    board: launch.board && (await import("./host/board/board.ts")),
    devices: launch.board?.addonPath ? await import("./host/board/devices/devices.ts") : undefined,
    http: launch.http ? await import("./serving/serve-component.ts") : undefined,
  };
  await finishedAs(() => prepare(launch, log, finish, parts), finish);
}

/** Runs the component to its end, whichever that is. */
async function finishedAs(prepared: () => Run | Promise<Run>, finish: Finish): Promise<void> {
  let run: Run;
  try {
    run = await prepared();
  } catch (error) {
    const message = describeError(error);
    tellAgent(error instanceof StaleMount ? STALE_WORD : message);
    finish(TRAP_EXIT_CODE, { kind: "start", message });
  }
  tellAgent(STARTED_WORD);
  try {
    const outcome = run();
    if (outcome === undefined) finish(0);
    // Nothing is left on the event loop that could ever wake it.
    process.once("beforeExit", () =>
      failed(new WebAssembly.RuntimeError("the component waits for what never comes"), finish),
    );
    outcome.then(
      (result) => finish(result === "ok" ? 0 : 1),
      (error: unknown) => failed(error, finish),
    );
  } catch (error) {
    failed(error, finish);
  }
}

function failed(error: unknown, finish: Finish): never {
  // The component's own `err` result.
  if (error instanceof Error && Object.hasOwn(error, "payload")) return finish(1);
  return finish(TRAP_EXIT_CODE, { kind: "trap", message: trapMessage(error) });
}

/** Everything up to the component's first instruction that is its own. */
function prepare(launch: RunnerLaunch, log: LogWriter, exit: Finish, parts: Parts): Run | Promise<Run> {
  const preopens = openMounts(launch.mounts, launch.emptyDirectory);
  const connection = launch.board && parts.board?.agentConnection(launch.board, after);
  const devices = deviceHost(launch, parts);
  const instantiate = loadComponent(launch.component, launch.memoryLimitBytes);
  // All that belongs to root has been read.
  if (launch.identity !== undefined) become(launch.identity);
  const loop = launch.eventLoop ? new LoopWaiter({ now, after }) : undefined;
  const waiter: Waiter = loop ?? new BlockingWaiter({ now, sleep });
  const policy = launch.network && new NetworkPolicy(launch.network, ownAddresses(now));
  const sockets = (context: StreamContext): Imports | undefined =>
    policy && parts.sockets?.networkImports(context, { policy, timers: { after } });
  const board = (context: StreamContext): Imports | undefined =>
    launch.board &&
    parts.board?.boardImports(
      { ...context, log, preopens, client: connection, devices: devices?.(context, launch.board.interfaces) },
      launch.board,
    );
  const beforeWait = onceAtRest(releaseMemory);
  const components: HostComponents = {
    waiter,
    wallNow: Date.now,
    wallIsSet: () => Date.now() >= launch.timeFloorMs,
    log,
    sockets,
    board,
    exit,
    beforeWait,
  };
  const { args, env, workingDir } = launch;
  const init = { args, env, workingDir, preopens };
  if (launch.serve !== undefined && loop !== undefined) {
    const served = { instantiate, loop, host: components, policy };
    return serving(served, init, launch.serve, parts);
  }
  let outcome: Promise<unknown> | undefined;
  const instance = instantiate(
    hostImports({ ...components, http: parts.http?.clientImports(policy) }, init),
    loop &&
      suspendableInstantiate(loop, isRun, (promise) => {
        outcome = promise;
      }),
  );
  const run = runFunction(instance);
  return () => {
    run();
    return outcome?.then((result) => (result === 0 ? "ok" : "err"));
  };
}

/** For a component that imports devices: loads what they take while the runner still may. */
function deviceHost({ board }: RunnerLaunch, { devices }: Parts) {
  if (devices === undefined || board?.addonPath === undefined) return undefined;
  const host = new devices.DeviceHost(board.addonPath, board.serviceDirectory);
  return (context: StreamContext, interfaces: readonly BoardInterface[]) => (agent: AgentCalls) =>
    devices.deviceImports({ ...context, host, agent }, interfaces);
}

/** Its run never ends by itself. */
async function serving(
  served: Omit<ServeComponents, "onBroken">,
  init: HostInit,
  options: ServeOptions,
  { http }: Parts,
): Promise<Run> {
  const { promise, reject } = Promise.withResolvers<never>();
  await http?.serveComponent({ ...served, onBroken: reject }, init, options);
  served.host.beforeWait();
  return () => promise;
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

const now = (): bigint => process.hrtime.bigint();
const sleep = (milliseconds: number): void => void Atomics.wait(sleepCell, 0, 0, milliseconds);

function after(milliseconds: number, act: () => void): () => void {
  const timer = setTimeout(act, milliseconds);
  return () => clearTimeout(timer);
}

/** The component's first wait is where starting up has ended. */
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

/** A spare: the agent, or its end, wakes it. */
function awaitContainer(): void {
  if (readSync(SPARE_FD, Buffer.alloc(1)) === 0) process.exit(0);
  closeSync(SPARE_FD);
}

if (process.argv[3] === SPARE_ARGUMENT) awaitContainer();
void main(process.argv[2] ?? "launch.json");
