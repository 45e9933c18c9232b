/**
 * `npm run firmware`: the image that is flashed, the bundle that updates a board to it, a manifest and a bill of
 * materials. No loop mounts and no emulation: root in a container is enough. The same commit makes the same image; of
 * the bundle the system in it, as RAUC signs with the time and a random salt.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { choiceFlag, fileFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { buildPrograms, bundleProgram } from "@picolet/scripts/build/build.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { endWithUsageError, readOptions } from "@picolet/scripts/options.ts";
import { sourceEpoch } from "../packages/build-packages.ts";
import { type Architecture, pack } from "../packages/debian-package.ts";
import { boardPackage } from "../packages/packages.ts";
import { BOARDS, type Board, boardOf, compatibleOf, FLAVOURS, type Flavour, packagesOf } from "./boards.ts";
import type { BootLoader } from "./boot-loader.ts";
import { BuildTools } from "./build-tools.ts";
import {
  currentLock,
  debianTree,
  driftOf,
  type InstalledPackage,
  LOCK_FILE,
  lockKey,
  lockText,
  type PackageLock,
  type PackageTree,
} from "./debian-packages.ts";
import { makeDiskImage } from "./disk-image.ts";
import { grubLoader } from "./grub-loader.ts";
import { billOfMaterialsText, filesOf, type ImageContents, manifestText } from "./manifest.ts";
import { raspberryPiLoader } from "./raspberry-pi-loader.ts";
import { developmentKey, developmentKeyFolder, readSigningKey, type SigningKey } from "./signing-key.ts";
import { makeInitialRamDisk, makeSlotImage } from "./slot-image.ts";
import { finishSystem, kernelVersion, PRUNE_RECIPE, pruneSystem } from "./system-tree.ts";
import { type TrybootModule, trybootModule } from "./tryboot-module.ts";
import { makeBundle } from "./update-bundle.ts";

const own = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/**
 * Bundles `picolet-first-boot` into one file, which picolet's own Node runs.
 * @param outfile where the program goes: `…/usr/lib/picolet-image/first-boot.cjs`
 */
export const buildFirstBoot = (outfile: string): Promise<void> =>
  bundleProgram("firmware/first-boot/first-boot-main.ts", outfile);

export interface ImageOptions {
  readonly board: Board;
  readonly flavour: Flavour;
  readonly version: string;
  /** Seconds of Unix time: of all files. */
  readonly epoch: number;
  /** The distribution of the board's platform that `npm run build` made. */
  readonly distribution: string;
  readonly key: (tools: BuildTools) => SigningKey;
  /** Packages in other versions than those of packages.lock are used, with a warning. */
  readonly allowDrift: boolean;
  /** Compressing the image, and the bundle as much as it can be, takes minutes. */
  readonly compress: boolean;
  readonly bundle: boolean;
  readonly onWarning: (text: string) => void;
  /** Changes the finished system, for tests. */
  readonly change?: (tree: string) => void;
}

export interface BuiltImage {
  /** `.img.zst`, or `.img` when it was not to be compressed. */
  readonly image: string;
  /** "" when none was to be made. */
  readonly bundle: string;
  readonly manifest: string;
  readonly billOfMaterials: string;
}

