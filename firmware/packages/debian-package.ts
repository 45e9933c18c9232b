/** A binary Debian package (deb(5)), made by dpkg-deb: the same input gives the same bytes on every machine. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  cpSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { gzipSync } from "node:zlib";
import { paragraph } from "@picolet/scripts/docs/markdown.ts";

export type Architecture = "amd64" | "arm64";

/** A file of a package. */
export type PackageFile =
  | { readonly content: string | Uint8Array; readonly mode?: number }
  /** A file or a folder with all that is in it; what may be executed stays so. */
  | { readonly source: string }
  | { readonly link: string }
  | { readonly folder: true };

export interface DebianPackage {
  readonly name: string;
  /** Debian's form: `0.1.0`. */
  readonly version: string;
  readonly architecture: Architecture;
  /** Further fields of the control file, in its own form and order: `Depends`, `Section` … */
  readonly fields: Readonly<Record<string, string>>;
  /** One line without a full stop. */
  readonly synopsis: string;
  /** Paragraphs; each is filled. */
  readonly description: readonly string[];
  /** By absolute path. */
  readonly files: ReadonlyMap<string, PackageFile>;
  /** Files of the administrator, which an upgrade leaves alone. */
  readonly conffiles: readonly string[];
  /** `postinst` and so on, each a shell script. */
  readonly scripts: Readonly<Record<string, string>>;
}

export interface PackOptions {
  /** Seconds of Unix time, of all that is in the package: SOURCE_DATE_EPOCH. */
  readonly epoch: number;
  /** `xz` is what is released: a minute of CPU for each package. */
  readonly compression: "xz" | "none";
}

export const MAINTAINER = "picolet developers <developers@picolet.io>";
/** Without the space that begins each line. */
const DESCRIPTION_WIDTH = 78;

/** As gzip(1) with -9n: without a name and a time. */
export const gzipped = (text: string): PackageFile => ({ content: gzipSync(text, { level: 9 }) });

/** @returns the path of the package, `FOLDER/NAME_VERSION_ARCHITECTURE.deb` @throws what dpkg-deb says */
export function pack(debian: DebianPackage, folder: string, { epoch, compression }: PackOptions): string {
  const stage = mkdtempSync(join(tmpdir(), "picolet-package-"));
  try {
    for (const [path, file] of debian.files) place(join(stage, path), file);
    writeControl(stage, debian);
    settle(stage, epoch);
    mkdirSync(folder, { recursive: true });
    const target = join(folder, `${debian.name}_${debian.version}_${debian.architecture}.deb`);
    execFileSync("dpkg-deb", ["--root-owner-group", `-Z${compression}`, "--threads-max=1", "--build", stage, target], {
      env: { ...process.env, SOURCE_DATE_EPOCH: String(epoch) },
      stdio: ["ignore", "ignore", "inherit"],
    });
    return target;
  } finally {
    rmSync(stage, { recursive: true });
  }
}

function place(target: string, file: PackageFile): void {
  mkdirSync(dirname(target), { recursive: true });
  if ("folder" in file) mkdirSync(target, { recursive: true });
  else if ("link" in file) symlinkSync(file.link, target);
  else if ("source" in file) cpSync(file.source, target, { recursive: true, dereference: true });
  else {
    writeFileSync(target, file.content);
    chmodSync(target, file.mode ?? 0o644);
  }
}

function writeControl(stage: string, debian: DebianPackage): void {
  const files = filesBelow(stage);
  const sums = files
    .filter((path) => !debian.conffiles.includes(`/${path}`))
    .map(
      (path) =>
        `${createHash("md5")
          .update(readFileSync(join(stage, path)))
          .digest("hex")}  ${path}\n`,
    );
  const folder = join(stage, "DEBIAN");
  mkdirSync(folder);
  writeFileSync(join(folder, "control"), controlText(debian, installedKiB(stage, files)));
  writeFileSync(join(folder, "md5sums"), sums.join(""));
  if (debian.conffiles.length > 0) writeFileSync(join(folder, "conffiles"), `${debian.conffiles.join("\n")}\n`);
  for (const [name, script] of Object.entries(debian.scripts)) {
    writeFileSync(join(folder, name), script);
    chmodSync(join(folder, name), 0o755);
  }
}

export function controlText(
  { name, version, architecture, fields, synopsis, description }: DebianPackage,
  kib: number,
) {
  const head = {
    Package: name,
    Version: version,
    Architecture: architecture,
    Maintainer: MAINTAINER,
    "Installed-Size": String(kib),
    ...fields,
    Description: synopsis,
  };
  const paragraphs = description.map((text) => paragraph(text, "", DESCRIPTION_WIDTH).replaceAll(/^/gm, " "));
  const lines = Object.entries(head).map(([field, value]) => `${field}: ${value}\n`);
  return `${lines.join("")}${paragraphs.join("\n .\n")}\n`;
}

/** Regular files, sorted. */
const filesBelow = (stage: string): string[] =>
  readdirSync(stage, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(stage, join(entry.parentPath, entry.name)))
    .sort();

/** As Debian policy 5.6.20 counts: each file in whole KiB, and one for each folder and link. */
function installedKiB(stage: string, files: readonly string[]): number {
  const entries = readdirSync(stage, { recursive: true }).length;
  const bytes = files.reduce((sum, path) => sum + Math.ceil(statSync(join(stage, path)).size / 1024), 0);
  return bytes + entries - files.length;
}

/** Modes and times that do not depend on who builds, where and when. */
function settle(stage: string, epoch: number): void {
  const entries = readdirSync(stage, { recursive: true, withFileTypes: true });
  for (const entry of entries.reverse()) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isDirectory()) chmodSync(path, 0o755);
    else if (entry.isFile()) chmodSync(path, (statSync(path).mode & 0o111) === 0 ? 0o644 : 0o755);
    lutimesSync(path, epoch, epoch);
  }
  chmodSync(stage, 0o755);
  lutimesSync(stage, epoch, epoch);
}
