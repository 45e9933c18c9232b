/**
 * Runs one component in a process of its own: `node … runner <launch.json>`. It outlives the agent and has no
 * connection to it: output goes into the log file, the exit code to the shell that waits for it (`reaper.ts`).
 * There is no handler for any signal: JavaScript cannot run while the component does, so SIGTERM ends the process.
 */
import { closeSync, openSync, readFileSync, readSync, writeSync } from "node:fs";
import { ignore } from "@picolet/protocol/errors.ts";
import type { HostPartContext } from "../shared/board/board.ts";
import {
  loadOptionalModules,
  monotonicMs,
  monotonicNow,
  type OpenedComponent,
  type OptionalModules,
  prepareRun,
  type Run,
  trapOf,
} from "../shared/component/component-run.ts";
import { compiledComponent } from "../shared/component/load-component.ts";
import { startMessage } from "../shared/component/trap-message.ts";
import { LogWriter } from "../shared/host/log-writer.ts";
import { openMounts, StaleMount } from "../shared/host/mounts.ts";
import {
  MAX_END_MESSAGE_LENGTH,
  type RunnerEnd,
  type RunnerLaunch,
  SPARE_ARGUMENT,
  SPARE_FD,
  STALE_WORD,
  STARTED_FD,
  STARTED_MESSAGE,
  switchUser,
  TRAP_EXIT_CODE,
} from "../shared/messages/launch.ts";
import { LoopWaiter } from "../shared/resources/event-loop.ts";
import { BlockingWaiter } from "../shared/resources/polling.ts";

interface RunnerParts extends OptionalModules {
  readonly devices: typeof import("./device-imports.ts") | undefined;
  readonly p3: typeof import("./wasi-p3/async-run.ts") | undefined;
  readonly inference: HostPartContext["inference"];
}
type Finish = (code: number, end?: RunnerEnd, lastWords?: string) => never;

async function main(launchPath: string): Promise<void> {
  const launch = JSON.parse(readFileSync(launchPath, "utf8")) as RunnerLaunch;
  const endFd = openSync(launch.endPath, "w", 0o600);
  const log = new LogWriter(
    launch.logPath,
    Date.now,
    launch.logLimit && { ...launch.logLimit, now: monotonicMs, sleep },
  );
  const finish: Finish = (code, end, lastWords = "") => {
    log.end(lastWords);
    if (end !== undefined) {
      writeSync(endFd, JSON.stringify({ ...end, message: end.message.slice(0, MAX_END_MESSAGE_LENGTH) }));
    }
    return process.exit(code);
  };
  const parts = {
    ...(await loadOptionalModules(launch)),
    devices: launch.board?.addonPath ? await import("./device-imports.ts") : undefined,
    p3: launch.p3 ? await import("./wasi-p3/async-run.ts") : undefined,
    inference: await inferenceLibrary(launch),
  };
  await finishedAs(() => prepare(launch, log, finish, parts), finish);
}

/** Runs the component to its end, whichever that is. */
async function finishedAs(prepared: () => Run | Promise<Run>, finish: Finish): Promise<void> {
  let run: Run;
  try {
    run = await prepared();
  } catch (error) {
    const message = startMessage(error);
    reportToAgent(error instanceof StaleMount ? STALE_WORD : message);
    finish(TRAP_EXIT_CODE, { kind: "start", message });
  }
  reportToAgent(STARTED_MESSAGE);
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
  const trap = trapOf(error);
  return finish(TRAP_EXIT_CODE, trap?.end, trap?.report);
}

function prepare(launch: RunnerLaunch, log: LogWriter, exit: Finish, parts: RunnerParts): Run | Promise<Run> {
  const preopens = openMounts(launch.mounts, launch.emptyDirectory);
  const connection = launch.board && parts.board?.agentConnection(launch.board, after);
  const devices = deviceHost(launch, parts);
  const glue = compiledComponent(launch.component, launch.memoryLimitBytes);
  // All files of root have been read.
  if (launch.identity !== undefined) switchUser(launch.identity);
  const loop = launch.eventLoop ? new LoopWaiter({ now: monotonicNow, after }) : undefined;
  const waiter = loop ?? new BlockingWaiter({ now: monotonicNow, sleep });
  const beforeWait = onceAtRest(releaseMemory);
  const { p3 } = parts;
  const asynchronous: OpenedComponent["asynchronous"] =
    p3 && ((components, init, more) => p3.prepareAsync(glue, { ...components, after }, init, more));
  const { inference } = parts;
  const opened = {
    preopens,
    connection,
    devices,
    inference,
    instantiate: glue(),
    log,
    waiter,
    loop,
    beforeWait,
    exit,
    after,
  };
  return prepareRun(launch, { ...opened, asynchronous, processLimitBytes: launch.memoryLimitBytes }, parts);
}

async function inferenceLibrary({ board }: RunnerLaunch): Promise<HostPartContext["inference"]> {
  if (board?.inferencePath === undefined) return undefined;
  const { loadInferenceLibrary } = await import("../shared/board/nn/library.ts");
  return await loadInferenceLibrary(board.inferencePath);
}

/** Loads the parts for devices while the runner still may. Undefined for a component without devices. */
function deviceHost({ board }: RunnerLaunch, { devices }: RunnerParts): OpenedComponent["devices"] {
  if (devices === undefined || board?.addonPath === undefined) return undefined;
  const host = new devices.DeviceHost(board.addonPath, board.serviceDirectory);
  return (context, interfaces) => (agent) => devices.deviceImports({ ...context, host, agent }, interfaces);
}

function reportToAgent(text: string): void {
  try {
    writeSync(STARTED_FD, text);
    closeSync(STARTED_FD);
  } catch {
    ignore("the agent that started this has ended, and the next one reads the state folder");
  }
}

const sleepCell = new Int32Array(new SharedArrayBuffer(4));

const sleep = (milliseconds: number): void => void Atomics.wait(sleepCell, 0, 0, milliseconds);

function after(milliseconds: number, act: () => void): () => void {
  if (milliseconds === 0) {
    // A timer of Node's takes a millisecond at least.
    const soon = setImmediate(act);
    return () => clearImmediate(soon);
  }
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

/** Garbage of the start is a fifth of the process. Without it the heap stays at that size. */
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
