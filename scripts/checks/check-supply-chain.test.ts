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
  const outputs = { "dist/hub.mjs": output("hub/a.ts", "node_modules/ws/lib/sender.js"), "dist/b.cjs": output("b.ts") };
  const { components } = billOfMaterials(lock, [{ inputs: {}, outputs }]) as {
    readonly components: readonly {
      readonly name: string;
      readonly properties?: readonly object[];
      readonly hashes: object[];
    }[];
  };

  it("names what is in a bundle, with the bundle", () => {
    const ws = components.find(({ name }) => name === "ws");
    assert.deepEqual(ws?.properties, [{ name: "picolet:bundle", value: "hub.mjs" }]);
  });

  it("names what lies beside the bundles, with all that it needs, and Node for both architectures", () => {
    const names = components.map(({ name }) => name);
    for (const name of [
      "better-sqlite3",
      "node-addon-api",
      "@bytecodealliance/jco-transpile",
      "binaryen",
      "@koromix/koffi-linux-arm64",
    ])
      assert.ok(names.includes(name), name);
    assert.equal(names.filter((name) => name === "node").length, 2);
    assert.ok(!names.some((name) => name.includes("win32")));
  });

  it("has a hash of everything, and names each once", () => {
    assert.ok(components.every(({ hashes }) => hashes.length === 1));
    const refs = components.map((each) => (each as unknown as { "bom-ref": string })["bom-ref"]);
    assert.equal(new Set(refs).size, refs.length);
  });
});
