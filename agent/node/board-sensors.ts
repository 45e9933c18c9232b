/**
 * Reads the board's sensors and disks: small files of /sys, one system call or three for each. What a board does not
 * have costs nothing: the files are looked for once, and again now and then, because drivers are loaded late.
 */
import { accessSync, closeSync, constants, existsSync, openSync, readdirSync, readSync } from "node:fs";
import { join } from "node:path";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { BoardReading, ThermalReading, WearReading } from "../core/node/board-health.ts";

export interface BoardSensorsInit {
  /** `/`, but in tests. */
  readonly root: string;
  /** The folder of the agent's state. */
  readonly stateFolder: string;
  /** Kernel names of the disks that the node lives on, such as `mmcblk0`. */
  readonly disks: readonly string[];
}

/** No file here is longer; a longer one is cut off. */
const MAX_BYTES = 128;
/** Bounds the zones and file systems of a machine; boards have about ten. */
const MAX_SOURCES = 32;
/** A zone has at most twelve in the kernel's older versions. */
const MAX_TRIP_POINTS = 12;
/** Degrees below the point at which the kernel switches the board off. */
const CRITICAL_MARGIN = 10;
const RASPBERRY_PI_FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled";
/** systemd-timesyncd makes the folder when it runs, and the file when it has set the clock. */
const TIMESYNC = "run/systemd/timesync";

interface ZoneFile {
  readonly name: string;
  readonly path: string;
  readonly tripCelsius: number | undefined;
}

export class BoardSensors {
  readonly #init: BoardSensorsInit;
  readonly #buffer = Buffer.allocUnsafeSlow(MAX_BYTES);
  #throttled: string | undefined;
  #voltageAlarm: string | undefined;
  #zones: readonly ZoneFile[] = [];
  #cards: readonly string[] = [];
  #fileSystems: readonly string[] = [];
  #disks: readonly string[] = [];
  #hasBatteryClock = false;

  constructor(init: BoardSensorsInit) {
    this.#init = init;
    this.find();
  }

  /** Finds the files. */
  find(): void {
    const { disks } = this.#init;
    const isOwn = (name: string): boolean => name.startsWith("dm-") || disks.some((disk) => name.startsWith(disk));
    this.#throttled = existsSync(this.#at(RASPBERRY_PI_FIRMWARE)) ? RASPBERRY_PI_FIRMWARE : undefined;
    const monitor = this.#names("sys/class/hwmon").find(
      (name) => this.#text(`sys/class/hwmon/${name}/name`) === "rpi_volt",
    );
    this.#voltageAlarm = monitor === undefined ? undefined : `sys/class/hwmon/${monitor}/in0_lcrit_alarm`;
    this.#zones = this.#names("sys/class/thermal")
      .filter((name) => name.startsWith("thermal_zone"))
      .map((name) => this.#zoneOf(`sys/class/thermal/${name}`));
    const has = (disk: string, file: string): boolean => existsSync(this.#at(`sys/block/${disk}/device/${file}`));
    this.#cards = disks.filter((disk) => has(disk, "life_time") || has(disk, "pre_eol_info"));
    this.#disks = disks.filter((disk) => has(disk, "ioerr_cnt"));
    this.#fileSystems = this.#names("sys/fs/ext4").filter(
      (name) => isOwn(name) && existsSync(this.#at(`sys/fs/ext4/${name}/errors_count`)),
    );
    // The kernel has set its clock from it at the boot.
    this.#hasBatteryClock = this.#names("sys/class/rtc").some(
      (name) => this.#number(`sys/class/rtc/${name}/hctosys`) === 1,
    );
  }

