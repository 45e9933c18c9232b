/** A program of this adapter that runs once and ends, as a child process with limits on its time and memory. */
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { setPriority } from "node:os";
import { checkCancelled, onAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, type Millis, millis } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import { SMALL_PROCESS_ENVIRONMENT } from "./node-flags.ts";

export interface OneOffChildComponents {
  readonly clock: Pick<Clock, "sleep">;
  readonly cgroups: CgroupPort | undefined;
}

export interface OneOffChildInit {
  readonly nodePath: string;
  readonly timeout: Millis;
  readonly memoryLimitBytes: number;
  /** cgroupfs path for it; undefined: its memory is only watched. */
  readonly cgroupPath: string | undefined;
}

/** What is run. */
export interface OneOffProgram {
  /** Node's flags, the script and its arguments. */
  readonly command: readonly string[];
  /** The program's name, for messages: `the transpiler`. */
  readonly name: string;
  /** The program's task, for messages: `transpiling the component`. */
  readonly task: string;
  /** Its standard input, which ends only with the agent or the call; missing: it has none. */
  readonly input?: string | undefined;
  /** Called for each line that it writes, the answer included. */
  readonly onLine?: ((line: string) => void) | undefined;
}

/** Bounds its answer and its error output; more is cut off. */
const MAX_OUTPUT_BYTES = 65_536;
/** How often memory is sampled where no cgroup limits it. */
const WATCH_INTERVAL = millis(250);
/** Everything else on the board comes first. */
const NICENESS = 10;
/** The agent's own score, which is the last to be killed, would be inherited. */
const FIRST_TO_BE_KILLED = "1000";

/**
 * @returns the last line of its output, which is its answer.
 * @throws `failed` when there is none, `deadline_exceeded`, `resource_exhausted` for more memory than it may have.
 */
export async function runOneOffChild(
  components: OneOffChildComponents,
  init: OneOffChildInit,
  program: OneOffProgram,
  signal: AbortSignal,
): Promise<unknown> {
  checkCancelled(signal, program.task);
  const child = spawn(init.nodePath, program.command, {
    cwd: "/",
    env: SMALL_PROCESS_ENVIRONMENT,
    stdio: [program.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  const ended = endOf(child, program);
  ended.catch(ignore("it is awaited once the limits are set"));
  using limits = new ChildLimits(components, init, program, child, signal);
  try {
    await limits.apply();
  } catch (error) {
    // A child must not run without its limits.
    child.kill("SIGKILL");
    await ended.catch(ignore("the limits' failure is reported"));
    await limits.exceeded().catch(ignore("the limits' failure is reported"));
    throw error;
  }
  // Written last, so that nothing begins without limits.
  child.stdin?.on("error", ignore("a child that has ended takes no input")).write(`${program.input}\n`);
  const { code, stdout, stderr } = await ended;
  // First, for it takes the cgroup away too.
  const exceeded = await limits.exceeded();
  checkCancelled(signal, program.task);
  if (exceeded !== undefined) throw exceeded;
  const answer = parseAnswer(stdout);
  if (answer !== undefined) return answer;
  const complaint = `${program.name} ended with ${code ?? "a signal"} and no answer: ${stderr.trim()}`;
  throw new PicoletError("failed", complaint, { retryable: true });
}

class ChildLimits implements Disposable {
  readonly #components: OneOffChildComponents;
  readonly #init: OneOffChildInit;
  readonly #task: string;
  readonly #child: ChildProcess;
  readonly #done = new AbortController();
  readonly #kill: Disposable;
  #exceeded: PicoletError | undefined;
  #cgroupPath: string | undefined;

  constructor(
    components: OneOffChildComponents,
    init: OneOffChildInit,
    { task }: OneOffProgram,
    child: ChildProcess,
    signal: AbortSignal,
  ) {
    this.#components = components;
    this.#init = init;
    this.#task = task;
    this.#child = child;
    this.#kill = onAbort(signal, () => child.kill("SIGKILL"));
    child.once("close", () => this[Symbol.dispose]());
  }

  async apply(): Promise<void> {
    const { timeout } = this.#init;
    void this.#after(timeout, () => {
      this.#end("deadline_exceeded", `${this.#task} took longer than ${timeout / 1000} s`);
    });
    const { pid } = this.#child;
    if (pid === undefined) return;
    ignoringGone(() => setPriority(pid, NICENESS));
    ignoringGone(() => writeFileSync(`/proc/${pid}/oom_score_adj`, FIRST_TO_BE_KILLED));
    if (!(await this.#joinCgroup(pid))) void this.#watchMemory(pid);
  }

  /** Why the child was ended, if it was. */
  async exceeded(): Promise<PicoletError | undefined> {
    const path = this.#cgroupPath;
    if (path === undefined) return this.#exceeded;
    const kills = (await this.#components.cgroups?.oomKills(path)) ?? 0;
    await this.#components.cgroups?.remove(path);
    return this.#exceeded ?? (kills > 0 ? this.#tooLarge() : undefined);
  }

  async #joinCgroup(pid: number): Promise<boolean> {
    const { cgroupPath, memoryLimitBytes } = this.#init;
    if (cgroupPath === undefined) return false;
    const created = await this.#components.cgroups?.create(cgroupPath, { memoryLimitBytes });
    if (created === undefined) return false;
    this.#cgroupPath = cgroupPath;
    try {
      for (const file of created.procsFiles) writeFileSync(file, String(pid));
    } catch (cause) {
      // It has ended; of any other reason it would run without limits.
      if (errnoOf(cause) !== "ESRCH") throw new PicoletError("failed", `cannot limit ${cgroupPath}`, { cause });
    }
    return true;
  }

  async #watchMemory(pid: number): Promise<void> {
    while (!this.#done.signal.aborted) {
      if (residentBytes(pid) > this.#init.memoryLimitBytes) {
        this.#exceeded = this.#tooLarge();
        this.#child.kill("SIGKILL");
      }
      await this.#after(WATCH_INTERVAL, () => undefined);
    }
  }

  #tooLarge(): PicoletError {
    const mebibytes = Math.round(this.#init.memoryLimitBytes / MEBIBYTE);
    return new PicoletError("resource_exhausted", `${this.#task} takes more than ${mebibytes} MiB`);
  }

  #end(code: "deadline_exceeded", message: string): void {
    this.#exceeded = new PicoletError(code, message, { retryable: true });
    this.#child.kill("SIGKILL");
  }

  async #after(duration: Millis, act: () => void): Promise<void> {
    try {
      await this.#components.clock.sleep(duration, this.#done.signal);
    } catch {
      // The child has ended.
      return;
    }
    act();
  }

  [Symbol.dispose](): void {
    this.#kill[Symbol.dispose]();
    this.#done.abort();
  }
}

