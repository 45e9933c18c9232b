/**
 * The image for Raspberry Pi: its structure, of a small tree, as the board's firmware and RAM disk read it; and, on
 * request, the whole image on an emulated Pi 3, whose firmware is the rules of its documentation.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { boardOf } from "@picolet/firmware/image/boards.ts";
import type { Tools } from "@picolet/firmware/image/build-tools.ts";
import { makeDiskImage } from "@picolet/firmware/image/disk-image.ts";
import { raspberryPiLoader } from "@picolet/firmware/image/raspberry-pi-loader.ts";
import { makeSlotImage } from "@picolet/firmware/image/slot-image.ts";
import { BOOT_LIMIT_MS } from "../support/firmware/emulated-board.ts";
import { EmulatedPi, piMissing } from "../support/firmware/emulated-pi.ts";
import { testImage } from "../support/firmware/test-image.ts";
import { bootedPartition } from "../support/unit/firmware/raspberry-pi-rom.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const PROGRAMS = [
  "/usr/sbin/mkfs.fat",
  "/usr/bin/mcopy",
  "/usr/sbin/sfdisk",
  "/usr/sbin/veritysetup",
  "/usr/sbin/mke2fs",
];
const missing = PROGRAMS.filter((path) => !existsSync(path));
const skip =
  process.getuid?.() !== 0 ? "it needs root" : missing.length > 0 ? `not installed: ${missing.join(", ")}` : false;

/** This machine's programs in place of those of the image's release. */
class HostTools implements Tools, Disposable {
  readonly #folder = new TempFolder();
  readonly work = this.#folder.at("work");

