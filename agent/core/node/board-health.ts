/** The board's health: what its sensors and disks report, and the conditions that follow from it. Types alone. */

/** The types of conditions; node-problem-detector's name where it has the thing. */
export const BOARD_CONDITION_TYPES = [
  "picolet.io/UnderVoltage",
  "picolet.io/Throttled",
  "picolet.io/Overheated",
  "picolet.io/StorageWorn",
  "picolet.io/StorageErrors",
  "ReadonlyFilesystem",
  "picolet.io/ClockNotSet",
] as const;

export type BoardConditionType = (typeof BOARD_CONDITION_TYPES)[number];

export interface BoardReading {
  /** The bits of the Raspberry Pi's `get_throttled`; undefined on other boards. */
  readonly throttled: number | undefined;
  /** The alarm of the Raspberry Pi's voltage monitor; undefined where there is none. */
  readonly isUndervolted: boolean | undefined;
  readonly zones: readonly ThermalReading[];
  readonly wear: readonly WearReading[];
  /** The file systems on the node's disks. */
  readonly fileSystems: readonly FileSystemReading[];
  /** The node's disks, with their errors since the boot. */
  readonly disks: readonly { readonly name: string; readonly errors: number }[];
  /** True when the folder of the agent's state cannot be written to, because its file system is read-only. */
  readonly isReadOnly: boolean;
  readonly clock: ClockState;
}

/** `unsynchronized`: a time service runs and has no answer, and no battery kept the time. */
export type ClockState = "set" | "before release" | "unsynchronized";

export interface ThermalReading {
  /** The kernel's name, such as `cpu-thermal`. */
  readonly name: string;
  readonly celsius: number;
  /** The temperature from which the board is too hot, by the zone's own trip points; undefined: it has none. */
  readonly tripCelsius: number | undefined;
}

/** JEDEC's wear figures of an eMMC or SD card. */
export interface WearReading {
  readonly disk: string;
  /** The upper end of the estimate, percent; undefined where the card does not say. */
  readonly usedPercent: number | undefined;
  /** The reserve of spare blocks: 1 normal, 2 used up by 80 %, 3 by 90 %. */
  readonly endOfLife: number | undefined;
}

export interface FileSystemReading {
  readonly name: string;
  /** Errors since the last check (fsck). */
  readonly errors: number;
}
