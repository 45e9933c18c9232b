/** One transpilation in a child process, with limits on its time and memory. */
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { setPriority } from "node:os";
import { PicoletError } from "../../../protocol/errors.ts";
import { type Clock, type Millis, millis } from "../../../protocol/ports.ts";
import type { CgroupPort } from "../../contract/cgroups.ts";
import { checkCancelled } from "../cancellation.ts";
import { SMALL_PROCESS_ENVIRONMENT, TRANSPILER_FLAGS } from "../node-flags.ts";
import type { TranspileAnswer, TranspileRequest } from "./request.ts";

export interface TranspileChildComponents {
  readonly clock: Pick<Clock, "sleep">;
  readonly cgroups: CgroupPort | undefined;
}

export interface TranspileChildInit {
  readonly nodePath: string;
  readonly transpilePath: string;
  readonly timeout: Millis;
  readonly memoryLimitBytes: number;
  /** cgroupfs path for it; undefined: its memory is only watched. */
  readonly cgroupPath: string | undefined;
}

/** Of its answer and of its complaints; more is cut off. */
const MAX_OUTPUT_BYTES = 65_536;
/** How often memory is looked at where no cgroup limits it; a transpilation takes a fraction of a second to some. */
const WATCH_INTERVAL = millis(250);
/** Everything else on the board comes first. */
const NICENESS = 10;

/** @returns the child's greatest resident size, KiB. */
export async function runTranspileChild(
  components: TranspileChildComponents,
  init: TranspileChildInit,
  request: TranspileRequest,
  signal: AbortSignal,
): Promise<number> {
  checkCancelled(signal, "the transpilation");
  const child = spawn(init.nodePath, [...TRANSPILER_FLAGS, init.transpilePath, JSON.stringify(request)], {
    cwd: "/",
    env: SMALL_PROCESS_ENVIRONMENT,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = endOf(child);
  // It may fail while the limits are being set; whoever awaits it below is told then.
  ended.catch(() => undefined);
  using limits = new ChildLimits(components, init, child, signal);
  await limits.apply();
  const { code, stdout, stderr } = await ended;
  checkCancelled(signal, "the transpilation");
  const exceeded = await limits.exceeded();
  if (exceeded !== undefined) throw exceeded;
  const answer = parseAnswer(stdout);
  if (answer === undefined) {
    throw new PicoletError(
      "failed",
      `the transpiler ended with ${code ?? "a signal"} and no answer: ${stderr.trim()}`,
      {
        retryable: true,
      },
    );
  }
  if (answer.kind === "done") return answer.peakRssKiB;
  throw new PicoletError(answer.code, answer.message, { retryable: answer.code === "failed" });
}

class ChildLimits implements Disposable {
  readonly #components: TranspileChildComponents;
  readonly #init: TranspileChildInit;
  readonly #child: ChildProcess;
  readonly #done = new AbortController();
  #exceeded: PicoletError | undefined;
  #cgroupPath: string | undefined;

  constructor(
    components: TranspileChildComponents,
    init: TranspileChildInit,
    child: ChildProcess,
    signal: AbortSignal,
  ) {
    this.#components = components;
    this.#init = init;
    this.#child = child;
    const kill = (): void => void child.kill("SIGKILL");
    signal.addEventListener("abort", kill, { once: true });
    this.#done.signal.addEventListener("abort", () => signal.removeEventListener("abort", kill), { once: true });
    child.once("close", () => this.#done.abort());
  }

  async apply(): Promise<void> {
    const { timeout } = this.#init;
    void this.#after(timeout, () => {
      this.#end("deadline_exceeded", `the transpilation took longer than ${timeout / 1000} s`);
    });
    const { pid } = this.#child;
    if (pid === undefined) return;
    ignoringGone(() => setPriority(pid, NICENESS));
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
    ignoringGone(() => {
      for (const file of created.procsFiles) writeFileSync(file, String(pid));
    });
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
    const mebibytes = Math.round(this.#init.memoryLimitBytes / 1_048_576);
    return new PicoletError("resource_exhausted", `transpiling the component takes more than ${mebibytes} MiB`);
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
    this.#done.abort();
  }
}

interface ChildEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function endOf(child: ChildProcess): Promise<ChildEnd> {
  const stdout = collected(child.stdout);
  const stderr = collected(child.stderr);
  return new Promise((resolve, reject) => {
    child.once("error", (cause) => {
      reject(new PicoletError("failed", "cannot start the transpiler", { cause, retryable: true }));
    });
    child.once("close", (code) => resolve({ code, stdout: stdout(), stderr: stderr() }));
  });
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

function parseAnswer(stdout: string): TranspileAnswer | undefined {
  const line = stdout.trim().split("\n").at(-1) ?? "";
  try {
    return JSON.parse(line) as TranspileAnswer;
  } catch {
    return undefined;
  }
}

/** 0 when it is gone. */
function residentBytes(pid: number): number {
  try {
    const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    return Number(kibibytes ?? 0) * 1024;
  } catch {
    return 0;
  }
}

/** The child may have ended before it was changed. */
function ignoringGone(change: () => void): void {
  try {
    change();
  } catch {
    // Then there is nothing left to limit.
  }
}
