/**
 * What is known of pods, in a folder meant for memory (`/run/…`):
 *
 *     boot_id                              of the boot that everything here is from
 *     empty/                               an empty directory
 *     jail/                                mount points of every runner's jail (`adapter/isolation/jail-folder.ts`)
 *     services/                            the socket on which runners ask the agent
 *     dense/<process>/                     of processes of several containers (`adapter/dense/process-folder.ts`)
 *     spares/                              what the Node of spare runners complains of (`adapter/runners/spare-pool.ts`)
 *     exits/<container>                    exit code, by the container's reaper
 *     pods/<uid>/sandbox-<attempt>.json    SandboxFile
 *     pods/<uid>/sandbox-<attempt>.stopped the sandbox has been stopped
 *     pods/<uid>/<container>/              container.json (ContainerFile), launch.json, mounts (of its jail, fstab(5)),
 *                                          volumes/ (mount points), reaper, runner, end, fatal (what the runner's
 *                                          Node complained of), exited.json (ExitedState)
 *
 * An agent may die between any two writes. Whole files appear by rename; a container folder without `container.json`
 * was never more than begun and is removed. Calls are synchronous: the files are small and in memory, and so nothing
 * comes in between.
 */
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { MAX_END_BYTES, MAX_END_MESSAGE_LENGTH, type RunnerLaunch } from "../../shared/messages/launch.ts";
import { type ProcessId, parseProcessId } from "./process-id.ts";
import { parseExitCode } from "./reaper.ts";
import type { ContainerFile, ExitedState, SandboxFile } from "./state-files.ts";
import { readUntrusted, readUntrustedFields } from "./untrusted-file.ts";

/** Bounds Node's own error output; a heap that is too small writes some KiB. */
const MAX_FATAL_BYTES = 4096;

export class StateFolder {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  get emptyDirectory(): string {
    return `${this.path}/empty`;
  }

  get jailDirectory(): string {
    return `${this.path}/jail`;
  }

  get servicesDirectory(): string {
    return `${this.path}/services`;
  }

  get sparesDirectory(): string {
    return `${this.path}/spares`;
  }

  get denseDirectory(): string {
    return `${this.path}/dense`;
  }

  get exitsDirectory(): string {
    return `${this.path}/exits`;
  }

  /** @returns whether what is there is from this boot; else none of its processes can live. */
  open(bootId: string): boolean {
    mkdirSync(`${this.path}/pods`, { recursive: true, mode: 0o700 });
    mkdirSync(this.exitsDirectory, { recursive: true, mode: 0o700 });
    mkdirSync(this.servicesDirectory, { recursive: true });
    // Runners see it, and what is given to another one is in it: they find what they know the name of.
    chmodSync(this.servicesDirectory, 0o711);
    mkdirSync(this.emptyDirectory, { recursive: true, mode: 0o555 });
    const before = readText(`${this.path}/boot_id`)?.trim();
    if (before === bootId) return true;
    return before === undefined;
  }

  /** Only after everything from another boot has been settled. */
  markBoot(bootId: string): void {
    this.#write(`${this.path}/boot_id`, `${bootId}\n`);
  }

  podUids(): string[] {
    return readdirSync(`${this.path}/pods`);
  }

  sandboxAttempts(uid: string): number[] {
    const attempts = this.#podEntries(uid).map((name) => /^sandbox-(\d+)\.json$/.exec(name)?.[1]);
    return attempts.filter((each) => each !== undefined).map(Number);
  }

  containerIds(uid: string): string[] {
    return this.#podEntries(uid).filter((name) => /^[0-9a-f]{64}$/.test(name));
  }

