/** Archives of agent and hub for Linux systems without dpkg: a distribution of `npm run build`, and `install.sh`. */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { Platform } from "@picolet/scripts/build/platform-parts.ts";
import { LIBRARIES } from "../packages/packages.ts";

interface Contents {
  readonly programs: readonly string[];
  /** Files of `init/` by their name there. */
  readonly init: Readonly<Record<string, string>>;
  readonly documents: Readonly<Record<string, string>>;
}

export type TarballName = "picolet" | "picolet-hub";

const CONTENTS: Readonly<Record<TarballName, Contents>> = {
  picolet: {
    programs: ["picolet", "edgectl"],
    init: {
      "picolet.service": "../packages/picolet/picolet.service",
      "picolet.tmpfiles": "../packages/picolet/picolet.tmpfiles",
      "picolet.openrc": "../packages/picolet/picolet.openrc",
      "picolet.init": "picolet.init",
    },
    documents: { "config.yaml": "../packages/picolet/config.yaml", inittab: "../packages/picolet/inittab" },
  },
  "picolet-hub": {
    programs: ["picolet-hub"],
    init: {
      "picolet-hub.service": "../packages/picolet-hub/picolet-hub.service",
      "picolet-hub.openrc": "picolet-hub.openrc",
      "picolet-hub.init": "picolet-hub.init",
    },
    documents: { "config.yaml": "../packages/picolet-hub/config.yaml" },
  },
};

const TAR_LIMIT_BYTES = 512 * MEBIBYTE;
const ownFile = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export interface TarballInit {
  readonly name: TarballName;
  readonly platform: Platform;
  /** The distribution that was built for it. */
  readonly distribution: string;
  /** Seconds of Unix time, of all files. */
  readonly epoch: number;
  /** As the file's name and \`install.sh\` have it. */
  readonly version?: string;
  /** Level of gzip; 9 takes a minute of CPU. */
  readonly level?: number;
}

/** @returns the path: `FOLDER/picolet-0.1.0-linux-x64.tar.gz`; the same input makes the same bytes */
export function makeTarball(init: TarballInit, folder: string): string {
  const { name, platform, distribution, epoch, version = VERSION, level = 9 } = init;
  const { programs, init: services, documents } = CONTENTS[name];
  const stage = mkdtempSync(join(tmpdir(), "picolet-tarball-"));
  const top = `${name}-${version}-${platform}`;
  const root = join(stage, top);
  try {
    cpSync(distribution, root, { recursive: true, dereference: true });
    for (const each of ["init", `share/doc/${name}`]) mkdirSync(join(root, each), { recursive: true });
    for (const [to, from] of Object.entries(services)) copyFileSync(ownFile(from), join(root, "init", to));
    for (const [to, from] of Object.entries(documents))
      copyFileSync(ownFile(from), join(root, `share/doc/${name}`, to));
    copyFileSync(ownFile("install.sh"), join(root, "install.sh"));
    chmodSync(join(root, "install.sh"), 0o755);
    const facts = {
      ...{ NAME: name, PLATFORM: platform, VERSION: version, PROGRAMS: programs.join(" ") },
      ...{ GLIBC: LIBRARIES.glibc, GLIBCXX: LIBRARIES.glibcxx },
    };
    const lines = Object.entries(facts).map(([key, value]) => `${key}="${value}"\n`);
    writeFileSync(join(root, "package"), lines.join(""));
    const flags = ["--sort=name", `--mtime=@${epoch}`, "--owner=0", "--group=0", "--numeric-owner"];
    const tar = execFileSync("tar", [...flags, "--format=ustar", "--mode=u=rwX,go=rX", "-C", stage, "-cf", "-", top], {
      maxBuffer: TAR_LIMIT_BYTES,
    });
    mkdirSync(folder, { recursive: true });
    const target = join(folder, `${top}.tar.gz`);
    writeFileSync(target, gzipSync(tar, { level }));
    return target;
  } finally {
    rmSync(stage, { recursive: true });
  }
}
