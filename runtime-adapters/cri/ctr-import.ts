import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { PicoletError } from "../../protocol/errors.ts";
import { CRI_NAMESPACE } from "./containerd-events.ts";

/** Of what the program complains, kept for the message. */
const MAX_COMPLAINT_LENGTH = 2_048;

/**
 * Brings an archive into containerd through its own command line, which every containerd comes with. CRI has no call
 * for it, and doing it by hand would take four of containerd's services.
 * @param name what the one image in it is to be called besides the names it brings.
 */
export function importWithCtr(
  socketPath: string,
  archive: string,
  name: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const cannot = `cannot import ${archive}`;
  const naming = name === undefined ? [] : ["--index-name", name];
  const args = ["--address", socketPath, "--namespace", CRI_NAMESPACE, "images", "import", ...naming, resolve(archive)];
  return new Promise((done, fail) => {
    if (signal.aborted) {
      fail(new PicoletError("cancelled", `the import of ${archive} was cancelled`));
      return;
    }
    const child = spawn("ctr", args, { stdio: ["ignore", "ignore", "pipe"] });
    const abort = (): void => void child.kill("SIGKILL");
    signal.addEventListener("abort", abort, { once: true });
    let complaint = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      complaint = (complaint + text).slice(-MAX_COMPLAINT_LENGTH);
    });
    child.on("error", (cause: NodeJS.ErrnoException) => {
      signal.removeEventListener("abort", abort);
      const missing = "the program ctr, which comes with containerd, is not installed";
      fail(
        cause.code === "ENOENT"
          ? new PicoletError("failed", `${cannot}: ${missing}`)
          : new PicoletError("failed", cannot, { cause }),
      );
    });
    child.on("close", (code) => {
      signal.removeEventListener("abort", abort);
      if (signal.aborted) fail(new PicoletError("cancelled", `the import of ${archive} was cancelled`));
      else if (code === 0) done();
      else fail(new PicoletError("failed", cannot, { cause: new Error(complaint.trim().replace(/^ctr: /, "")) }));
    });
  });
}
