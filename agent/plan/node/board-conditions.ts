/**
 * The conditions of the board's health, from one reading and what was found before. A condition is True with the first
 * finding; a voltage, temperature or disk that is well again must stay so for a while before it is False. Pure.
 */
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import {
  BOARD_CONDITION_TYPES,
  type BoardConditionType,
  type BoardReading,
  type ThermalReading,
} from "../../core/node/board-health.ts";
import type { PressureCondition } from "../../core/node/node-pressure.ts";

export interface BoardLimits {
  /** The temperature from which a zone without trip points of its own, or with higher ones, is too hot. */
  readonly temperatureCelsius: number;
  readonly wearPercent: number;
  /** How long a board must be well before a condition that comes and goes is False again. */
  readonly holdMs: number;
}

interface Finding {
  readonly type: BoardConditionType;
  readonly reason: string;
  readonly message: string;
}

interface Held extends Finding {
  readonly lastAt: MonotonicMs;
}

/** The state that the next reading is compared with. */
export interface BoardHealth {
  readonly reading: BoardReading;
  readonly held: readonly Held[];
  readonly conditions: readonly PressureCondition[];
}

/** Conditions that come and go with the load; the others end when their cause does. */
const VOLATILE: readonly BoardConditionType[] = [
  "picolet.io/UnderVoltage",
  "picolet.io/Throttled",
  "picolet.io/Overheated",
  "picolet.io/StorageErrors",
];

export function nextBoardHealth(
  reading: BoardReading,
  previous: BoardHealth | undefined,
  now: MonotonicMs,
  limits: BoardLimits,
): BoardHealth {
  const found = findingsOf(reading, previous?.reading, limits);
  const held = BOARD_CONDITION_TYPES.flatMap((type): Held[] => {
    const before = previous?.held.find((each) => each.type === type);
    const finding = found.find((each) => each.type === type);
    // The figures of the first finding stay, so that a condition does not change with every degree.
    if (finding !== undefined) return [{ ...(before?.reason === finding.reason ? before : finding), lastAt: now }];
    const isKept = before !== undefined && VOLATILE.includes(type) && now - before.lastAt < limits.holdMs;
    return isKept ? [before] : [];
  });
  const conditions = watchedTypes(reading).map((type): PressureCondition => {
    const problem = held.find((each) => each.type === type);
    return problem === undefined
      ? { type, status: "False", ...WELL[type] }
      : { type, status: "True", reason: problem.reason, message: problem.message };
  });
  return { reading, held, conditions };
}

/** The types for which the board has a source. */
function watchedTypes({ throttled, isUndervolted, zones, wear, fileSystems, disks }: BoardReading) {
  const isWatched: Readonly<Record<BoardConditionType, boolean>> = {
    "picolet.io/UnderVoltage": throttled !== undefined || isUndervolted !== undefined,
    "picolet.io/Throttled": throttled !== undefined,
    "picolet.io/Overheated": zones.length > 0,
    "picolet.io/StorageWorn": wear.length > 0,
    "picolet.io/StorageErrors": fileSystems.length > 0 || disks.length > 0,
    ReadonlyFilesystem: true,
    "picolet.io/ClockNotSet": true,
  };
  return BOARD_CONDITION_TYPES.filter((type) => isWatched[type]);
}

/** Reasons and messages while all is well; ReadonlyFilesystem's are node-problem-detector's. */
const WELL: Readonly<Record<BoardConditionType, Pick<PressureCondition, "reason" | "message">>> = {
  "picolet.io/UnderVoltage": { reason: "VoltageIsSufficient", message: "the supply voltage is sufficient" },
  "picolet.io/Throttled": { reason: "NotThrottled", message: "the firmware does not slow down the CPU" },
  "picolet.io/Overheated": { reason: "TemperatureIsGood", message: "no sensor is too hot" },
  "picolet.io/StorageWorn": { reason: "StorageIsNotWorn", message: "the storage is not worn out" },
  "picolet.io/StorageErrors": { reason: "NoStorageErrors", message: "file systems and disks report no errors" },
  ReadonlyFilesystem: { reason: "FilesystemIsNotReadOnly", message: "Filesystem is not read-only" },
  "picolet.io/ClockNotSet": { reason: "ClockIsSet", message: "the clock is set" },
};

/** `get_throttled`, as Raspberry Pi documents it: bits 0 to 3 are now, 16 above each is since the boot. */
const UNDER_VOLTAGE = 0;
const FREQUENCY_CAPPED = 1;
const THROTTLED = 2;
const SOFT_TEMPERATURE_LIMIT = 3;
const SINCE_BOOT = 16;

