/**
 * containerd can lose a shim: when the call that makes a sandbox is cut off (the agent was killed in its middle), containerd
 * forgets the shim that it was just starting and deletes its folder, and the shim waits for ever with nothing in it (seen
 * with 1.6.20, several MiB each; it does not heed SIGTERM). Only root of the same process namespace can end it: here.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, readlinkSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";

/** As the kernel shortens `containerd-shim-runc-v2`. */
const SHIM = "containerd-shim";
const DELETED = " (deleted)";
/** Where shims listen, whatever containerd's own folders are; the name is the hash of whose shim it is. */
const SHIM_SOCKETS = "/run/containerd/s";

interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly command: string;
}

interface Shim {
  readonly pid: number;
  /** As its arguments have them. */
  readonly address: string;
  readonly namespace: string;
  readonly id: string;
}

/**
 * Ends the shims of the containerd at `endpoint` whose folder containerd has deleted and in which nothing runs: nobody can
 * reach them any more. One that is just leaving by itself loses nothing.
 * @param procRoot only tests name another one
 * @returns their pids
 */
export function endLeakedShims(
  endpoint: string,
  { procRoot = "/proc", end = endShim }: { readonly procRoot?: string; readonly end?: (shim: Shim) => void } = {},
): readonly number[] {
  const socket = canonical(endpoint.replace(/^unix:\/\//, ""));
  const all = processes(procRoot);
  const parents = new Set(all.map(({ parent }) => parent));
  const empty = all.filter(({ pid, command }) => command === SHIM && !parents.has(pid));
  const leaked = empty
    .map(({ pid }) => shimOf(pid, join(procRoot, String(pid))))
    .filter((shim) => shim !== undefined)
    .filter(({ address }) => address === socket || canonical(address) === socket);
  for (const shim of leaked) end(shim);
  return leaked.map(({ pid }) => pid);
}

/** `undefined` for one that containerd knows. */
function shimOf(pid: number, folder: string): Shim | undefined {
  const words = read(join(folder, "cmdline")).split("\0");
  const argument = (name: string): string => (words.includes(name) ? (words[words.indexOf(name) + 1] ?? "") : "");
  const shim = { pid, address: argument("-address"), namespace: argument("-namespace"), id: argument("-id") };
  try {
    return readlinkSync(join(folder, "cwd")).endsWith(DELETED) ? shim : undefined;
  } catch {
    return undefined;
  }
}

function endShim({ pid, address, namespace, id }: Shim): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // Gone by itself.
  }
  const name = createHash("sha256")
    .update(join(address, namespace, id))
    .digest("hex");
  rmSync(join(SHIM_SOCKETS, name), { force: true });
}

/** Of a socket that is not there: as it is written. */
function canonical(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function processes(procRoot: string): readonly Process[] {
  return readdirSync(procRoot)
    .filter((name) => /^\d+$/.test(name))
    .map((name) => {
      const stat = read(join(procRoot, name, "stat"));
      const command = stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")"));
      const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
      return { pid: Number(name), parent, command };
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
