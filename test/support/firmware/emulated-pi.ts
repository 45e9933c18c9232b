/**
 * A Raspberry Pi 3 of QEMU that starts from the card as a real one does, except for the firmware, which QEMU has not:
 * its rules choose the partition here, and kernel, RAM disk, device tree and command line are those of that partition.
 * A restart of the board is another start of QEMU. Whether the system has asked for a tryboot is what QEMU reports of
 * the firmware's property interface.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { bootedPartition } from "../unit/firmware/raspberry-pi-rom.ts";
import { SerialLine } from "./serial-line.ts";

const PROGRAMS = ["/usr/bin/qemu-system-aarch64", "/usr/bin/qemu-img", "/usr/bin/mcopy", "/usr/bin/mmdebstrap"];
/** QEMU's SD card is a power of two. */
const CARD = "4G";
const DEVICE_TREE = "bcm2837-rpi-3-b.dtb";
/** QEMU's watchdog resets the board as soon as it is started; a busy machine is slower than a board by far. */
const EMULATED =
  "systemd.watchdog_sec=off systemd.default_device_timeout_sec=1800 systemd.default_timeout_start_sec=1800";
/** QEMU's report of the tag that sets the firmware's flags for the next start. */
const SET_REBOOT_FLAGS = /0x00038064/;

/** Why no board can be emulated here; `undefined` when one can. */
export function piMissing(): string | undefined {
  if (process.getuid?.() !== 0) return "building an image needs root";
  const missing = PROGRAMS.filter((path) => !existsSync(path));
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}

interface TableEntry {
  readonly node: string;
  readonly start: number;
  readonly size: number;
}

export class EmulatedPi implements AsyncDisposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "picolet-pi-"));
  readonly #places: ReadonlyMap<number, TableEntry>;
  #process: ChildProcess | undefined;
  #serial: SerialLine | undefined;
  #isTryboot = false;
  /** Partitions that were started, in order. */
  readonly starts: number[] = [];

  private constructor(image: string) {
    const dump = execFileSync("sfdisk", ["--json", image], { encoding: "utf8" });
    const { partitions } = (JSON.parse(dump) as { partitiontable: { partitions: TableEntry[] } }).partitiontable;
    this.#places = new Map(partitions.map((each) => [Number(/(\d+)$/.exec(each.node)?.[1]), each]));
    execFileSync("qemu-img", ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", image, this.#card, CARD]);
  }

  /** A board with a new card of this image; it is off. */
  static create(image: string): EmulatedPi {
    return new EmulatedPi(resolve(image));
  }

  get #card(): string {
    return join(this.#folder, "card.qcow2");
  }

  /** The serial line of the header. @throws when the board is off */
  get serial(): SerialLine {
    if (this.#serial === undefined) throw new Error("the board is off");
    return this.#serial;
  }

  /** Firmware, and the start of QEMU. */
  async turnOn(): Promise<void> {
    const autoboot = this.readFile(1, "autoboot.txt").toString("latin1");
    const partition = bootedPartition(autoboot, this.#isTryboot);
    this.#isTryboot = false;
    this.starts.push(partition);
    const log = join(this.#folder, "firmware.log");
    rmSync(log, { force: true });
    const socket = join(this.#folder, `serial-${this.starts.length}.sock`);
    const child = spawn("setpriv", ["--pdeathsig", "KILL", ...this.#command(partition, socket, log)], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    this.#process = child;
    this.#serial = await SerialLine.connect(socket);
    child.once("exit", () => {
      if (existsSync(log)) this.#isTryboot = SET_REBOOT_FLAGS.test(readFileSync(log, "latin1"));
    });
  }

  /** Waits until the board restarts, and starts it again. */
  async restarted(): Promise<void> {
    const child = this.#process;
    if (child === undefined) throw new Error("the board is off");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    this.#serial?.close();
    await this.turnOn();
  }

  /** As if the power was cut. */
  async cutPower(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
    this.#isTryboot = false;
    this.#serial?.close();
    this.#serial = undefined;
  }

  /** A file of a FAT partition, while the board is off. */
  readFile(partition: number, path: string): Buffer {
    const fat = this.#export(partition);
    try {
      return execFileSync("mcopy", ["-n", "-i", fat, `::${path}`, "-"], { stdio: "pipe", maxBuffer: 256 * MEBIBYTE });
    } finally {
      rmSync(fat);
    }
  }

  /** Writes a file of a FAT partition, while the board is off. */
  writeFile(partition: number, path: string, content: string | Uint8Array): void {
    const fat = this.#export(partition);
    const source = join(this.#folder, "file");
    writeFileSync(source, content);
    execFileSync("mcopy", ["-o", "-i", fat, source, `::${path}`], { stdio: "pipe" });
    const { start, size } = this.#place(partition);
    const write = `write -s ${fat} ${start * 512} ${size * 512}`;
    execFileSync("qemu-io", ["-f", "qcow2", "-c", write, this.#card], { stdio: "pipe" });
    rmSync(fat);
  }

  #place(partition: number): TableEntry {
    const place = this.#places.get(partition);
    if (place === undefined) throw new Error(`the card has no partition ${partition}`);
    return place;
  }

  #export(partition: number): string {
    const { start, size } = this.#place(partition);
    const path = join(this.#folder, `fat-${partition}`);
    const from = (start * 512) / MEBIBYTE;
    const part = ["bs=1M", `skip=${from}`, `count=${from + (size * 512) / MEBIBYTE}`, `if=${this.#card}`, `of=${path}`];
    execFileSync("qemu-img", ["dd", "-f", "qcow2", "-O", "raw", ...part], { stdio: "pipe" });
    return path;
  }

  #command(partition: number, socket: string, log: string): readonly string[] {
    const config = this.readFile(partition, "config.txt").toString("latin1");
    const kernel = /^kernel=(\S+)$/m.exec(config)?.[1] ?? "kernel8.img";
    const ramDisk = /^initramfs (\S+) followkernel$/m.exec(config)?.[1] ?? "";
    const files = join(this.#folder, "started");
    mkdirSync(files, { recursive: true });
    for (const name of [kernel, ramDisk, DEVICE_TREE]) writeFileSync(join(files, name), this.readFile(partition, name));
    const commandLine = this.readFile(partition, "cmdline.txt").toString("latin1").trim();
    return [
      ...["qemu-system-aarch64", "-machine", "raspi3b", "-display", "none", "-no-reboot"],
      ...["-kernel", join(files, kernel), "-initrd", join(files, ramDisk), "-dtb", join(files, DEVICE_TREE)],
      ...["-append", `${commandLine} ${EMULATED}`, "-drive", `if=sd,format=qcow2,file=${this.#card}`],
      ...["-chardev", `socket,id=serial,path=${socket},server=on,wait=off`],
      // The first is that of Bluetooth.
      ...["-serial", "null", "-serial", "chardev:serial", "-d", "unimp", "-D", log],
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cutPower();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
