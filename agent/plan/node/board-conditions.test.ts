import assert from "node:assert/strict";
import { test } from "node:test";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import type { BoardReading } from "../../core/node/board-health.ts";
import { type BoardHealth, nextBoardHealth } from "./board-conditions.ts";

const LIMITS = { temperatureCelsius: 85, wearPercent: 90, holdMs: 300_000 };
const at = (ms: number): MonotonicMs => ms as MonotonicMs;

const WELL: BoardReading = {
  throttled: 0,
  isUndervolted: false,
  zones: [{ name: "cpu-thermal", celsius: 50, tripCelsius: 100 }],
  wear: [{ disk: "mmcblk0", usedPercent: 10, endOfLife: 1 }],
  fileSystems: [{ name: "mmcblk0p2", errors: 0 }],
  disks: [{ name: "sda", errors: 4 }],
  isReadOnly: false,
  clock: "set",
};

const trueOnes = ({ conditions }: BoardHealth): readonly string[] =>
  conditions.filter(({ status }) => status === "True").map(({ type, reason }) => `${type} ${reason}`);

const zone = (celsius: number, tripCelsius?: number): BoardReading["zones"] => [{ name: "soc", celsius, tripCelsius }];

/** A change of a good reading, and the conditions that it makes True. */
const CASES: readonly (readonly [what: string, changes: Partial<BoardReading>, found: readonly string[]])[] = [
  ["nothing", {}, []],
  ["low voltage now", { throttled: 0x1 }, ["picolet.io/UnderVoltage SupplyVoltageIsLow"]],
  ["low voltage since the boot", { throttled: 0x10000 }, ["picolet.io/UnderVoltage SupplyVoltageIsLow"]],
  [
    "the voltage monitor's alarm",
    { throttled: undefined, isUndervolted: true },
    ["picolet.io/UnderVoltage SupplyVoltageIsLow"],
  ],
  ["capped frequency", { throttled: 0x2 }, ["picolet.io/Throttled FrequencyIsCapped"]],
  ["throttled", { throttled: 0x40004 }, ["picolet.io/Throttled FrequencyIsCapped"]],
  ["the soft temperature limit", { throttled: 0x8 }, ["picolet.io/Throttled SoftTemperatureLimit"]],
  ["a zone at its trip point", { zones: zone(80, 80) }, ["picolet.io/Overheated TemperatureIsHigh"]],
  ["a zone below its trip point", { zones: zone(79.9, 80) }, []],
  ["a zone at the configured temperature", { zones: zone(85, 105) }, ["picolet.io/Overheated TemperatureIsHigh"]],
  ["a zone without trip points", { zones: zone(85) }, ["picolet.io/Overheated TemperatureIsHigh"]],
  [
    "a card at the end of its life",
    { wear: [{ disk: "mmcblk0", usedPercent: 90, endOfLife: 1 }] },
    ["picolet.io/StorageWorn LifetimeIsUsedUp"],
  ],
  [
    "a card without spare blocks",
    { wear: [{ disk: "mmcblk0", usedPercent: undefined, endOfLife: 2 }] },
    ["picolet.io/StorageWorn LifetimeIsUsedUp"],
  ],
  ["a card that says nothing", { wear: [{ disk: "mmcblk0", usedPercent: undefined, endOfLife: undefined }] }, []],
  [
    "errors of a file system",
    { fileSystems: [{ name: "mmcblk0p2", errors: 1 }] },
    ["picolet.io/StorageErrors FileSystemHasErrors"],
  ],
  ["errors of a disk before the start", { disks: [{ name: "sda", errors: 4 }] }, []],
  ["more errors of a disk", { disks: [{ name: "sda", errors: 5 }] }, ["picolet.io/StorageErrors DiskHasErrors"]],
  ["a new disk", { disks: [{ name: "sdb", errors: 9 }] }, []],
  ["a read-only file system", { isReadOnly: true }, ["ReadonlyFilesystem FilesystemIsReadOnly"]],
  ["a clock before the release", { clock: "before release" }, ["picolet.io/ClockNotSet ClockIsBeforeRelease"]],
  ["a clock that nothing has set", { clock: "unsynchronized" }, ["picolet.io/ClockNotSet TimeIsNotSynchronized"]],
];

for (const [what, changes, found] of CASES) {
  test(`it finds: ${what}`, () => {
    const before = nextBoardHealth(WELL, undefined, at(0), LIMITS);
    assert.deepEqual(trueOnes(before), []);
    const after = nextBoardHealth({ ...WELL, ...changes }, before, at(30_000), LIMITS);
    assert.deepEqual(trueOnes(after), found);
    for (const { message } of after.conditions) assert.notEqual(message, "");
  });
}

test("a condition has a row only where the board has a source for it", () => {
  const bare = {
    ...WELL,
    throttled: undefined,
    isUndervolted: undefined,
    zones: [],
    wear: [],
    fileSystems: [],
    disks: [],
  };
  assert.deepEqual(
    nextBoardHealth(bare, undefined, at(0), LIMITS).conditions.map(({ type }) => type),
    ["ReadonlyFilesystem", "picolet.io/ClockNotSet"],
  );
});

test("what comes and goes is held, and keeps its message; what does not ends at once", () => {
  let health = nextBoardHealth({ ...WELL, zones: zone(90), isReadOnly: true }, undefined, at(0), LIMITS);
  const message = (): string | undefined =>
    health.conditions.find(({ type }) => type === "picolet.io/Overheated")?.message;
  const first = message();
  health = nextBoardHealth({ ...WELL, zones: zone(95), isReadOnly: false }, health, at(30_000), LIMITS);
  assert.equal(message(), first, "a degree more is no change");
  assert.deepEqual(trueOnes(health), ["picolet.io/Overheated TemperatureIsHigh"]);
  health = nextBoardHealth(WELL, health, at(329_999), LIMITS);
  assert.deepEqual(trueOnes(health), ["picolet.io/Overheated TemperatureIsHigh"]);
  health = nextBoardHealth(WELL, health, at(330_000), LIMITS);
  assert.deepEqual(trueOnes(health), []);
});

test("low voltage since the boot counts once, and again when the firmware has forgotten it in between", () => {
  let health = nextBoardHealth({ ...WELL, throttled: 0x10000 }, undefined, at(0), { ...LIMITS, holdMs: 0 });
  assert.equal(trueOnes(health).length, 1);
  for (const [throttled, found] of [
    [0x10000, 0],
    [0, 0],
    [0x10000, 1],
  ] as const) {
    health = nextBoardHealth({ ...WELL, throttled }, health, at(1), { ...LIMITS, holdMs: 0 });
    assert.equal(trueOnes(health).length, found);
  }
});