  /** @param isClockSet false while the clock shows a time before the program was made */
  read(isClockSet: boolean): BoardReading {
    return {
      throttled: this.#throttled === undefined ? undefined : this.#bits(this.#throttled),
      isUndervolted: this.#voltageAlarm === undefined ? undefined : this.#number(this.#voltageAlarm) === 1,
      zones: this.#zones.flatMap((zone) => this.#temperatureOf(zone)),
      wear: this.#cards.map((disk) => this.#wearOf(disk)),
      fileSystems: this.#fileSystems.map((name) => ({
        name,
        errors: this.#number(`sys/fs/ext4/${name}/errors_count`) ?? 0,
      })),
      disks: this.#disks.map((name) => ({ name, errors: this.#bits(`sys/block/${name}/device/ioerr_cnt`) ?? 0 })),
      isReadOnly: this.#isReadOnly(),
      clock: !isClockSet ? "before release" : this.#isSynchronized() ? "set" : "unsynchronized",
    };
  }

  /** A zone is too hot at its hot point, or shortly before its critical one. */
  #zoneOf(folder: string): ZoneFile {
    let tripCelsius: number | undefined;
    for (let point = 0; point < MAX_TRIP_POINTS; point += 1) {
      const type = this.#text(`${folder}/trip_point_${point}_type`);
      if (type === "") break;
      const margin = type === "hot" ? 0 : type === "critical" ? CRITICAL_MARGIN : undefined;
      const milli = this.#number(`${folder}/trip_point_${point}_temp`);
      if (margin === undefined || milli === undefined || milli <= 0) continue;
      tripCelsius = Math.min(tripCelsius ?? Infinity, milli / 1000 - margin);
    }
    return { name: this.#text(`${folder}/type`), path: `${folder}/temp`, tripCelsius };
  }

  /** A zone that is switched off has no figure. */
  #temperatureOf({ name, path, tripCelsius }: ZoneFile): readonly ThermalReading[] {
    const milli = this.#number(path);
    return milli === undefined ? [] : [{ name, celsius: milli / 1000, tripCelsius }];
  }

  /** `life_time` has two steps of 10 % for two kinds of cells, such as `0x02 0x01`; 0 is unknown. */
  #wearOf(disk: string): WearReading {
    const steps = this.#text(`sys/block/${disk}/device/life_time`).split(" ").map(Number);
    const step = Math.max(0, ...steps.filter(Number.isSafeInteger));
    const endOfLife = this.#bits(`sys/block/${disk}/device/pre_eol_info`);
    return { disk, usedPercent: step === 0 ? undefined : Math.min(step, 11) * 10, endOfLife };
  }

  #isReadOnly(): boolean {
    try {
      accessSync(this.#init.stateFolder, constants.W_OK);
      return false;
    } catch (error) {
      return errnoOf(error) === "EROFS";
    }
  }

  #isSynchronized(): boolean {
    if (this.#hasBatteryClock || !existsSync(this.#at(TIMESYNC))) return true;
    return existsSync(this.#at(`${TIMESYNC}/synchronized`));
  }

  #at(path: string): string {
    return join(this.#init.root, path);
  }

  #names(folder: string): readonly string[] {
    try {
      return readdirSync(this.#at(folder)).slice(0, MAX_SOURCES);
    } catch {
      return [];
    }
  }

  /** Decimal; undefined for a file that is not there or holds none. */
  #number(path: string): number | undefined {
    const text = this.#text(path);
    return /^-?\d{1,15}$/.test(text) ? Number(text) : undefined;
  }

  /** Hexadecimal, with or without 0x. */
  #bits(path: string): number | undefined {
    const text = this.#text(path);
    return /^(?:0x)?[0-9a-f]{1,8}$/i.test(text) ? Number.parseInt(text, 16) : undefined;
  }

  /** "" for a file that is not there or cannot be read, as that of a sensor that is off. */
  #text(path: string): string {
    let file: number | undefined;
    try {
      file = openSync(this.#at(path), "r");
      return this.#buffer.toString("latin1", 0, readSync(file, this.#buffer, 0, MAX_BYTES, 0)).trim();
    } catch {
      return "";
    } finally {
      if (file !== undefined) closeSync(file);
    }
  }
}
