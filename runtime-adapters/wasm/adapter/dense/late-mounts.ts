import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { SMALL_PROCESS_ENVIRONMENT } from "../processes/node-flags.ts";
import type { ProcessId } from "../state/process-id.ts";

export const MAX_COMPLAINT_LENGTH = 300;
const execute = promisify(execFile);

/** In the namespace of the shell that stays beside the process, from where its own gets it. */
export async function mountInProcess(mounter: ProcessId | undefined, fstab: string): Promise<void> {
  if (mounter === undefined) throw new PicoletError("internal", "the process has no shell that keeps its mounts");
  const args = ["-t", String(mounter.pid), "-m", "mount", "-n", "-a", "-T", fstab];
  try {
    await execute("nsenter", args, { env: { ...SMALL_PROCESS_ENVIRONMENT, PATH: process.env.PATH }, cwd: "/" });
  } catch (error) {
    const { stderr = "" } = error as { readonly stderr?: string };
    const complaint = stderr.trim().split("\n")[0]?.slice(0, MAX_COMPLAINT_LENGTH);
    throw new PicoletError("failed", `cannot mount what the container has: ${complaint}`, { cause: error });
  }
}
