/**
 * The software bill of materials of a distribution, `sbom.cdx.json`, in CycloneDX 1.6: every package that a bundle has
 * code of, according to the bundler, every package that is carried beside the bundles, and Node, with version, licence
 * and reviewed hash.
 */
import { readFileSync } from "node:fs";
import { VERSION } from "@picolet/protocol/version.ts";
import type { Metafile } from "esbuild";
import { hashesOf, type LockedPackage, type LockFile, packageName } from "../checks/check-supply-chain.ts";

interface LibraryComponent {
  readonly type: "library";
  readonly "bom-ref": string;
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly licenses: readonly { readonly license: { readonly name: string } }[];
  readonly hashes: readonly { readonly alg: "SHA-512"; readonly content: string }[];
  /** The bundles that have code of it; empty for a package that is carried beside them. */
  readonly properties: readonly { readonly name: string; readonly value: string }[];
}

/** Compiled into a package, and no package itself. */
export interface ForeignLibrary {
  readonly name: string;
  readonly version: string;
  /** SPDX expression. */
  readonly license: string;
  /** The hash of its source. */
  readonly sha512: string;
}

export interface Contents {
  readonly lock: LockFile;
  readonly metafiles: readonly Metafile[];
  /** The folder that the bundles were built into: their names are relative to it. */
  readonly root: string;
  /** Names of the packages that are carried beside the bundles, and of those that are compiled into these. */
  readonly carried: readonly string[];
  readonly libraries: readonly ForeignLibrary[];
  readonly platform: string;
}

/** `node_modules/a/lib/x.js` belongs to `node_modules/a`. */
function packagePathOf(input: string): string | undefined {
  // Where node_modules is a link, esbuild names where that leads: what comes before is not in package-lock.json.
  const inside = input.slice(Math.max(0, input.indexOf("node_modules/")));
  const match = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(inside);
  return match?.[1];
}

/** Base64 of `sha512-…` as CycloneDX has it. */
const hexOf = (integrity: string): string => Buffer.from(integrity.replace(/^sha512-/, ""), "base64").toString("hex");

const purlOf = (name: string, version: string): string => `pkg:npm/${name.replace(/^@/, "%40")}@${version}`;

/** Folders of `node_modules`, each with the bundles that have code of it. */
export function packagesOf({ metafiles, root, carried }: Contents): ReadonlyMap<string, readonly string[]> {
  const bundles = new Map<string, Set<string>>();
  for (const { outputs } of metafiles) {
    for (const [output, { inputs }] of Object.entries(outputs)) {
      for (const input of Object.keys(inputs)) {
        const path = packagePathOf(input);
        if (path === undefined) continue;
        const names = bundles.get(path) ?? new Set();
        bundles.set(path, names.add(output.slice(root.length + 1)));
      }
    }
  }
  const all = new Set([...bundles.keys(), ...carried.map((name) => `node_modules/${name}`)]);
  return new Map([...all].sort().map((path) => [path, [...(bundles.get(path) ?? [])].sort()]));
}

export function billOfMaterials(contents: Contents): { readonly components: readonly object[] } {
  const { lock, platform, libraries } = contents;
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: { type: "application", "bom-ref": "picolet", name: "picolet", version: VERSION } },
    components: [
      ...[...packagesOf(contents)].map(([path, outputs]) => componentOf(path, lockedPackage(lock, path), outputs)),
      ...libraries.map(libraryComponent),
      nodeComponent(lock, platform),
    ],
  } as { readonly components: readonly object[] };
}

/** @throws for a package that package-lock.json does not have */
export function lockedPackage(lock: LockFile, path: string): LockedPackage & { readonly version: string } {
  const { version, ...locked } = lock.packages[path] ?? {};
  if (version === undefined) throw new Error(`package-lock.json has no ${path}`);
  return { version, ...locked };
}

function componentOf(
  path: string,
  { version, integrity = "", license = "NOASSERTION" }: LockedPackage & { readonly version: string },
  outputs: readonly string[],
): LibraryComponent {
  const name = packageName(path);
  return {
    type: "library",
    "bom-ref": path,
    name,
    version,
    purl: purlOf(name, version),
    licenses: [{ license: { name: license } }],
    hashes: [{ alg: "SHA-512", content: hexOf(integrity) }],
    properties: outputs.map((value) => ({ name: "picolet:bundle", value })),
  };
}

const libraryComponent = ({ name, version, license, sha512 }: ForeignLibrary): LibraryComponent => ({
  type: "library",
  "bom-ref": `${name}@${version}`,
  name,
  version,
  purl: `pkg:generic/${name}@${version}`,
  licenses: [{ license: { name: license } }],
  hashes: [{ alg: "SHA-512", content: sha512 }],
  properties: [],
});

/** Node itself, by the hash of its binary. */
function nodeComponent(lock: LockFile, platform: string): object {
  const { version } = lockedPackage(lock, "node_modules/node");
  const name = `node-${version}-${platform}`;
  const content = hashesOf(readFileSync("scripts/node-binaries.sha256", "utf8")).get(name);
  return {
    type: "platform",
    "bom-ref": name,
    name: "node",
    version,
    purl: purlOf(`node-${platform}`, version),
    licenses: [{ license: { name: "MIT" } }],
    hashes: [{ alg: "SHA-256", content }],
  };
}