interface ChildEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function endOf(child: ChildProcess, { name, onLine }: OneOffProgram): Promise<ChildEnd> {
  const stdout = lastLine(child.stdout, onLine);
  const stderr = collected(child.stderr);
  return new Promise((resolve, reject) => {
    child.once("error", (cause) => {
      reject(new PicoletError("failed", `cannot start ${name}`, { cause, retryable: true }));
    });
    child.once("close", (code) => resolve({ code, stdout: stdout(), stderr: stderr() }));
  });
}

/** The last one that was written whole. One longer than the limit is none. */
function lastLine(stream: NodeJS.ReadableStream | null, onLine: OneOffProgram["onLine"]): () => string {
  let last = "";
  let rest = "";
  stream?.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = (lines.pop() ?? "").slice(0, MAX_OUTPUT_BYTES);
    for (const line of lines) onLine?.(line);
    last = lines.at(-1) ?? last;
  });
  return () => last;
}

function collected(stream: NodeJS.ReadableStream | null): () => string {
  const chunks: Buffer[] = [];
  let size = 0;
  stream?.on("data", (chunk: Buffer) => {
    if (size < MAX_OUTPUT_BYTES) chunks.push(chunk.subarray(0, MAX_OUTPUT_BYTES - size));
    size += chunk.length;
  });
  return () => Buffer.concat(chunks).toString("utf8");
}

/** Undefined for what is no JSON. */
export function parseAnswer(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/** 0 when it is gone. */
function residentBytes(pid: number): number {
  try {
    const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    return Number(kibibytes ?? 0) * KIBIBYTE;
  } catch {
    return 0;
  }
}

/** The child may have ended before it was changed. */
function ignoringGone(change: () => void): void {
  try {
    change();
  } catch {
    ignore("then there is nothing left to limit");
  }
}
