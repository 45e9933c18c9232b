import assert from "node:assert/strict";
import { mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { flashDisks } from "./flash-disks.ts";

/** A machine's /sys and /proc, in which the file system of this test's own folder is on `device`. */
class Machine extends TemporaryFolder {
  readonly data: string = this.file("data");

  constructor() {
    super();
    mkdirSync(this.data);
  }

  get numbers(): string {
    const device = BigInt(statSync(this.data).dev);
    return `${(device >> 8n) & 0xfffn}:${(device & 0xffn) | ((device >> 12n) & 0xfff00n)}`;
  }

  /** @param place below /sys/devices, its last part the device's name */
  block(place: string, files: Record<string, string> = {}): this {
    const folder = this.file(`sys/devices/${place}`);
    mkdirSync(folder, { recursive: true });
    const name = place.split("/").at(-1) ?? "";
    this.#link(folder, `sys/class/block/${name}`);
    if (files.partition === undefined) this.#link(folder, `sys/block/${name}`);
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), text);
    }
    return this;
  }

  /** The folder's file system lies on this one. */
  holds(place: string): this {
    this.#link(this.file(`sys/devices/${place}`), `sys/dev/block/${this.numbers}`);
    return this;
  }

  write(file: string, text: string): this {
    mkdirSync(dirname(this.file(file)), { recursive: true });
    writeFileSync(this.file(file), text);
    return this;
  }

  get disks(): readonly string[] {
    return flashDisks([this.data, this.file("missing")], this.path);
  }

  #link(target: string, at: string): void {
    mkdirSync(dirname(this.file(at)), { recursive: true });
    symlinkSync(target, this.file(at));
  }
}

test("of a partition the whole disk wears", () => {
  using machine = new Machine();
  machine.block("mmc/block/mmcblk0").block("mmc/block/mmcblk0/mmcblk0p2", { partition: "2" });
  assert.deepEqual(machine.holds("mmc/block/mmcblk0/mmcblk0p2").disks, ["mmcblk0"]);
});

test("below the device mapper and RAID every disk of it wears", () => {
  using machine = new Machine();
  machine.block("usb/block/sda").block("usb/block/sda/sda1", { partition: "1" }).block("usb/block/sdb");
  machine.block("virtual/block/md0", { "slaves/sda1/x": "", "slaves/sdb/x": "" });
  machine.block("virtual/block/dm-0", { "slaves/md0/x": "" });
  assert.deepEqual(machine.holds("virtual/block/dm-0").disks, ["sda", "sdb"]);
});

test("of a loop device the disk that its file is on wears", () => {
  using machine = new Machine();
  machine.block("mmc/block/mmcblk1").block("virtual/block/loop3", { "loop/backing_file": "/images/data.img\n" });
  machine.write("images/data.img", "").write("other", "");
  // The file lies on the same file system as everything here: the loop device is found by the mount instead.
  machine.write("proc/self/mountinfo", `40 1 ${machine.numbers} / /data rw - ext4 /dev/loop3 rw\n`);
  assert.deepEqual(machine.disks, [], "a loop on itself ends");
  machine.holds("mmc/block/mmcblk1");
  assert.deepEqual(machine.disks, ["mmcblk1"]);
});

test("a file system with numbers of its own is found by its mount's source", () => {
  using machine = new Machine();
  machine.block("nvme/nvme0/nvme0n1").block("nvme/nvme0/nvme0n1/nvme0n1p3", { partition: "3" });
  machine.write("proc/self/mountinfo", `40 1 ${machine.numbers} / /data rw shared:1 - btrfs /dev/nvme0n1p3 rw\n`);
  assert.deepEqual(machine.disks, ["nvme0n1"]);
});

test("memory never wears; where the disk is unknown, all hardware counts", () => {
  using machine = new Machine();
  machine.block("virtual/block/zram0").block("virtual/block/loop0").holds("virtual/block/zram0");
  assert.deepEqual(machine.disks, []);
  using overlay = new Machine();
  overlay.block("mmc/block/mmcblk0", { "device/x": "" }).block("virtual/block/zram0").block("virtual/block/loop0");
  overlay.block("scsi/block/sr0", { "device/x": "" });
  overlay.write("proc/self/mountinfo", `40 1 ${overlay.numbers} / /data rw - overlay overlay rw\n`);
  assert.deepEqual(overlay.disks, ["mmcblk0"]);
});

test("this machine's own folder is on a disk, or on none that is known", () => {
  for (const name of flashDisks([process.cwd()])) assert.match(name, /^[a-z0-9-]+$/);
});
