/**
 * The distributions of linux-arm64, built on this machine of another architecture, and run on an emulated processor.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { ownPlatform } from "@picolet/scripts/build/platform-parts.ts";
import { DistributionContents } from "../support/distribution/distribution-contents.ts";

const PLATFORM = "linux-arm64";
const EMULATOR = "/usr/bin/qemu-aarch64";
/** glibc and libstdc++ of that architecture: Debian's libc6-arm64-cross and libstdc++6-arm64-cross. */
const LIBRARIES = "/usr/aarch64-linux-gnu";
/** Emulated, Node takes seconds to start; a loaded machine ten times as long. */
const RUN_LIMIT_MS = 120_000;

const skip = ownPlatform() === PLATFORM ? "this machine is of that architecture" : false;
const noEmulator =
  skip || ([EMULATOR, `${LIBRARIES}/lib/libstdc++.so.6`].every(existsSync) ? false : `not installed: ${EMULATOR}`);
const [boardFolder, hubFolder] = [distributionFolder("board", PLATFORM), distributionFolder("hub", PLATFORM)];
const SQLITE = `lib/node_modules/better-sqlite3/prebuilds/${PLATFORM}.node`;
const KOFFI = `lib/node_modules/@koromix/koffi-${PLATFORM}`;
const ADDON = `${KOFFI}/linux_arm64/koffi.node`;

before(() => {
  if (skip !== false) return;
  const { status, stderr } = spawnSync(process.execPath, ["scripts/build/build.ts", "--platform", PLATFORM], {
    encoding: "utf8",
  });
  assert.equal(status, 0, stderr);
});

function emulated(folder: string, ...args: readonly string[]): string {
  const command = ["-L", LIBRARIES, join(folder, "lib/node"), ...args];
  const { status, stdout, stderr } = spawnSync(EMULATOR, command, { encoding: "utf8", timeout: RUN_LIMIT_MS });
  assert.equal(status, 0, stderr);
  return stdout.trim();
}

test("all machine code is of that architecture", { skip }, () => {
  new DistributionContents(boardFolder).assertNative(PLATFORM, ["lib/node", ADDON, SQLITE]);
  new DistributionContents(hubFolder).assertNative(PLATFORM, ["lib/node", SQLITE]);
});

test("all else is the same as on this machine's", { skip }, () => {
  for (const [one, other] of [
    ["dist/board", boardFolder],
    ["dist/hub", hubFolder],
  ] as const) {
    const plain = (root: string): object => {
      const files = new DistributionContents(root).files.filter(
        (file) => !/^lib\/node$|\.node$|^lib\/node_modules\/@koromix|^sbom|^THIRD/.test(file),
      );
      const hashOf = (file: string): string =>
        createHash("sha256")
          .update(readFileSync(join(root, file)))
          .digest("hex");
      return Object.fromEntries(files.map((file) => [file, hashOf(file)]));
    };
    assert.deepEqual(plain(other), plain(one));
  }
});

test("its papers name what is in it", { skip }, () => {
  const board = new DistributionContents(boardFolder);
  board.assertLicensed();
  board.assertWithout(["@kubernetes/client-node"]);
  const names = board.packages.map(({ name }) => name);
  assert.ok(names.includes(`@koromix/koffi-${PLATFORM}`) && !names.includes(`@koromix/koffi-${ownPlatform()}`));
  new DistributionContents(hubFolder).assertLicensed();
});

test("its programs start, and its addons load", { skip: noEmulator }, () => {
  assert.match(emulated(boardFolder, join(boardFolder, "lib/picolet.cjs"), "--version"), /^picolet \d/);
  assert.match(emulated(boardFolder, join(boardFolder, "lib/edgectl.cjs"), "help"), /edgectl/);
  assert.match(emulated(hubFolder, join(hubFolder, "lib/picolet-hub.mjs"), "--help"), /picolet-hub/);
  const [program, addon] = [join(boardFolder, "lib/picolet.cjs"), join(boardFolder, ADDON)].map((path) =>
    JSON.stringify(join(process.cwd(), path)),
  );
  const script = `
    const Database = require("node:module").createRequire(${program})("better-sqlite3");
    process.dlopen({ exports: {} }, ${addon});
    console.log(process.arch, new Database(":memory:").prepare("SELECT 6 * 7 AS n").get().n);`;
  assert.equal(emulated(boardFolder, "-e", script), "arm64 42");
});
