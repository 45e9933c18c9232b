/** Completes a distribution: Node, the packages that cannot be bundled, licences and the bill of materials. */
import { join } from "node:path";
import type { Metafile } from "esbuild";
import { billOfMaterials, type Contents, lockedPackage, packagesOf } from "./bill-of-materials.ts";
import { packageName } from "./check-supply-chain.ts";
import type { Distribution } from "./distribution.ts";
import { nodePackage, type Platform, packageFolder, readLockFile } from "./platform-parts.ts";
import { thirdPartyLicenses } from "./third-party-licenses.ts";

/** A package of which some files lie beside the bundles. */
export interface CarriedPackage {
  readonly name: string;
  /** Files and folders. */
  readonly files: readonly string[];
  /** The package that has its licence text, where it brings none. */
  readonly licenseIn?: string;
  /** What is compiled into it. */
  readonly includes?: readonly string[];
}

/** A native addon finds its `.node` file by its own place. */
export const sqlite = (platform: Platform): CarriedPackage => ({
  name: "better-sqlite3",
  files: [
    ...["package.json", `prebuilds/${platform}.node`, "lib/methods"],
    ...["index", "binding", "database", "sqlite-error", "util"].map((name) => `lib/${name}.js`),
  ],
  includes: ["node-addon-api"],
});

/** Its generator alone; the rest of the package, and all that it depends on, is never loaded. */
export const jco: CarriedPackage = {
  name: "@bytecodealliance/jco-transpile",
  files: [
    "package.json",
    ...["js", "core.wasm", "core2.wasm"].map((ending) => `vendor/js-component-bindgen-component.${ending}`),
  ],
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
  const node = nodePackage(lock, platform);
  target.add("lib/node", `${node}/bin/node`);
  // Node looks for one in all folders above, and ends at one that it cannot read.
  target.write("lib/package.json", "{}\n");
  for (const { name, files } of packages) {
    const folder = packageFolder(lock, name);
    for (const file of files) target.add(`lib/node_modules/${name}/${file}`, join(folder, file));
  }
  const contents: Contents = {
    ...{ lock, platform, root: target.root },
    metafiles: metafiles.filter((each) => each !== undefined),
    carried: packages.flatMap(({ name, includes = [] }) => [name, ...includes]),
  };
  target.write("sbom.cdx.json", `${JSON.stringify(billOfMaterials(contents), undefined, 1)}\n`);
  target.add("LICENSE", "LICENSE");
  const licensed = [...packagesOf(contents).keys()].map((path) => {
    const { version, license = "NOASSERTION" } = lockedPackage(lock, path);
    const name = packageName(path);
    const { licenseIn } = packages.find((each) => each.name === name) ?? {};
    return { name, version, license, folder: licenseIn === undefined ? path : `node_modules/${licenseIn}` };
  });
  const { version } = lockedPackage(lock, "node_modules/node");
  target.write(
    "THIRD-PARTY-LICENSES",
    thirdPartyLicenses([...licensed, { name: "Node.js", version, license: "MIT", folder: node }]),
  );
  target.prune();
}