  constructor() {
    mkdirSync(this.work);
  }
  run(program: string, args: readonly string[], input: string | Uint8Array = ""): Buffer {
    const env = {
      PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
      LC_ALL: "C.UTF-8",
      TZ: "UTC0",
      SOURCE_DATE_EPOCH: String(EPOCH),
    };
    return execFileSync(program, args, { cwd: this.work, input, env, stdio: ["pipe", "pipe", "pipe"] });
  }
  shell(line: string): string {
    return this.run("sh", ["-euc", line]).toString("utf8");
  }
  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

/** Seconds of Unix time. */
const EPOCH = 1_790_000_000;
const KERNEL = "7.3.4-arm64";
const FILES: Readonly<Record<string, string>> = {
  [`usr/lib/modules/${KERNEL}/vmlinuz`]: "kernel",
  [`usr/lib/modules/${KERNEL}/dtb/broadcom/bcm2837-rpi-3-b.dtb`]: "tree of 3",
  [`usr/lib/modules/${KERNEL}/dtb/broadcom/bcm2712-rpi-5-b.dtb`]: "tree of 5",
  [`usr/lib/modules/${KERNEL}/dtb/broadcom/bcm4708-router.dtb`]: "tree of none",
  ...Object.fromEntries(
    ["bootcode.bin", "start.elf", "fixup.dat", "start4.elf", "fixup4.dat", "start_x.elf"].map((name) => [
      `usr/lib/raspi-firmware/${name}`,
      name,
    ]),
  ),
  "boot/initrd.img": "RAM disk",
};

test("the card of a Raspberry Pi has what firmware and RAM disk look for", { skip }, () => {
  const board = boardOf("raspberrypi");
  assert.ok(board.loader.kind === "raspberrypi");
  using tools = new HostTools();
  for (const [path, content] of Object.entries(FILES)) {
    mkdirSync(dirname(join(tools.work, "root", path)), { recursive: true });
    writeFileSync(join(tools.work, "root", path), content);
  }
  const loader = raspberryPiLoader(board, board.loader, new Map());
  loader.finishSlot(tools, "root", EPOCH);
  const { rootHash } = makeSlotImage(tools, "root", "test", EPOCH);
  loader.makeFats(tools, "root", "test", EPOCH);
  const image = join(tools.work, makeDiskImage(tools, loader, "test"));

  const dump = execFileSync("sfdisk", ["--json", image], { encoding: "utf8" });
  const { partitiontable: table } = JSON.parse(dump) as {
    partitiontable: {
      label: string;
      id: string;
      partitions: { node: string; start: number; size: number; type: string }[];
    };
  };
  assert.equal(table.label, "dos");
  const places = new Map(table.partitions.map((each) => [Number(/(\d+)$/.exec(each.node)?.[1]), each]));
  assert.deepEqual(
    [...places].map(([number, { type }]) => `${number}:${type}`),
    ["1:c", "2:c", "3:c", "4:f", "5:83", "6:83", "7:83", "8:83"],
  );
  const end = Math.max(...table.partitions.map(({ start, size }) => start + size));
  assert.ok(end * 512 < 3.6e9, "it fits a card of 4 GB");

  const startOf = (number: number): number => (places.get(number)?.start ?? 0) * 512;
  const read = (number: number, path: string): string =>
    tools.run("mcopy", ["-n", "-i", `${image}@@${startOf(number)}`, `::${path}`, "-"]).toString("latin1");
  const autoboot = read(1, "autoboot.txt");
  assert.equal(autoboot.length, 512);
  assert.equal(bootedPartition(autoboot, false), 2);
  assert.equal(bootedPartition(autoboot, true), 3);
  assert.equal(read(1, "bootcode.bin"), "bootcode.bin");
  assert.match(read(1, "picolet.yaml"), /^# picolet\.yaml/);

  const files = tools.run("mdir", ["-b", "-i", `${image}@@${startOf(2)}`, "::"]).toString("utf8");
  assert.deepEqual(
    files
      .trim()
      .split("\n")
      .map((line) => line.replace("::/", ""))
      .sort(),
    [
      ...["bcm2712-rpi-5-b.dtb", "bcm2837-rpi-3-b.dtb", "cmdline.txt", "config.txt", "fixup.dat", "fixup4.dat"],
      ...["initrd.img", "kernel8.img", "start.elf", "start4.elf"],
    ],
  );
  const commandLine = read(2, "cmdline.txt");
  const disk = table.id.replace("0x", "");
  assert.match(commandLine, new RegExp(`picolet\\.root=${disk}-06 picolet\\.boot-state=${disk}-05 rauc\\.slot=A `));
  assert.match(commandLine, /console=ttyS1,115200\n$/);
  assert.match(read(2, "config.txt"), /^kernel=kernel8\.img$/m);

  // The line behind the file system, by which the RAM disk asks for dm-verity.
  const place = [`skip=${startOf(6) / 2 ** 20}`, "count=32"];
  tools.run("dd", [`if=${image}`, "of=slot-of-card", "bs=1M", ...place, "status=none"]);
  const slot = readFileSync(join(tools.work, "slot-of-card"));
  const blocks = slot.readUInt32LE(1028);
  const line = slot.toString("latin1", blocks * 4096, blocks * 4096 + 200).split("\n")[0] ?? "";
  assert.match(line, new RegExp(`^picolet-verity 1 ${blocks} ${blocks + 2} sha256 ${rootHash} `));
  const offset = `--hash-offset=${(blocks + 1) * 4096}`;
  tools.run("veritysetup", ["verify", "slot-of-card", "slot-of-card", rootHash, offset, `--data-blocks=${blocks}`]);
});

/** Boots take minutes on a busy machine: `npm run test:image` runs it. */
if (process.env.PICOLET_FIRMWARE === "1") describe("the image on an emulated Raspberry Pi 3", bootTests);

function bootTests(): void {
  const absent = piMissing() ?? false;
  let board: EmulatedPi;

  before(async () => {
    if (absent !== false) return;
    const { image } = await testImage({ board: "raspberrypi" });
    board = EmulatedPi.create(image);
    board.writeFile(1, "picolet.yaml", "node:\n  name: pi-1\n");
    await board.turnOn();
  });
  after(async () => {
    await board?.[Symbol.asyncDispose]();
  });

  test("a new card starts by picolet.yaml, and edgectl shows its runtimes", { skip: absent }, async () => {
    await board.serial.waitFor(/slot A, try 1 of 3/, BOOT_LIMIT_MS);
    await board.serial.waitFor(/picolet\.yaml: applied\. Node pi-1/, 3 * BOOT_LIMIT_MS);
    await board.serial.waitFor(/picolet on pi-1[\s\S]*picolet> /, BOOT_LIMIT_MS);
    let from: number;
    do {
      from = board.serial.length;
      board.serial.send("status\r");
      await board.serial.waitFor(/status[\s\S]*?picolet> /, BOOT_LIMIT_MS, from);
      // It has no network, so its clock is not set.
    } while (!/pi-1 is (?:healthy|degraded: its clock is not set)[\s\S]*containerd \S+ ready/.test(board.serial.tail));
  });
}
