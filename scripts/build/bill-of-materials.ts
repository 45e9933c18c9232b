/**
 * The software bill of materials of a build, `dist/sbom.cdx.json`, in CycloneDX 1.6: every package of which code is in a bundle, by what
 * the bundler has read, and every package that lies beside the bundles, with version, licence and the hash of package-lock.json.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { VERSION } from "@picolet/protocol/version.ts";
import type { Metafile } from "esbuild";
import { hashesOf, type LockedPackage, type LockFile, packageName } from "../checks/check-supply-chain.ts";

/** Packages beside the bundles: native code, and what the transpile child loads. */
const BESIDE = ["better-sqlite3", "@bytecodealliance/jco-transpile", "koffi"];

interface LibraryComponent {
  readonly type: "library";
  readonly "bom-ref": string;
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly licenses: readonly { readonly license: { readonly name: string } }[];
  readonly hashes: readonly { readonly alg: "SHA-512"; readonly content: string }[];
  /** The bundles that have code of it; none: it lies beside them. */
  readonly properties: readonly { readonly name: string; readonly value: string }[];
}

interface PackageManifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly license?: string;
}

const manifestOf = (path: string): PackageManifest =>
  JSON.parse(readFileSync(`${path}/package.json`, "utf8")) as PackageManifest;

/** `node_modules/a/lib/x.js` is of `node_modules/a`. */
function packagePathOf(input: string): string | undefined {
  const match = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
  return match?.[1];
}

/** The folder in which a package finds another one, as Node does. */
function resolved(lock: LockFile, from: string, name: string): string | undefined {
  for (let folder = from; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf("/node_modules/")))) {
    const path = folder === "" ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
    if (lock.packages[path] !== undefined) return path;
    if (folder === "") return undefined;
  }
}

/** A package with all that it needs at run time. */
function withDependencies(lock: LockFile, path: string, found: Set<string>): void {
  if (found.has(path)) return;
  found.add(path);
  const { dependencies = {}, optionalDependencies = {} } = lock.packages[path] as PackageManifest;
  for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
    const next = resolved(lock, path, name);
    if (next !== undefined) withDependencies(lock, next, found);
  }
}

/** Base64 of `sha512-…` as CycloneDX has it. */
const hexOf = (integrity: string): string => Buffer.from(integrity.replace(/^sha512-/, ""), "base64").toString("hex");

const purlOf = (name: string, version: string): string => `pkg:npm/${name.replace(/^@/, "%40")}@${version}`;

export function billOfMaterials(lock: LockFile, metafiles: readonly Metafile[]): object {
  const bundles = new Map<string, Set<string>>();
  for (const { outputs } of metafiles) {
    for (const [output, { inputs }] of Object.entries(outputs)) {
      for (const input of Object.keys(inputs)) {
        const path = packagePathOf(input);
        if (path === undefined) continue;
        const names = bundles.get(path) ?? new Set();
        bundles.set(path, names.add(output.replace(/^dist\//, "")));
      }
    }
  }
  const beside = new Set<string>();
  for (const name of BESIDE) withDependencies(lock, `node_modules/${name}`, beside);
  const paths = [...new Set([...bundles.keys(), ...beside])].sort();
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: { type: "application", "bom-ref": "picolet", name: "picolet", version: VERSION } },
    components: [
      ...paths.flatMap((path) => componentOf(lock, path, [...(bundles.get(path) ?? [])].sort())),
      ...nodeComponents(lock),
    ],
  };
}

/** Optional packages for other systems are in the lock file, and never installed where picolet runs. */
const isForBoards = ({ os, cpu }: LockedPackage = {}): boolean =>
  (os?.includes("linux") ?? true) && (cpu?.some((each) => each === "x64" || each === "arm64") ?? true);

function componentOf(lock: LockFile, path: string, outputs: readonly string[]): LibraryComponent[] {
  const locked = lock.packages[path];
  const { version, integrity = "" } = locked ?? {};
  if (version === undefined || !isForBoards(locked)) return [];
  const name = packageName(path);
  const license = locked?.license ?? manifestOf(path).license ?? "NOASSERTION";
  return [
    {
      type: "library",
      "bom-ref": path,
      name,
      version,
      purl: purlOf(name, version),
      licenses: [{ license: { name: license } }],
      hashes: [{ alg: "SHA-512", content: hexOf(integrity) }],
      properties: outputs.map((value) => ({ name: "picolet:bundle", value })),
    },
  ];
}

/** Node itself, by the hashes of its binaries. */
function nodeComponents(lock: LockFile): readonly object[] {
  const version = lock.packages["node_modules/node"]?.version ?? "";
  const hashes = hashesOf(readFileSync("scripts/node-binaries.sha256", "utf8"));
  return [...hashes]
    .filter(([name]) => name.startsWith(`node-${version}-`))
    .map(([name, content]) => {
      const platform = name.slice(`node-${version}-`.length);
      return {
        type: "platform",
        "bom-ref": name,
        name: "node",
        version,
        purl: purlOf(`node-${platform}`, version),
        licenses: [{ license: { name: "MIT" } }],
        hashes: [{ alg: "SHA-256", content }],
      };
    });
}

export function writeBillOfMaterials(metafiles: readonly Metafile[]): void {
  const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as LockFile;
  writeFileSync("dist/sbom.cdx.json", `${JSON.stringify(billOfMaterials(lock, metafiles), undefined, 1)}\n`);
}
