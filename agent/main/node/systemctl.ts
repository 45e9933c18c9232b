import { spawn } from "node:child_process";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Millis } from "@picolet/protocol/ports.ts";

/** Gives up on systemctl, not on what it asked for. */
export interface SystemctlLimits {
  readonly signal?: AbortSignal;
  readonly timeout?: Millis;
}

/** Runs systemctl until it ends. @throws `failed`, `unavailable` */
export function systemctl(args: readonly string[], limits: SystemctlLimits): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn("systemctl", args, { stdio: "ignore", ...limits });
    child.once("error", (cause) => reject(new PicoletError("unavailable", "cannot run systemctl", { cause })));
    child.once("close", (code, signal) => {
      if (code === 0) resolve();
      else reject(new PicoletError("failed", `systemctl ${args.join(" ")} ends with ${code ?? signal}`));
    });
  });
}