/** Writes all of it into `folder`. @throws what a tool says */
export async function buildImage(folder: string, options: ImageOptions): Promise<BuiltImage> {
  const { board, flavour, version, epoch } = options;
  const lock = currentLock();
  using tools = new BuildTools(lock, epoch);
  const packages = systemPackages(board, flavour, lock);
  judgeDrift(packages, tools, lock, options);
  const compatible = compatibleOf(board, flavour);
  const seed = `${compatible} ${version}`;
  const key = options.key(tools);
  const tree = join(tools.work, "root");
  cpSync(packages.root, tree, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
  const loader = bootLoaderOf(board, lock);
  loader.prepareTree(tools, "root");
  const deb = pack(boardPackage(options.distribution, board.platform, epoch), tools.work, {
    epoch,
    compression: "none",
  });
  const firstBoot = join(tools.work, "first-boot.cjs");
  await buildFirstBoot(firstBoot);
  finishSystem(tools, "root", {
    ...{ board, flavour, version, deb, firstBoot, keyring: key.certificate },
    pauseArchive: flavour === "containers" ? pauseArchive(tools, board) : undefined,
  });
  rmSync(deb);
  options.change?.(tree);
  makeInitialRamDisk(tools, "root", epoch, options.compress);
  loader.finishSlot(tools, "root", epoch);
  const slot = makeSlotImage(tools, "root", seed, epoch);
  const bundle = options.bundle
    ? makeBundle(tools, { compatible, version, slot: slot.path, key, compress: options.compress })
    : "";
  loader.makeFats(tools, "root", seed, epoch);
  const disk = makeDiskImage(tools, loader, seed);
  const contents: ImageContents = {
    ...{ board, flavour, version, compatible, rootHash: slot.rootHash, packages: packages.packages },
    ...{ tools: tools.packages, files: filesOf(tree) },
  };
  return publish(tools, folder, options, { disk, bundle, contents });
}

function bootLoaderOf(board: Board, lock: PackageLock): BootLoader {
  const { loader } = board;
  return loader.kind === "grub" ? grubLoader(board, loader) : raspberryPiLoader(board, loader, lock);
}

function systemPackages(board: Board, flavour: Flavour, lock: PackageLock): PackageTree {
  const { modules = [], backports = [] } = board;
  const prune = (root: string): void => pruneSystem(root, modules);
  const recipe = [PRUNE_RECIPE, ...modules].join("\n");
  return debianTree(board.architecture, packagesOf(board, flavour), lock, prune, recipe, backports);
}

/** Packages of which a board's own kernel module is made. */
const moduleTrees = (board: Board, system: PackageTree, lock: PackageLock): TrybootModule["trees"] =>
  board.loader.kind === "raspberrypi" ? trybootModule(board, kernelVersion(system.root), lock).trees : [];

function judgeDrift(packages: PackageTree, tools: BuildTools, lock: PackageLock, options: ImageOptions): void {
  const { board } = options;
  const drift = [
    ...driftOf(packages.packages, lock, board.architecture),
    ...driftOf(tools.packages, lock, tools.architecture),
    ...moduleTrees(board, packages, lock).flatMap((tree) => driftOf(tree.packages, lock, tree.architecture)),
  ];
  if (drift.length === 0) return;
  const text = [...new Set(drift)].join("; ");
  if (!options.allowDrift)
    throw new PicoletError(
      "conflict",
      `cannot make the image of packages.lock, as Debian's archive has moved on: ${text}. Take these with ` +
        "--allow-drift, or lock them with --update-lock",
    );
  options.onWarning(`packages in other versions than packages.lock has: ${text}`);
}

/** The program of a sandbox: it waits. */
function pauseArchive(tools: BuildTools, board: Board): string {
  const program = join(tools.work, "pause");
  const target = board.architecture === "arm64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
  const flags = ["-Os", "-static", "-nostdlib", "-fuse-ld=lld", "-Wl,--build-id=none"];
  execFileSync("clang", [`--target=${target}`, ...flags, "-o", program, own("pause.c")], { stdio: "pipe" });
  const recipe = { name: "localhost/picolet-pause:1", files: { pause: program }, entrypoint: ["/pause"] };
  return buildImageArchive({ ...recipe, architecture: board.architecture }, join(tools.work, "images"));
}

interface Made {
  readonly disk: string;
  readonly bundle: string;
  readonly contents: ImageContents;
}

function publish(
  tools: BuildTools,
  folder: string,
  options: ImageOptions,
  { disk, bundle, contents }: Made,
): BuiltImage {
  const base = join(folder, `picolet-${options.board.name}-${options.flavour}-${options.version}`);
  mkdirSync(folder, { recursive: true });
  // Levels above 15 take three times as long for 3 %.
  if (options.compress) tools.run("zstd", ["-q", "-15", "-T0", "--rm", disk, "-o", `${disk}.zst`]);
  const image = options.compress ? `${base}.img.zst` : `${base}.img`;
  move(join(tools.work, options.compress ? `${disk}.zst` : disk), image);
  if (bundle !== "") move(join(tools.work, bundle), `${base}.raucb`);
  const distribution = JSON.parse(readFileSync(`${options.distribution}/sbom.cdx.json`, "utf8")) as {
    readonly components: readonly object[];
  };
  writeFileSync(`${base}.manifest.json`, manifestText(contents));
  writeFileSync(`${base}.sbom.cdx.json`, billOfMaterialsText(contents, distribution.components));
  return {
    image,
    bundle: bundle === "" ? "" : `${base}.raucb`,
    manifest: `${base}.manifest.json`,
    billOfMaterials: `${base}.sbom.cdx.json`,
  };
}

/** Holes stay holes. */
function move(from: string, to: string): void {
  execFileSync("cp", ["--sparse=always", "--reflink=auto", from, `${to}.new`]);
  renameSync(`${to}.new`, to);
}

/** Locks the versions that the archive has now, for every board and flavour. */
function updateLock(epoch: number): void {
  const lock = new Map<string, string>();
  const none: PackageLock = new Map();
  const add = (architecture: Architecture, packages: readonly InstalledPackage[]): void => {
    for (const { name, version } of packages) lock.set(lockKey(name, architecture, version), version);
  };
  using tools = new BuildTools(none, epoch);
  add(tools.architecture, tools.packages);
  for (const board of BOARDS.map(boardOf))
    for (const flavour of FLAVOURS) {
      const system = systemPackages(board, flavour, none);
      add(board.architecture, system.packages);
      for (const tree of moduleTrees(board, system, none)) add(tree.architecture, tree.packages);
    }
  writeFileSync(LOCK_FILE, lockText(lock));
}

const BOARD = choiceFlag({ name: "board", help: "what the image is for", choices: BOARDS });
const FLAVOUR = choiceFlag({
  name: "flavour",
  help: "with a container runtime, or for components only",
  choices: FLAVOURS,
  default: "containers",
});
const OUTPUT = fileFlag({ name: "output", value: "DIR", help: "where all is written to", default: "dist/firmware" });
const KEY = fileFlag({ name: "signing-key", value: "FILE", help: "PEM: signs the update bundle" });
const CERTIFICATE = fileFlag({ name: "signing-certificate", value: "FILE", help: "PEM: what boards know that key by" });

async function main(): Promise<void> {
  const input = readOptions({
    name: "firmware",
    summary: "makes the image of a board, its update bundle, a manifest and a bill of materials",
    flags: [
      BOARD,
      FLAVOUR,
      OUTPUT,
      { name: "version", value: "VERSION", help: `of the system in it (default ${VERSION})` },
      KEY,
      CERTIFICATE,
      { name: "allow-drift", help: "take packages in other versions than packages.lock has" },
      { name: "update-lock", help: "write packages.lock of what Debian's archive has now, and make nothing" },
    ],
  });
  if (input.flag("update-lock")) return updateLock(sourceEpoch());
  const name = input.value(BOARD);
  if (name === undefined) endWithUsageError("firmware", usageError(`--board is needed: ${BOARDS.join(", ")}`));
  const [key, certificate] = [input.value(KEY), input.value(CERTIFICATE)];
  if ((key === undefined) !== (certificate === undefined))
    endWithUsageError("firmware", usageError("--signing-key and --signing-certificate go together"));
  const version = input.text("version") ?? VERSION;
  if (!/^[0-9A-Za-z][0-9A-Za-z.+~-]{0,63}$/.test(version))
    endWithUsageError("firmware", usageError(`--version must be letters, digits and .+~-, not "${version}"`));
  const board = boardOf(name);
  const [distribution = ""] = await buildPrograms(board.platform);
  const onWarning = (text: string): void => console.error(`warning: ${text}`);
  const built = await buildImage(resolve(input.value(OUTPUT)), {
    ...{ board, flavour: input.value(FLAVOUR), version, epoch: sourceEpoch(), distribution, onWarning },
    ...{ allowDrift: input.flag("allow-drift"), compress: true, bundle: true },
    key: (tools) => {
      if (key !== undefined && certificate !== undefined) return readSigningKey(key, certificate);
      const folder = developmentKeyFolder();
      onWarning(
        `the bundle is signed with the development key in ${folder}: boards with this image take updates of it`,
      );
      return developmentKey(tools, folder);
    },
  });
  for (const path of Object.values(built)) console.log(`${path}: ${(statSync(path).size / 1e6).toFixed(1)} MB`);
}

if (import.meta.main) {
  await main().catch((error: unknown) => {
    console.error(describeError(error));
    process.exit(1);
  });
}
