/** Puts together the part that reads the board's sensors. Loaded only where the configuration has it on. */
import type { Clock } from "@picolet/protocol/ports.ts";
import { RELEASED_AT_MS } from "@picolet/protocol/version.ts";
import { flashDisks } from "../../budget/flash-disks.ts";
import type { Configuration } from "../../config/configuration.ts";
import { BoardHealth } from "../../node/board-health.ts";
import { BoardSensors } from "../../node/board-sensors.ts";

/** @param machine the machine's own clock, not corrected by the hub's time */
export function makeBoardHealth(
  { clock, machine }: { readonly clock: Clock & { readonly isMachineRight: boolean }; readonly machine: Clock },
  { configuration, rootDir }: { readonly configuration: Configuration; readonly rootDir: string },
): BoardHealth {
  const { temperatureCelsius, wearPercent, holdPeriod: holdMs } = configuration.boardHealth;
  const disks = flashDisks([rootDir, configuration.podLogsDir]);
  const sensors = new BoardSensors({ root: "/", stateFolder: rootDir, disks });
  return new BoardHealth(
    {
      ...{ sensors, clock },
      isClockSet: () => machine.wall().getTime() >= RELEASED_AT_MS,
      isClockConfirmed: () => clock.isMachineRight,
    },
    { temperatureCelsius, wearPercent, holdMs },
  );
}
