/** A board with picolet's image forgets what it has: its next boot empties the data partition. Loaded when asked for. */
import { existsSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";

/** A unit that only the image has: it puts the file onto the partition `picolet` that the next boot looks for. */
const UNIT_FILE = "/usr/lib/systemd/system/picolet-factory-reset.service";
/** The partition is mounted and written within a second; the report on it, which comes first, takes one more. */
const START_LIMIT = seconds(60);
/** systemd answers when the restart has begun. */
const REBOOT_LIMIT = seconds(30);

export interface FactoryResetComponents {
  readonly systemctl: (args: readonly string[], limits: { readonly timeout: Millis }) => Promise<void>;
  /** As for `existsSync`. */
  readonly exists?: (path: string) => boolean;
}

/** @throws `conflict` on a board without the image; `failed`, `unavailable` */
export async function resetToFactory({ systemctl, exists = existsSync }: FactoryResetComponents): Promise<void> {
  if (!exists(UNIT_FILE))
    throw new PicoletError(
      "conflict",
      "this board does not run picolet's image, and nothing has been changed: apt-get purge picolet removes " +
        "agent and state from a system of its own",
    );
  await systemctl(["start", UNIT_FILE.slice(UNIT_FILE.lastIndexOf("/") + 1)], { timeout: START_LIMIT });
  try {
    await systemctl(["reboot"], { timeout: REBOOT_LIMIT });
  } catch (cause) {
    throw new PicoletError("failed", "the board forgets all at its next start, but it cannot be restarted", { cause });
  }
}
