/**
 * All that a user downloads of one version, in one folder: Debian packages, archives, the hub's image, its manifests
 * and chart, bills of materials, further files such as firmware images, their sums, and a signature. The same commit
 * makes the same bytes.
 */
import { execFileSync } from "node:child_process";
import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign } from "node:crypto";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import type { Platform } from "@picolet/scripts/build/platform-parts.ts";
import { makeHubImage } from "../hub-image/build-hub-image.ts";
import { makePackages } from "../packages/build-packages.ts";
import { makeTarball } from "../tarballs/tarballs.ts";

/** Names in the folder, beside those of the artefacts. */
export const SUMS = "SHA256SUMS";
export const SIGNATURE = "SHA256SUMS.sig";
export const PUBLIC_KEY = "picolet-release.pub.pem";

const TAR_LIMIT_BYTES = 64 * MEBIBYTE;

export interface ReleaseInit {
  /** Replaced. */
  readonly folder: string;
  readonly platforms: readonly Platform[];
  /** Seconds of Unix time: SOURCE_DATE_EPOCH. */
  readonly epoch: number;
  /** Further files, such as firmware images and updates. */
  readonly add: readonly string[];
  /** Ed25519. Undefined: the sums are not signed. */
  readonly signingKey: KeyObject | undefined;
  /** True for a test: nothing is compressed. */
  readonly isQuick?: boolean;
}

/** @throws `invalid` for a file that holds no private key of Ed25519 */
export function readSigningKey(path: string): KeyObject {
  let key: KeyObject;
  try {
    key = createPrivateKey(readFileSync(path));
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read the signing key ${path}: it must be a private key in PEM`, {
      cause,
    });
  }
  if (key.asymmetricKeyType === "ed25519") return key;
  const how = "make one with: openssl genpkey -algorithm ed25519 -out release.key";
  throw new PicoletError("invalid", `the signing key ${path} is ${key.asymmetricKeyType}, not ed25519; ${how}`);
}

/**
 * Makes it of what has been built for the platforms.
 * @returns names of the files @throws `already_exists` for a further file that has the name of an artefact
 */
export function makeRelease(init: ReleaseInit): readonly string[] {
  const { folder, platforms, epoch, add, signingKey, isQuick = false } = init;
  const level = isQuick ? 0 : 9;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const platform of platforms) {
    makePackages(platform, folder, { epoch, compression: isQuick ? "none" : "xz" });
    for (const [name, part] of [
      ["picolet", "board"],
      ["picolet-hub", "hub"],
    ] as const) {
      const distribution = distributionFolder(part, platform);
      makeTarball({ name, platform, distribution, epoch, level }, folder);
      // The package and the archive have the same programs.
      copyFileSync(join(distribution, "sbom.cdx.json"), join(folder, `${name}-${VERSION}-${platform}.cdx.json`));
    }
  }
  const { layout } = makeHubImage(platforms, folder, epoch, level);
  rmSync(layout, { recursive: true });
  makeManifests(folder, epoch, level);
  for (const file of add) {
    const target = join(folder, basename(file));
    if (existsSync(target)) throw new PicoletError("already_exists", `the release has a ${basename(file)} already`);
    cpSync(file, target);
  }
  return writeSums(folder, signingKey);
}

/** The chart as `helm install` takes it, and the kustomization with the same objects. */
function makeManifests(folder: string, epoch: number, level: number): void {
  const deploy = "hub/deploy";
  const plain = readdirSync(deploy).filter((name) => name !== "chart");
  const chart = readdirSync(`${deploy}/chart`);
  const archive = (name: string, top: string, from: string, files: readonly string[]): void => {
    const stage = mkdtempSync(join(tmpdir(), "picolet-manifests-"));
    try {
      for (const each of files) cpSync(join(from, each), join(stage, top, each), { recursive: true });
      const flags = ["--sort=name", `--mtime=@${epoch}`, "--owner=0", "--group=0", "--numeric-owner"];
      const all = [...flags, "--format=ustar", "--mode=u=rwX,go=rX", "-C", stage, "-cf", "-", top];
      const tar = execFileSync("tar", all, { maxBuffer: TAR_LIMIT_BYTES });
      writeFileSync(join(folder, name), gzipSync(tar, { level }));
    } finally {
      rmSync(stage, { recursive: true });
    }
  };
  archive(`picolet-hub-chart-${VERSION}.tgz`, "picolet-hub", `${deploy}/chart`, chart);
  archive(`picolet-hub-kustomize-${VERSION}.tar.gz`, "picolet-hub", deploy, plain);
}

/** As `sha256sum` writes and reads them; signed as `openssl pkeyutl -verify -rawin` reads it. */
function writeSums(folder: string, signingKey: KeyObject | undefined): readonly string[] {
  const names = readdirSync(folder).sort();
  const sum = (name: string): string =>
    createHash("sha256")
      .update(readFileSync(join(folder, name)))
      .digest("hex");
  const sums = names.map((name) => `${sum(name)}  ${name}\n`).join("");
  writeFileSync(join(folder, SUMS), sums);
  if (signingKey === undefined) return [...names, SUMS];
  writeFileSync(join(folder, SIGNATURE), sign(null, Buffer.from(sums), signingKey));
  writeFileSync(join(folder, PUBLIC_KEY), createPublicKey(signingKey).export({ type: "spki", format: "pem" }));
  return [...names, SUMS, SIGNATURE, PUBLIC_KEY];
}