  #podEntries(uid: string): string[] {
    try {
      return readdirSync(this.#pod(uid));
    } catch (error) {
      if (errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR") return [];
      throw error;
    }
  }

  writeSandbox(uid: string, sandbox: SandboxFile): void {
    mkdirSync(this.#pod(uid), { recursive: true, mode: 0o700 });
    this.#write(this.#sandbox(uid, sandbox.attempt, "json"), JSON.stringify(sandbox));
  }

  /** Undefined for a damaged one. */
  readSandbox(uid: string, attempt: number): SandboxFile | undefined {
    return readJson<SandboxFile>(this.#sandbox(uid, attempt, "json"));
  }

  readManifest(uid: string, attempt: number): DesiredPod | undefined {
    return this.readSandbox(uid, attempt)?.desired;
  }

  markStopped(uid: string, attempt: number): void {
    writeFileSync(this.#sandbox(uid, attempt, "stopped"), "");
  }

  isStopped(uid: string, attempt: number): boolean {
    return existsSync(this.#sandbox(uid, attempt, "stopped"));
  }

  removeSandbox(uid: string, attempt: number): void {
    rmSync(this.#sandbox(uid, attempt, "json"), { force: true });
    rmSync(this.#sandbox(uid, attempt, "stopped"), { force: true });
    this.removePodIfEmpty(uid);
  }

  removePodIfEmpty(uid: string): void {
    if (this.sandboxAttempts(uid).length > 0 || this.containerIds(uid).length > 0) return;
    rmSync(this.#pod(uid), { recursive: true, force: true });
  }

  /** With `container.json` the container exists. */
  writeContainer(container: ContainerFile): void {
    const folder = this.container(container.uid, container.id);
    mkdirSync(folder, { mode: 0o700 });
    this.#write(`${folder}/container.json`, JSON.stringify(container));
  }

  /** Before its reaper begins. */
  writeLaunch(uid: string, id: string, launch: RunnerLaunch): void {
    this.#write(`${this.container(uid, id)}/launch.json`, JSON.stringify(launch));
  }

  /** Writes the file of a container that exists already. */
  rewriteContainer(container: ContainerFile): void {
    this.#write(`${this.container(container.uid, container.id)}/container.json`, JSON.stringify(container));
  }

  readContainer(uid: string, id: string): ContainerFile | undefined {
    return readJson<ContainerFile>(`${this.container(uid, id)}/container.json`);
  }

  container(uid: string, id: string): string {
    return `${this.#pod(uid)}/${id}`;
  }

  endPath(uid: string, id: string): string {
    return `${this.container(uid, id)}/end`;
  }

  exitPath(id: string): string {
    return `${this.exitsDirectory}/${id}`;
  }

  /** For the runner's standard error. Its owner closes it. */
  openFatal(uid: string, id: string): number {
    return openSync(this.fatalPath(uid, id), "a", 0o600);
  }

  fatalPath(uid: string, id: string): string {
    return `${this.container(uid, id)}/fatal`;
  }

  reaper(uid: string, id: string): ProcessId | undefined {
    return parseProcessId(readText(`${this.container(uid, id)}/reaper`) ?? "");
  }

  runner(uid: string, id: string): ProcessId | undefined {
    return parseProcessId(readText(`${this.container(uid, id)}/runner`) ?? "");
  }

  /** Names the process of a container that has no reaper of its own. */
  writeReaper(uid: string, id: string, { pid, startTime }: ProcessId): void {
    this.#write(`${this.container(uid, id)}/reaper`, `${pid} ${startTime}\n`);
  }

  /** When the reaper began, milliseconds since the epoch. */
  startedAtMs(uid: string, id: string): number | undefined {
    return modifiedAtMs(`${this.container(uid, id)}/reaper`);
  }

  /** @returns false when the container's reaper was first. */
  claim(uid: string, id: string): boolean {
    try {
      closeSync(openSync(`${this.container(uid, id)}/reaper`, "wx", 0o600));
      return true;
    } catch (error) {
      if (errnoOf(error) === "EEXIST") return false;
      throw error;
    }
  }

  /** Undefined while the runner runs. */
  exit(id: string): { readonly exitCode: number; readonly finishedAtMs: number } | undefined {
    const path = this.exitPath(id);
    const exitCode = parseExitCode(readText(path) ?? "");
    const finishedAtMs = modifiedAtMs(path);
    return exitCode === undefined || finishedAtMs === undefined ? undefined : { exitCode, finishedAtMs };
  }

  /** The runner's message about its end: the message of a `RunnerEnd`. */
  endMessage(uid: string, id: string): string | undefined {
    const { message } = readUntrustedFields(this.endPath(uid, id), MAX_END_BYTES);
    return typeof message === "string" ? message.slice(0, MAX_END_MESSAGE_LENGTH) : undefined;
  }

  fatal(uid: string, id: string): string {
    return (readUntrusted(this.fatalPath(uid, id), MAX_FATAL_BYTES) ?? "").trim();
  }

  writeExited(uid: string, id: string, state: ExitedState): void {
    this.#write(`${this.container(uid, id)}/exited.json`, JSON.stringify(state));
  }

  readExited(uid: string, id: string): ExitedState | undefined {
    return readJson<ExitedState>(`${this.container(uid, id)}/exited.json`);
  }

  /** Removes `container.json` first: without it the rest of the folder belongs to no container. */
  removeContainer(uid: string, id: string): void {
    const folder = this.container(uid, id);
    rmSync(`${folder}/container.json`, { force: true });
    rmSync(folder, { recursive: true, force: true });
    rmSync(this.exitPath(id), { force: true });
  }

  /** Exit codes of containers that are no more. */
  removeStrayExits(known: ReadonlySet<string>): void {
    for (const id of readdirSync(this.exitsDirectory)) if (!known.has(id)) rmSync(this.exitPath(id), { force: true });
  }

  #pod(uid: string): string {
    return `${this.path}/pods/${uid}`;
  }

  #sandbox(uid: string, attempt: number, kind: "json" | "stopped"): string {
    return `${this.#pod(uid)}/sandbox-${attempt}.${kind}`;
  }

  #write(path: string, content: string): void {
    const temporary = `${path}.new`;
    writeFileSync(temporary, content, { mode: 0o600 });
    renameSync(temporary, path);
  }
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

function readJson<T>(path: string): T | undefined {
  try {
    return JSON.parse(readText(path) ?? "") as T;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

const modifiedAtMs = (path: string): number | undefined => {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats === undefined ? undefined : Math.floor(stats.mtimeMs);
};
