/** Completes a distribution: Node, the packages that cannot be bundled, licences and the bill of materials. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Metafile } from "esbuild";
import { packageName } from "../checks/check-supply-chain.ts";
import { billOfMaterials, type Contents, type ForeignLibrary, lockedPackage, packagesOf } from "./bill-of-materials.ts";
import type { Distribution } from "./distribution.ts";
import { nodeParts, type Platform, packageFolder, readLockFile } from "./platform-parts.ts";

/** Packages that bring no licence text, and one of the same holder under the same licence that does. */
const TEXT_ELSEWHERE: Readonly<Record<string, string>> = {
  "onnxruntime-web": "@types/node",
  "onnxruntime-common": "@types/node",
};

/** A package of which some files lie beside the bundles. */
export interface CarriedPackage {
  readonly name: string;
  /** Files and folders. */
  readonly files: readonly string[];
  /** The package that has its licence text, where it brings none. */
  readonly licenseIn?: string;
  /** Names of packages that are compiled into it. */
  readonly includes?: readonly string[];
  /** A library that is compiled into it and is no package. */
  readonly library?: LicensedLibrary;
}

interface LicensedLibrary extends ForeignLibrary {
  /** Its licence. */
  readonly text: string;
}

const SQLITE_SOURCE = "node_modules/better-sqlite3/deps/sqlite3";

/** SQLite itself, of whose source better-sqlite3 brings a copy. */
function sqliteLibrary(): LicensedLibrary {
  const header = readFileSync(`${SQLITE_SOURCE}/sqlite3.h`, "utf8");
  const version = /^#define SQLITE_VERSION\s+"([\d.]+)"/m.exec(header)?.[1];
  const text = /^\*\* The author disclaims copyright[\s\S]*?(?=^\*{20})/m.exec(header)?.[0].replace(/^\*\* ?/gm, "");
  if (version === undefined || text === undefined)
    throw new PicoletError("not_found", `cannot read SQLite's version and licence in ${SQLITE_SOURCE}/sqlite3.h`);
  const sha512 = createHash("sha512")
    .update(readFileSync(`${SQLITE_SOURCE}/sqlite3.c`))
    .digest("hex");
  return { name: "sqlite", version, license: "blessing", text: text.trim(), sha512 };
}

/** A native addon finds its `.node` file by its own place. */
export const sqlite = (platform: Platform): CarriedPackage => ({
  name: "better-sqlite3",
  files: [
    ...["package.json", `prebuilds/${platform}.node`, "lib/methods"],
    ...["index", "binding", "database", "sqlite-error", "util"].map((name) => `lib/${name}.js`),
  ],
  includes: ["node-addon-api"],
  library: sqliteLibrary(),
});

/** Its generator alone; the rest of the package, and all that it depends on, is never loaded. */
export const jco: CarriedPackage = {
  name: "@bytecodealliance/jco-transpile",
  files: [
    "package.json",
    ...["js", "core.wasm", "core2.wasm"].map((ending) => `vendor/js-component-bindgen-component.${ending}`),
  ],
};

/** The library that computes models (`runtime-adapters/wasm/shared/board/nn/library.ts`): its smallest form, on one thread. */
export const onnxRuntime: CarriedPackage = {
  name: "onnxruntime-web",
  files: [
    "package.json",
    "dist/ort.wasm.min.js",
    ...["mjs", "wasm"].map((ending) => `dist/ort-wasm-simd-threaded.${ending}`),
  ],
  includes: ["onnxruntime-common"],
};

/** Its native part alone: `runtime-adapters/wasm/devices/` calls it without its JavaScript. */
export const koffi = (platform: Platform): CarriedPackage => ({
  name: `@koromix/koffi-${platform}`,
  files: ["package.json", `${platform.replace("-", "_")}/koffi.node`],
  licenseIn: "koffi",
  includes: ["node-addon-api"],
});

/** Adds them, and removes what an earlier build left. */
export function complete(
  target: Distribution,
  metafiles: readonly (Metafile | undefined)[],
  packages: readonly CarriedPackage[],
  platform: Platform,
): void {
  const lock = readLockFile();
  const node = nodeParts(lock, platform);
  target.add("lib/node", node.binary);
  // Node looks for one in all folders above, and ends at one that it cannot read.
  target.write("lib/package.json", "{}\n");
  for (const { name, files } of packages) {
    const folder = packageFolder(lock, name);
    for (const file of files) target.add(`lib/node_modules/${name}/${file}`, join(folder, file));
  }
  const libraries = packages.map(({ library }) => library).filter((each) => each !== undefined);
  const contents: Contents = {
    ...{ lock, platform, root: target.root },
    metafiles: metafiles.filter((each) => each !== undefined),
    libraries: libraries.map(({ text: _, ...each }) => each),
    carried: packages.flatMap(({ name, includes = [] }) => [name, ...includes]),
  };
  target.write("sbom.cdx.json", `${JSON.stringify(billOfMaterials(contents), undefined, 1)}\n`);
  target.add("LICENSE", "LICENSE");
  const licensed = [...packagesOf(contents).keys()].map((path) => {
    const { version, license = "NOASSERTION" } = lockedPackage(lock, path);
    const name = packageName(path);
    const { licenseIn = TEXT_ELSEWHERE[name] } = packages.find((each) => each.name === name) ?? {};
    return { name, version, license, text: licenseText(name, licenseIn ? `node_modules/${licenseIn}` : path) };
  });
  const { version } = lockedPackage(lock, "node_modules/node");
  target.write(
    "THIRD-PARTY-LICENSES",
    thirdPartyLicenses([
      ...[...licensed, ...libraries],
      { name: "Node.js", version, license: "MIT", text: licenseText("node", node.folder) },
    ]),
  );
  target.prune();
}

export interface LicensedPackage {
  readonly name: string;
  readonly version: string;
  /** SPDX expression. */
  readonly license: string;
  readonly text: string;
}

const TEXT_FILE = /^(?:un)?licen[cs]e|^copying|^notice/i;
const RULE = "=".repeat(80);

/** Packages with the same text share one section. */
export function thirdPartyLicenses(packages: readonly LicensedPackage[]): string {
  const names = new Map<string, string[]>();
  for (const each of packages) {
    names.set(each.text, [...(names.get(each.text) ?? []), `${each.name} ${each.version} (${each.license})`]);
  }
  const sections = [...names].map(([text, users]) => `${RULE}\n${users.join("\n")}\n${RULE}\n\n${text}\n`);
  return [
    "This distribution of picolet contains the software that is listed here, under the licences that follow it.\n",
    ...sections,
  ].join("\n");
}

/** @param folder of the package @throws `not_found` where it has no text */
export function licenseText(name: string, folder: string): string {
  const files = readdirSync(folder).filter((each) => TEXT_FILE.test(each));
  if (files.length === 0)
    throw new PicoletError("not_found", `the package ${name} brings no licence text in ${folder}`);
  return files.map((each) => readFileSync(join(folder, each), "utf8").trim()).join("\n\n");
}
