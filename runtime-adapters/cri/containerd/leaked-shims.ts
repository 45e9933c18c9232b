/**
 * containerd can lose a shim: when the call that makes a sandbox is cut off (the agent was killed in its middle, or
 * containerd was), it forgets the shim that it was just starting. It deletes the shim's folder, or has not even come to
 * that, and the shim waits for ever with nothing in it (seen with 1.6.20, several MiB each; it does not heed SIGTERM).
 * Only root of the same process namespace can end it: here.
 *
 * No client can reach a shim without a folder. One that has its folder is ended only if it is old, is of the
 * containerd behind this very socket and of CRI's namespace, has no process in it, and containerd knows neither a
 * container, a task nor a sandbox of its id, nor any container in that sandbox.
 */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { type ContainerdServices, CRI_NAMESPACE } from "../wire/containerd-services.ts";
import type { CriClient } from "../wire/cri-client.ts";
import { podCalls } from "../wire/cri-messages.ts";

/** The name of `containerd-shim-runc-v2` as the kernel shortens it. */
const SHIM = "containerd-shim";
const DELETED = " (deleted)";
/**
 * The folder in which all shims listen, independent of containerd's own folders; the name is the hash of the shim's id.
 */
const SHIM_SOCKETS = "/run/containerd/s";
/** CRI's own ids; containers made with ctr in its namespace have other names. */
const CRI_ID = /^[0-9a-f]{64}$/;
/** Making a sandbox takes a minute on the slowest board; containerd gives its own clean-up ten seconds more. */
const MIN_AGE = seconds(600);
/** USER_HZ of /proc/PID/stat, the same on every Linux. */
const TICKS_PER_SECOND = 100;

interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly command: string;
  /** When it started, since the machine's start; with the pid it identifies one process for good. */
  readonly startTicks: number;
}

interface Shim extends Process {
  /** The address in its arguments. */
  readonly address: string;
  readonly namespace: string;
  readonly id: string;
  readonly hasFolder: boolean;
}

type Runtime = Pick<CriClient, "socketPath" | "call"> & {
  readonly containerd: Pick<ContainerdServices, "knowsNothingOf">;
};

export interface LeakedShimsInit {
  /** Only tests name another one. */
  readonly procRoot?: string;
  /** The minimum age of a shim that has its folder. */
  readonly minAge?: Millis;
  readonly end?: (shim: Shim) => void;
}

/** @returns the pids of those that it has ended. One that is just leaving by itself loses nothing. */
export async function endLeakedShims(
  client: Runtime,
  signal: AbortSignal,
  { procRoot = "/proc", minAge = MIN_AGE, end = endShim }: LeakedShimsInit = {},
): Promise<readonly number[]> {
  const empty = emptyShims(client.socketPath, procRoot);
  const uptime = Number(read(join(procRoot, "uptime")).split(" ")[0]);
  const isOld = ({ startTicks }: Shim): boolean => millis((uptime - startTicks / TICKS_PER_SECOND) * 1000) >= minAge;
  const leaked = empty.filter(({ hasFolder }) => !hasFolder);
  const suspects = empty.filter(
    (shim) => shim.hasFolder && shim.namespace === CRI_NAMESPACE && CRI_ID.test(shim.id) && isOld(shim),
  );
  for (const suspect of suspects) if (await isUnknown(client, suspect.id, signal)) leaked.push(suspect);
  if (leaked.length === 0) return [];
  // containerd was asked meanwhile: the pid may be another process's by now, or something may run in the shim.
  const still = new Set(emptyShims(client.socketPath, procRoot).map(keyOf));
  const ended = leaked.filter((shim) => still.has(keyOf(shim)));
  for (const shim of ended) end(shim);
  return ended.map(({ pid }) => pid);
}

const keyOf = ({ pid, startTicks }: Process): string => `${pid} ${startTicks}`;

/** Lists the empty shims of the containerd behind the socket. */
function emptyShims(socketPath: string, procRoot: string): readonly Shim[] {
  const socket = fileOf(socketPath);
  const all = processes(procRoot);
  const parents = new Set(all.map(({ parent }) => parent));
  return all
    .filter(({ pid, command }) => command === SHIM && !parents.has(pid))
    .flatMap((process) => shimOf(process, join(procRoot, String(process.pid))) ?? [])
    .filter(({ pid, address }) => {
      // Another containerd, in a container of its own, may have a socket of the same name; of one that is not there
      // only the name is left.
      if (socket === undefined) return address === socketPath;
      return address !== "" && fileOf(join(procRoot, String(pid), "root", address)) === socket;
    });
}

function shimOf(process: Process, folder: string): Shim | undefined {
  const words = read(join(folder, "cmdline")).split("\0");
  const argument = (name: string): string => (words.includes(name) ? (words[words.indexOf(name) + 1] ?? "") : "");
  try {
    const hasFolder = !readlinkSync(join(folder, "cwd")).endsWith(DELETED);
    return {
      ...process,
      address: argument("-address"),
      namespace: argument("-namespace"),
      id: argument("-id"),
      hasFolder,
    };
  } catch {
    return undefined;
  }
}

const CONTAINERS = podCalls([]).listContainers;

/** Only if containerd says so: it knows nothing of this id. Any other answer, or none, and it is taken for known. */
async function isUnknown(client: Runtime, id: string, signal: AbortSignal): Promise<boolean> {
  try {
    if (!(await client.containerd.knowsNothingOf(id, signal))) return false;
    const { containers } = await client.call(CONTAINERS, {}, signal);
    return containers.every((each) => each.id !== id && each.podSandboxId !== id);
  } catch {
    return false;
  }
}

function endShim({ pid, address, namespace, id }: Shim): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    ignore("gone by itself");
  }
  const name = createHash("sha256")
    .update(join(address, namespace, id))
    .digest("hex");
  rmSync(join(SHIM_SOCKETS, name), { force: true });
}

/** @returns the identity of the file that a path leads to; `undefined`: none */
function fileOf(path: string): string | undefined {
  try {
    const { dev, ino } = statSync(path);
    return `${dev} ${ino}`;
  } catch {
    return undefined;
  }
}

function processes(procRoot: string): readonly Process[] {
  return readdirSync(procRoot)
    .filter((name) => /^\d+$/.test(name))
    .map((name) => {
      const stat = read(join(procRoot, name, "stat"));
      const command = stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")"));
      // From the third field on.
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      return { pid: Number(name), parent: Number(fields[1]), command, startTicks: Number(fields[19]) };
    });
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // Ended while we looked.
    return "";
  }
}
