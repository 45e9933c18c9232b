/** What is in an image: packages with versions, files with hashes, and the bill of materials in CycloneDX 1.6. */
import { createHash } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join, relative } from "node:path";
import type { Board, Flavour } from "./boards.ts";
import type { InstalledPackage } from "./debian-packages.ts";

export interface ImageContents {
  readonly board: Board;
  readonly flavour: Flavour;
  readonly version: string;
  readonly compatible: string;
  readonly rootHash: string;
  readonly packages: readonly InstalledPackage[];
  /** Debian packages of which the tools were. */
  readonly tools: readonly InstalledPackage[];
  readonly files: readonly ImageFile[];
}

export interface ImageFile {
  readonly path: string;
  /** Octal. */
  readonly mode: string;
  readonly sha256?: string;
  readonly link?: string;
}

/** Every file and link of the tree, sorted. */
export function filesOf(tree: string): readonly ImageFile[] {
  const entries = readdirSync(tree, { recursive: true, withFileTypes: true }).filter((each) => !each.isDirectory());
  const files = entries.map((entry) => {
    const path = join(entry.parentPath, entry.name);
    const mode = (lstatSync(path).mode & 0o7777).toString(8);
    const name = `/${relative(tree, path)}`;
    if (entry.isSymbolicLink()) return { path: name, mode, link: readlinkSync(path) };
    return { path: name, mode, sha256: createHash("sha256").update(readFileSync(path)).digest("hex") };
  });
  return files.sort((one, other) => (one.path < other.path ? -1 : 1));
}

export const manifestText = ({ board, ...contents }: ImageContents): string =>
  `${JSON.stringify({ board: board.name, ...contents }, null, 1)}\n`;

/** @param own components of picolet's own bill of materials */
export function billOfMaterialsText(contents: ImageContents, own: readonly object[]): string {
  const { board, flavour, version, packages } = contents;
  const name = `picolet-${board.name}-${flavour}`;
  const debian = packages.map(({ name: each, version: its, architecture, sha256 }) => {
    const purl = `pkg:deb/debian/${each}@${encodeURIComponent(its)}?arch=${architecture}`;
    const hashes = [{ alg: "SHA-256", content: sha256 }];
    return { type: "library", "bom-ref": purl, name: each, version: its, purl, hashes };
  });
  const document = {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: { type: "operating-system", "bom-ref": name, name, version } },
    components: [...debian, ...own],
  };
  return `${JSON.stringify(document, null, 1)}\n`;
}
