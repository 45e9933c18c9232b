import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import { BoardHealth } from "./board-health.ts";
import { BoardSensors } from "./board-sensors.ts";
import { NodeConditions } from "./node-conditions.ts";
import type { ShutdownState } from "./node-shutdown.ts";

const FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled";
const LIMITS = { temperatureCelsius: 85, wearPercent: 90, holdMs: 300_000 };

/** A board whose /sys and /run are real files in a folder. */
class Board extends TempFolder {
  readonly disks: readonly string[];

  constructor(files: Readonly<Record<string, string>>, disks: readonly string[] = ["mmcblk0"]) {
    super();
    this.disks = disks;
    this.write(files);
  }

  write(files: Readonly<Record<string, string>>): void {
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(this.at(path)), { recursive: true });
      writeFileSync(this.at(path), `${text}\n`);
    }
  }

  get sensors(): BoardSensors {
    return new BoardSensors({ root: this.path, stateFolder: this.path, disks: this.disks });
  }
}

const RASPBERRY_PI = {
  [FIRMWARE]: "0",
  "sys/class/hwmon/hwmon0/name": "cpu_thermal",
  "sys/class/hwmon/hwmon1/name": "rpi_volt",
  "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0",
  "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
  "sys/class/thermal/thermal_zone0/temp": "48312",
  "sys/class/thermal/thermal_zone0/trip_point_0_type": "critical",
  "sys/class/thermal/thermal_zone0/trip_point_0_temp": "110000",
  "sys/class/thermal/cooling_device0/type": "cpufreq",
  "sys/block/mmcblk0/device/life_time": "0x02 0x01",
  "sys/block/mmcblk0/device/pre_eol_info": "0x01",
  "sys/fs/ext4/mmcblk0p2/errors_count": "0",
  "sys/fs/ext4/sdb1/errors_count": "7",
};

test("a Raspberry Pi's files are read, and those of other disks are not", () => {
  using board = new Board(RASPBERRY_PI);
  assert.deepEqual(board.sensors.read(true), {
    throttled: 0,
    isUndervolted: false,
    zones: [{ name: "cpu-thermal", celsius: 48.312, tripCelsius: 100 }],
    wear: [{ disk: "mmcblk0", usedPercent: 20, endOfLife: 1 }],
    fileSystems: [{ name: "mmcblk0p2", errors: 0 }],
    disks: [],
    isReadOnly: false,
    clock: "set",
  });
});

test("a machine without sensors has nothing to read but its state and clock", () => {
  using board = new Board({ "sys/block/sda/device/ioerr_cnt": "0x1f" }, ["sda"]);
  const { sensors } = board;
  assert.deepEqual(sensors.read(false), {
    ...{ throttled: undefined, isUndervolted: undefined, zones: [], wear: [], fileSystems: [] },
    ...{ disks: [{ name: "sda", errors: 31 }], isReadOnly: false, clock: "before release" },
  });
});

test("a hot trip point counts as it is, a passive one does not, and a zone that is off has no figure", () => {
  const zone = "sys/class/thermal/thermal_zone3";
  using board = new Board({
    [`${zone}/type`]: "gpu",
    [`${zone}/temp`]: "70000",
    [`${zone}/trip_point_0_type`]: "passive",
    [`${zone}/trip_point_0_temp`]: "60000",
    [`${zone}/trip_point_1_type`]: "hot",
    [`${zone}/trip_point_1_temp`]: "95000",
    [`${zone}/trip_point_2_type`]: "critical",
    [`${zone}/trip_point_2_temp`]: "115000",
  });
  const { sensors } = board;
  assert.deepEqual(sensors.read(true).zones, [{ name: "gpu", celsius: 70, tripCelsius: 95 }]);
  rmSync(board.at(zone, "temp"));
  assert.deepEqual(sensors.read(true).zones, []);
});

test("the time service is asked where no battery has set the clock", () => {
  using board = new Board({ "run/systemd/timesync/x": "" });
  assert.equal(board.sensors.read(true).clock, "unsynchronized");
  board.write({ "run/systemd/timesync/synchronized": "" });
  assert.equal(board.sensors.read(true).clock, "set");
  using withBattery = new Board({ "run/systemd/timesync/x": "", "sys/class/rtc/rtc0/hctosys": "1" });
  assert.equal(withBattery.sensors.read(true).clock, "set");
});

test("whatever the files hold, a reading has figures or none", () => {
  const contents = [
    "",
    "\0",
    "-1",
    "0x",
    "zz",
    "9".repeat(500),
    "0xffffffff",
    "0x0b 0x0b",
    "1.5",
    " 5 \n5",
    "\u{1f525}",
  ];
  for (const text of contents) {
    using board = new Board(Object.fromEntries(Object.keys(RASPBERRY_PI).map((path) => [path, text])));
    board.write({ "sys/class/hwmon/hwmon1/name": "rpi_volt", "sys/class/rtc/rtc0/hctosys": text });
    const { throttled, zones, wear, fileSystems } = board.sensors.read(true);
    for (const each of [throttled ?? 0, ...zones.map(({ celsius }) => celsius)]) assert.ok(Number.isFinite(each), text);
    for (const each of [...wear.map(({ usedPercent = 0 }) => usedPercent), ...fileSystems.map(({ errors }) => errors)])
      assert.ok(Number.isFinite(each), text);
  }
});