/** True when the bit is set, or was since the previous reading: what lasts less than that is seen by its second bit. */
function happened(bit: number, now: number, before: number | undefined): boolean {
  const isSet = (bits: number, at: number): boolean => (bits & (1 << at)) !== 0;
  return isSet(now, bit) || (isSet(now, bit + SINCE_BOOT) && !isSet(before ?? 0, bit + SINCE_BOOT));
}

function findingsOf(reading: BoardReading, before: BoardReading | undefined, limits: BoardLimits): readonly Finding[] {
  const finding = (type: BoardConditionType, reason: string, message: string): Finding => ({ type, reason, message });
  const { throttled, isUndervolted, isReadOnly, clock } = reading;
  const has = (bit: number): boolean => throttled !== undefined && happened(bit, throttled, before?.throttled);
  const found: Finding[] = [];
  if (isUndervolted === true || has(UNDER_VOLTAGE)) {
    const message =
      "the supply voltage is too low: use the board's own power supply and a short cable, and unplug USB loads";
    found.push(finding("picolet.io/UnderVoltage", "SupplyVoltageIsLow", message));
  }
  if (has(SOFT_TEMPERATURE_LIMIT) || has(THROTTLED) || has(FREQUENCY_CAPPED)) {
    const isHot = has(SOFT_TEMPERATURE_LIMIT);
    const message = isHot
      ? "the firmware slows down the CPU because it is hot: give the board a heat sink, a fan or more air"
      : "the firmware slows down the CPU: check the power supply and the cooling";
    found.push(finding("picolet.io/Throttled", isHot ? "SoftTemperatureLimit" : "FrequencyIsCapped", message));
  }
  const hottest = tooHot(reading.zones, limits);
  if (hottest !== undefined) {
    const { name, celsius } = hottest;
    const message = `${name} is at ${Math.round(celsius)} degrees Celsius: give the board a heat sink, a fan or more air, or less to do`;
    found.push(finding("picolet.io/Overheated", "TemperatureIsHigh", message));
  }
  found.push(...storageFindings(reading, before, limits));
  if (isReadOnly) {
    const message =
      "the file system of the agent's state is read-only, so nothing can be kept: see the kernel's log, check the file system, replace the card if it fails again";
    found.push(finding("ReadonlyFilesystem", "FilesystemIsReadOnly", message));
  }
  if (clock === "before release") {
    const message =
      "the clock shows a time before this version was made: let the board reach a time server, or give it a clock with a battery";
    found.push(finding("picolet.io/ClockNotSet", "ClockIsBeforeRelease", message));
  } else if (clock === "unsynchronized") {
    const message = "the time service has no answer, and no battery keeps the time: let the board reach a time server";
    found.push(finding("picolet.io/ClockNotSet", "TimeIsNotSynchronized", message));
  }
  return found;
}

function tooHot(zones: readonly ThermalReading[], { temperatureCelsius }: BoardLimits): ThermalReading | undefined {
  const hot = zones.filter(
    ({ celsius, tripCelsius }) => celsius >= Math.min(tripCelsius ?? Infinity, temperatureCelsius),
  );
  return hot.toSorted((left, right) => right.celsius - left.celsius)[0];
}

/** JEDEC's PRE_EOL_INFO "warning". */
const END_OF_LIFE_WARNING = 2;

function storageFindings(
  { wear, fileSystems, disks }: BoardReading,
  before: BoardReading | undefined,
  { wearPercent }: BoardLimits,
): readonly Finding[] {
  const found: Finding[] = [];
  const worn = wear.find(
    ({ usedPercent = 0, endOfLife = 0 }) => usedPercent >= wearPercent || endOfLife >= END_OF_LIFE_WARNING,
  );
  if (worn !== undefined) {
    const { disk, usedPercent } = worn;
    const how =
      usedPercent === undefined ? "its spare blocks are nearly used up" : `up to ${usedPercent} % of its life is used`;
    const message = `${disk} is worn out: ${how}; back up what matters and replace it`;
    found.push({ type: "picolet.io/StorageWorn", reason: "LifetimeIsUsedUp", message });
  }
  const damaged = fileSystems.find(({ errors }) => errors > 0);
  const failing = disks.find(({ name, errors }) => {
    const known = before?.disks.find((each) => each.name === name);
    return known !== undefined && errors > known.errors;
  });
  if (damaged !== undefined) {
    const message = `the file system on ${damaged.name} has errors: back up what matters, check it with fsck at the next boot, and replace the card if they come again`;
    found.push({ type: "picolet.io/StorageErrors", reason: "FileSystemHasErrors", message });
  } else if (failing !== undefined) {
    const message = `${failing.name} reports read or write errors: back up what matters, check its cable, and replace it if they come again`;
    found.push({ type: "picolet.io/StorageErrors", reason: "DiskHasErrors", message });
  }
  return found;
}
