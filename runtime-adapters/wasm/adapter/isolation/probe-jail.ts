/** Makes a jail once, with nothing in it that runs: whether this node lets us. */
import { execFile } from "node:child_process";
import { SMALL_PROCESS_ENVIRONMENT } from "../processes/node-flags.ts";

/** Bounds some milliseconds of work on a busy board. */
const TIMEOUT_MS = 20_000;
const MAX_COMPLAINT_LENGTH = 300;

/** @returns what it complained of; undefined when it went well */
export function probeJail(program: string, args: readonly string[]): Promise<string | undefined> {
  return new Promise((resolve) => {
    const options = { env: SMALL_PROCESS_ENVIRONMENT, timeout: TIMEOUT_MS };
    execFile(program, args, options, (error, _stdout, stderr) => {
      if (error === null) resolve(undefined);
      else resolve((stderr.trim().split("\n")[0] || error.message).slice(0, MAX_COMPLAINT_LENGTH));
    });
  });
}