function run(board: Board) {
  const clock = new VirtualClock();
  const events = new RecordedEvents();
  const isConfirmed = { value: false };
  const health = new BoardHealth(
    { sensors: board.sensors, clock, isClockSet: () => true, isClockConfirmed: () => isConfirmed.value },
    LIMITS,
  );
  const node = new NodeConditions(
    {
      health: new WatchSource<readonly RuntimeHealth[]>([]),
      shutdown: new WatchSource<ShutdownState>({ kind: "running" }),
      pressures: () => [health.conditions as WatchSource<readonly PressureCondition[]>],
      ...{ events, clock, log: new RecordedLog() },
    },
    { nodeName: "board" },
  );
  const life = new AbortController();
  const done = [endOfRun(node.run(life.signal)), endOfRun(health.run(life.signal))];
  return {
    ...{ clock, health, isConfirmed },
    statusOf: (type: string) => node.conditions.current.find((each) => each.type === type),
    advance: async (duration: Millis): Promise<void> => {
      await clock.advance(duration);
      await clock.settle();
    },
    /** The events of the board, without those of the start. */
    boardEvents: () => events.lines.filter((line) => !/Starting|NodeHas/.test(line)),
    stop: async (): Promise<void> => {
      life.abort();
      await Promise.all(done);
    },
  };
}

test("low voltage is a condition and one event, until the board has been well for a while", async () => {
  using board = new Board(RASPBERRY_PI);
  const { advance, statusOf, boardEvents, stop } = run(board);
  await advance(seconds(31));
  assert.equal(statusOf("picolet.io/UnderVoltage")?.status, "False");
  assert.deepEqual(boardEvents(), [], "a board that is well is no news");
  for (let times = 0; times < 5; times += 1) {
    board.write({ [FIRMWARE]: "50005" });
    await advance(seconds(30));
    board.write({ [FIRMWARE]: "50000" });
    await advance(seconds(30));
  }
  const { status, reason, message = "" } = statusOf("picolet.io/UnderVoltage") ?? {};
  assert.deepEqual([status, reason], ["True", "SupplyVoltageIsLow"]);
  assert.match(message, /use the board's own power supply/);
  assert.equal(statusOf("picolet.io/Throttled")?.status, "True");
  await advance(seconds(240));
  assert.equal(statusOf("picolet.io/UnderVoltage")?.status, "True");
  await advance(seconds(120));
  assert.equal(statusOf("picolet.io/UnderVoltage")?.status, "False");
  assert.deepEqual(
    boardEvents().map((line) => line.split(":")[0]),
    ["Warning SupplyVoltageIsLow", "Warning FrequencyIsCapped", "Normal VoltageIsSufficient", "Normal NotThrottled"],
  );
  await stop();
});

test("a driver that is loaded late is found, and sensors are read every 30 s at most", async () => {
  using board = new Board({});
  const { advance, statusOf, clock, stop } = run(board);
  await clock.settle();
  assert.equal(clock.untilNext, 30_000);
  assert.equal(statusOf("picolet.io/UnderVoltage"), undefined);
  board.write({ [FIRMWARE]: "1" });
  await advance(seconds(700));
  assert.equal(statusOf("picolet.io/UnderVoltage")?.status, "True");
  await stop();
});

test("errors of a file system are a condition until its check clears them", async () => {
  using board = new Board(RASPBERRY_PI);
  const { advance, statusOf, stop } = run(board);
  board.write({ "sys/fs/ext4/mmcblk0p2/errors_count": "3" });
  await advance(seconds(31));
  assert.equal(statusOf("picolet.io/StorageErrors")?.reason, "FileSystemHasErrors");
  assert.match(statusOf("picolet.io/StorageErrors")?.message ?? "", /^the file system on mmcblk0p2 has errors: /);
  board.write({ "sys/fs/ext4/mmcblk0p2/errors_count": "0" });
  await advance(seconds(400));
  assert.equal(statusOf("picolet.io/StorageErrors")?.status, "False");
  await stop();
});

test("a time service is given ten minutes, and a hub that confirms the time is enough", async () => {
  using board = new Board({ "run/systemd/timesync/x": "" });
  const { advance, statusOf, isConfirmed, stop } = run(board);
  await advance(seconds(500));
  assert.equal(statusOf("picolet.io/ClockNotSet")?.status, "False");
  await advance(seconds(300));
  assert.equal(statusOf("picolet.io/ClockNotSet")?.reason, "TimeIsNotSynchronized");
  isConfirmed.value = true;
  await advance(seconds(121));
  assert.equal(statusOf("picolet.io/ClockNotSet")?.status, "False");
  await stop();
});
