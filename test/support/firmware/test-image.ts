/** The image that tests boot, of this working tree: built once, and kept by a hash of what it is made of. */
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type BoardName, boardOf, type Flavour } from "@picolet/firmware/image/boards.ts";
import { type BuiltImage, buildImage } from "@picolet/firmware/image/build-image.ts";
import { FIRMWARE_CACHE } from "@picolet/firmware/image/debian-packages.ts";
import { developmentKey } from "@picolet/firmware/image/signing-key.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { FileLock } from "@picolet/scripts/build/file-lock.ts";

/** Files of it have this time, for every commit: tests of two commits with the same sources share an image. */
const EPOCH = 1_790_000_000;
const WEEK_MS = 7 * 24 * 3_600_000;

export interface TestImageOptions {
  readonly board?: BoardName;
  readonly flavour?: Flavour;
  readonly version?: string;
  /** The update bundle too, which takes a minute more. */
  readonly bundle?: boolean;
  /** What is done to the system in it. */
  readonly variant?: Variant;
}

/** Changes of a finished system, by what they are for. */
const VARIANTS = {
  /** The agent of another release: the same program, elsewhere on the card. */
  newAgent: (tree: string): void => replaceText(join(tree, AGENT), /^/, "/* another release */\n"),
  /** The agent is there, and never answers. */
  neverHealthy: (tree: string): void =>
    writeFileSync(
      join(tree, "usr/lib/picolet/bin/picolet"),
      "#!/bin/sh\nsystemd-notify --ready\nexec sleep infinity\n",
    ),
  /** The kernel starts, and has no init that goes on: it panics. */
  neverBoots: (tree: string): void => {
    const init = join(tree, "usr/sbin/init");
    rmSync(init);
    writeFileSync(init, "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  },
} as const;
export type Variant = keyof typeof VARIANTS;
const AGENT = "usr/lib/picolet/lib/picolet.cjs";

function replaceText(path: string, from: RegExp, to: string): void {
  writeFileSync(path, readFileSync(path, "utf8").replace(from, to));
}

/** Takes 1 to 3 minutes where it is not there yet. One process at a time makes one; others wait for it. */
export async function testImage(options: TestImageOptions = {}): Promise<BuiltImage> {
  const { board = "generic-amd64", flavour = "containers", version = "0.1.0", bundle = false, variant } = options;
  const distribution = distributionFolder("board", boardOf(board).platform);
  const key = hashOf(
    ["firmware", distribution],
    JSON.stringify([board, flavour, version, bundle, variant, String(variant && VARIANTS[variant])]),
  );
  const folder = join(FIRMWARE_CACHE, `image-${key}`);
  mkdirSync(FIRMWARE_CACHE, { recursive: true });
  await using _ = await FileLock.take(join(FIRMWARE_CACHE, "lock"));
  removeOldImages();
  if (!existsSync(folder)) {
    const making = mkdtempSync(join(FIRMWARE_CACHE, `making-${process.pid}-`));
    try {
      await buildImage(making, {
        ...{ board: boardOf(board), flavour, version, epoch: EPOCH, distribution, bundle, compress: false },
        ...{ allowDrift: true, onWarning: (text) => console.error(`warning: ${text}`) },
        key: (tools) => developmentKey(tools, join(FIRMWARE_CACHE, "key")),
        ...(variant === undefined ? {} : { change: VARIANTS[variant] }),
      });
      renameSync(making, folder);
    } finally {
      rmSync(making, { recursive: true, force: true });
    }
  }
  const base = join(folder, `picolet-${board}-${flavour}-${version}`);
  return {
    image: `${base}.img`,
    bundle: bundle ? `${base}.raucb` : "",
    manifest: `${base}.manifest.json`,
    billOfMaterials: `${base}.sbom.cdx.json`,
  };
}

const NOT_IN_IMAGE = /(?:\.test\.ts|\.md)$/;

function hashOf(folders: readonly string[], parameters: string): string {
  const hash = createHash("sha256").update(parameters);
  for (const folder of folders)
    for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" }).sort()) {
      const path = join(folder, name);
      const stat = statSync(path);
      if (stat.isFile() && !NOT_IN_IMAGE.test(name))
        hash.update(`${name} ${stat.mode & 0o111}\n`).update(readFileSync(path));
    }
  return hash.digest("hex").slice(0, 16);
}

/** Removes images and trees older than a week. */
function removeOldImages(): void {
  for (const name of readdirSync(FIRMWARE_CACHE).filter((each) => /^(image|tree|making)-/.test(each))) {
    const path = join(FIRMWARE_CACHE, name);
    if (Date.now() - statSync(path).mtimeMs > WEEK_MS) rmSync(path, { recursive: true, force: true });
  }
}
