import { type ChildProcess, spawn } from "node:child_process";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { checkCancelled, onAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { CRI_NAMESPACE } from "../wire/containerd-services.ts";

/** Bounds the part of the program's error output that is kept for the message. */
const MAX_COMPLAINT_LENGTH = 2_048;

export interface CtrImport {
  /** containerd's socket. */
  readonly socketPath: string;
  readonly archive: string;
  /** ctr takes plain tar only. */
  readonly gzipped: boolean;
  /** A name for the one image in it, besides the names in the archive. */
  readonly name: string | undefined;
}

/**
 * Brings an archive into containerd through its own command line, which every containerd comes with. CRI has no call
 * for it, and doing it by hand would take four of containerd's services.
 */
export async function importWithCtr(wanted: CtrImport, signal: AbortSignal): Promise<void> {
  const { socketPath, archive, gzipped, name } = wanted;
  checkCancelled(signal, `the import of ${archive}`);
  const naming = name === undefined ? [] : ["--index-name", name];
  const source = gzipped ? "-" : archive;
  const args = ["--address", socketPath, "--namespace", CRI_NAMESPACE, "images", "import", ...naming, source];
  const child = spawn("ctr", args, { stdio: [gzipped ? "pipe" : "ignore", "ignore", "pipe"] });
  using _kill = onAbort(signal, () => child.kill("SIGKILL"));
  try {
    const ended = end(child);
    if (child.stdin !== null) {
      const copied = pipeline(createReadStream(archive), createGunzip(), child.stdin);
      await copied.catch(ignore("a child that ends early breaks the pipe, and reports the better reason"));
    }
    await ended;
  } catch (cause) {
    checkCancelled(signal, `the import of ${archive}`);
    throw new PicoletError("failed", `cannot import ${archive}`, { cause });
  }
}

function end(child: ChildProcess): Promise<void> {
  const ended = new Promise<void>((resolve, reject) => {
    let complaint = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      complaint = (complaint + text).slice(-MAX_COMPLAINT_LENGTH);
    });
    child.on("error", (error: NodeJS.ErrnoException) => {
      const missing = new Error("the program ctr, which comes with containerd, is not installed");
      reject(error.code === "ENOENT" ? missing : error);
    });
    child.on("close", (code) => {
      if (code === 0) resolve();
      else reject(new Error(complaint.trim().replace(/^ctr: /, "") || `ctr ended with ${code}`));
    });
  });
  ended.catch(ignore("the caller awaits it after the pipe"));
  return ended;
}
