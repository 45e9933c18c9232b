import { lstatSync, mkdirSync, renameSync, unlinkSync } from "node:fs";
import { connect, type Server } from "node:net";
import { dirname, join } from "node:path";
import { PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** `sun_path` of unix(7) holds 108 bytes with the closing zero; a longer path would be cut without a word. */
const MAX_SOCKET_PATH_BYTES = 107;

/** Owner and group may connect, no one else: the socket gives the rights of root on this node. */
const SOCKET_UMASK = 0o117;

/**
 * Makes `server` listen at `path`, in a folder that is made if need be. The socket that a dead agent left is replaced.
 * @returns takes the socket away again, unless another one is there by then.
 * @throws `conflict` when an agent answers there or something that is no socket is in the way; `invalid` for a path
 *   that is too long; `permission_denied`, `failed`.
 */
export async function listenOnSocket(server: Server, path: string): Promise<() => void> {
  const action = `cannot listen on ${path}`;
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES) {
    throw new PicoletError("invalid", `${action}: a socket's path has at most ${MAX_SOCKET_PATH_BYTES} bytes`);
  }
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
    await removeStaleSocket(path, action);
    await bind(server, path);
    const { ino } = lstatSync(path);
    return () => {
      if (lstatSync(path, { throwIfNoEntry: false })?.ino === ino) unlinkSync(path);
    };
  } catch (error) {
    if (error instanceof PicoletError) throw error;
    const denied = ["EACCES", "EPERM", "EROFS"].includes(errnoOf(error));
    throw toPicoletError(error, denied ? "permission_denied" : "failed", action);
  }
}

async function removeStaleSocket(path: string, action: string): Promise<void> {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket()) throw new PicoletError("conflict", `${action}: a file that is no socket is there`);
  if (await answers(path)) throw new PicoletError("conflict", `${action}: another agent answers there`);
  // It may be gone by now. Another agent that starts now fails at the bind.
  if (lstatSync(path, { throwIfNoEntry: false })?.ino === stat.ino) unlinkSync(path);
}

/** A full backlog (EAGAIN) is an answer too; only a refusal means that no process listens. */
function answers(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", (error) => {
      const code = errnoOf(error);
      if (code === "ECONNREFUSED" || code === "ENOENT") resolve(false);
      else if (code === "EAGAIN") resolve(true);
      else reject(error);
    });
  });
}

/**
 * Binds under another name and renames: the socket appears whole, and when the server closes, libuv takes away the name
 * it bound, not the socket that a later agent may have put in this one's place.
 */
function bind(server: Server, path: string): Promise<void> {
  const temporary = join(dirname(path), `.${process.pid}`);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    // Only a dead process can have left it.
    if (lstatSync(temporary, { throwIfNoEntry: false }) !== undefined) unlinkSync(temporary);
    // The socket is made within listen(), so it never exists with other rights; nor does its other name outlast it.
    const before = process.umask(SOCKET_UMASK);
    try {
      server.listen(temporary, () => {
        server.removeListener("error", reject);
        resolve();
      });
    } finally {
      process.umask(before);
    }
    if (lstatSync(temporary, { throwIfNoEntry: false }) !== undefined) renameSync(temporary, path);
  });
}
