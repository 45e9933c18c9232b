/**
 * `npm run firmware:test`: makes the image twice, boots it on an emulated board, and installs its own update bundle
 * into the other slot. Prints one JSON document; leaves with 1 when a goal is missed.
 */
import { createHash } from "node:crypto";
import { createReadStream, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { boardOf, type Flavour } from "@picolet/firmware/image/boards.ts";
import { type BuiltImage, buildImage } from "@picolet/firmware/image/build-image.ts";
import { developmentKey } from "@picolet/firmware/image/signing-key.ts";
import { sourceEpoch } from "@picolet/firmware/packages/build-packages.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { BOOT_LIMIT_MS, boardMissing, EmulatedBoard } from "@picolet/test/support/firmware/emulated-board.ts";
import { buildPrograms } from "../build/build.ts";
import { readOptions } from "../start/options.ts";

/** An image is downloaded over slow lines, and boards have 512 MiB. */
const GOALS = { compressedMB: 250, memoryMiBAtRest: 120, memoryMiBAtRestNoContainers: 70 } as const;
const BOARD = boardOf("generic-amd64");

interface Booted {
  readonly memoryMiB: number;
  readonly bootToReadySeconds: number;
}

async function build(folder: string, flavour: Flavour, compress: boolean): Promise<BuiltImage> {
  const [distribution = ""] = await buildPrograms(BOARD.platform);
  return buildImage(folder, {
    ...{ board: BOARD, flavour, version: VERSION, epoch: sourceEpoch(), distribution, compress, bundle: compress },
    ...{ allowDrift: true, onWarning: (text: string) => console.error(`warning: ${text}`) },
    key: (tools) => developmentKey(tools, join(scratch, "key")),
  });
}

const MEMORY = "awk '/^MemTotal/{t=$2}/^MemAvailable/{a=$2}END{print int((t-a)/1024)}' /proc/meminfo";

async function boot(image: string, then?: (board: EmulatedBoard) => Promise<void>): Promise<Booted> {
  await using board = await EmulatedBoard.start({ image });
  await board.shellReady();
  await board.until("systemctl is-active picolet && edgectl status");
  const bootToReadySeconds = Number((await board.output("cut -d. -f1 /proc/uptime")).trim());
  // Boards end what they do once after a boot, and the agent releases its caches.
  await board.output("sleep 60; sync; echo 3 > /proc/sys/vm/drop_caches");
  const memoryMiB = Number((await board.output(MEMORY)).trim());
  await then?.(board);
  return { memoryMiB, bootToReadySeconds };
}

/** Serves the bundle's file to the board through its data partition, installs it, and boots it. */
async function update(board: EmulatedBoard, bundle: string): Promise<number> {
  const begun = performance.now();
  await board.upload(bundle, "/data/update.raucb");
  await board.output("rauc install /data/update.raucb && rauc status mark-active other", 4 * BOOT_LIMIT_MS);
  await board.reboot();
  await board.until("grep -q rauc.slot=B /proc/cmdline && systemctl is-active picolet");
  await board.until('test "$(/usr/lib/picolet-image/boot-slots get-state B)" = good');
  return Math.round((performance.now() - begun) / 1000);
}

async function sha256(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

async function measure(): Promise<object> {
  const containers = await build(join(scratch, "one"), "containers", true);
  const raw = await build(join(scratch, "two"), "containers", false);
  const again = await build(join(scratch, "three"), "containers", false);
  const reproducible = (await sha256(raw.image)) === (await sha256(again.image));
  rmSync(join(scratch, "three"), { recursive: true });
  let seconds = 0;
  const booted = await boot(raw.image, async (board) => {
    seconds = await update(board, containers.bundle);
  });
  const components = await build(join(scratch, "four"), "components", false);
  const without = await boot(components.image);
  return {
    image: {
      compressedMB: Math.round(statSync(containers.image).size / 1e6),
      memoryMiBAtRest: booted.memoryMiB,
      memoryMiBAtRestNoContainers: without.memoryMiB,
      bootToReadySeconds: booted.bootToReadySeconds,
    },
    update: { bytesOfFull: statSync(containers.bundle).size, seconds },
    reproducible,
  };
}

readOptions({
  name: "firmware:test",
  summary: "makes, boots and updates an image; leaves with 1 when a goal is missed",
  flags: [],
});
const missing = boardMissing();
if (missing !== undefined) {
  console.error(missing);
  process.exit(1);
}
const scratch = mkdtempSync(join(tmpdir(), "picolet-firmware-"));
try {
  const document = (await measure()) as { readonly image: Readonly<Record<string, number>>; reproducible: boolean };
  console.log(JSON.stringify(document));
  const missed = Object.entries(GOALS).filter(([name, most]) => (document.image[name] ?? Number.NaN) > most);
  for (const [name, most] of missed) console.error(`MISSED image.${name}: ${document.image[name]}, at most ${most}`);
  if (!document.reproducible) console.error("MISSED reproducible: two builds differ");
  process.exitCode = missed.length > 0 || !document.reproducible ? 1 : 0;
} catch (error) {
  console.error(describeError(error));
  process.exitCode = 1;
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
