/** Reads a built distribution: its files, the modules that its bundles load, the packages that its papers name. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { isBuiltin } from "node:module";
import { join, relative } from "node:path";
import { isNativeFor, type Platform } from "@picolet/scripts/build/platform-parts.ts";

/** Dependencies of build tools and of parts of packages that are not carried: none may reach a machine. */
const TOOLS = ["binaryen", "typescript", "esbuild", "oxc-minify", "@bytecodealliance/preview2-shim"];

export interface NamedPackage {
  readonly name: string;
  readonly version: string;
}

export class DistributionContents {
  readonly root: string;
  /** Paths in it, sorted. */
  readonly files: readonly string[];

  constructor(root: string) {
    this.root = root;
    this.files = readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((each) => !each.isDirectory())
      .map(({ parentPath, name }) => relative(root, join(parentPath, name)))
      .sort();
  }

  text(file: string): string {
    return readFileSync(join(this.root, file), "utf8");
  }

  /** @param fits all when left out */
  bytes(fits: (file: string) => boolean = () => true): number {
    return this.files.filter(fits).reduce((sum, file) => sum + statSync(join(this.root, file)).size, 0);
  }

  /** By its bill of materials. */
  get packages(): readonly NamedPackage[] {
    return (JSON.parse(this.text("sbom.cdx.json")) as { readonly components: readonly NamedPackage[] }).components;
  }

  /** Those of whose files some are carried. */
  get carried(): readonly string[] {
    const names = this.files.map((file) => /^lib\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1]);
    return [...new Set(names.filter((name) => name !== undefined))];
  }

  assertNative(platform: Platform, expected: readonly string[]): void {
    const native = this.files.filter((file) => isNativeFor(platform, join(this.root, file)) !== undefined);
    assert.deepEqual(native, expected);
    for (const file of native) assert.equal(isNativeFor(platform, join(this.root, file)), true, file);
  }

  /** Nothing that is loaded by name lies outside. */
  assertSelfContained(): void {
    const names = new Set<string>();
    for (const file of this.files.filter((each) => /^lib\/(?!node_modules).*\.[cm]js$/.test(each))) {
      const loads = this.text(file).matchAll(/(?:\brequire\(|\bimport\(|\bfrom\s?|\bimport\s?)"([\w@][^"\s]*)"/g);
      for (const [, name = ""] of loads)
        if (!isBuiltin(name)) names.add(name.replace(/^(@[^/]+\/[^/]+|[^/]+).*/, "$1"));
    }
    assert.deepEqual([...names].sort(), this.carried.filter((name) => names.has(name)).sort());
  }

  assertWithout(others: readonly string[] = []): void {
    const { devDependencies } = JSON.parse(readFileSync("package.json", "utf8")) as { devDependencies: object };
    const unwanted = new Set([...Object.keys(devDependencies), ...TOOLS, ...others]);
    const present = this.packages.map(({ name }) => name).filter((name) => unwanted.has(name));
    assert.deepEqual(present, []);
  }

  /** Its licence, and that of each package it has code of. */
  assertLicensed(): void {
    assert.match(this.text("LICENSE"), /Apache License\s+Version 2\.0/);
    const licenses = this.text("THIRD-PARTY-LICENSES");
    for (const { name, version } of this.packages) {
      const heading = `${name === "node" ? "Node.js" : name} ${version} (`;
      assert.ok(licenses.includes(`\n${heading}`), `no licence of ${name} ${version}`);
    }
    assert.match(licenses, /Node\.js is licensed for use as follows/);
    assert.match(licenses, /\nsqlite [\d.]+ \(blessing\)\n=+\n\nThe author disclaims copyright to this source code/);
    assert.match(licenses, /Permission is hereby granted, free of charge/);
  }
}
