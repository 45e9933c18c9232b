/** The black box of this node: opened before anything else of the agent writes to the disk. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { uptime } from "node:os";
import { join } from "node:path";
import { PANIC_RECORDS } from "@picolet/protocol/decisions/panic-records.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import { BlackBox } from "../../blackbox/black-box.ts";
import type { CorrectedClock } from "../../security/corrected-clock.ts";
import type { AgentInit, AgentPorts } from "../node/agent-init.ts";

const FILE = "black-box";
const PANIC_NOTE = "kernel-panic";
/** Bounds the start on a board with folders of many pods: their logs say the same. */
const MAX_FILES = 200;

/** @param machine whose clock is not corrected */
export async function makeBlackBox(
  clock: CorrectedClock,
  { clock: machine, log }: Pick<AgentPorts, "clock" | "log">,
  { args: { rootDir }, configuration, stops }: AgentInit,
  signal: AbortSignal,
): Promise<BlackBox> {
  const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  const panics = existsSync(PANIC_RECORDS) ? await import("../../blackbox/kernel-panic.ts") : undefined;
  const panicInit = { folder: PANIC_RECORDS, notePath: join(rootDir, PANIC_NOTE), bootId, log };
  return await BlackBox.open(
    { clock, log, isClockSet: () => isSet(clock, machine) },
    {
      path: join(rootDir, FILE),
      size: configuration.blackBox.size,
      bootId,
      uptimeAtZero: millis(uptime() * 1000 - clock.monotonic()),
      signsOfLife: () => signsOfLife(rootDir, configuration.podLogsDir),
      kernelPanic: panics && ((isNewBoot) => panics.kernelPanic(panicInit, isNewBoot)),
      ending: () => (stops?.isRestarting === true ? "restart" : signal.aborted ? "asked" : "failed"),
    },
  );
}

const isSet = (clock: CorrectedClock, machine: Clock): boolean =>
  clock.isConfirmed || machine.wall().getTime() >= clock.floorMs;

/** When files were written last that the agent and its pods write while they live. */
function signsOfLife(rootDir: string, podLogsDir: string): readonly number[] {
  const files = filesIn(rootDir);
  const logs = filesIn(podLogsDir).flatMap((pod) => filesIn(pod).flatMap((container) => filesIn(container)));
  return [...files, ...logs].slice(0, MAX_FILES).flatMap((path) => {
    try {
      return [statSync(path).mtimeMs];
    } catch {
      ignore("a file that has gone is no sign");
      return [];
    }
  });
}

function filesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
      .slice(0, MAX_FILES)
      .map((name) => join(folder, name));
  } catch {
    ignore("what is no folder has no files");
    return [];
  }
}
