/** A board and a hub install all that they need, and nothing else. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, test } from "node:test";
import { hubLayer } from "@picolet/firmware/hub-image/hub-image.ts";
import { ownPlatform } from "@picolet/scripts/build/platform-parts.ts";
import { DistributionContents } from "../support/distribution/distribution-contents.ts";

const PLATFORM = ownPlatform();
/** Reached: 126.6 MB by Node 24.21 for x64; by all else 25.7 of a board (14.3 compute models, 4.0 are jco's generator) and 8.6 of a hub. */
const MAX_NODE_BYTES = 128e6;
const MAX_BOARD_BYTES = 26.2e6;
const MAX_HUB_BYTES = 9.1e6;
const PAPERS = ["LICENSE", "THIRD-PARTY-LICENSES", "sbom.cdx.json"];
const SQLITE = "lib/node_modules/better-sqlite3";
const JCO = "lib/node_modules/@bytecodealliance/jco-transpile";
const ONNX = "lib/node_modules/onnxruntime-web";
const KOFFI = `lib/node_modules/@koromix/koffi-${PLATFORM}`;
const SQLITE_FILES = [
  ...["binding", "database", "index", "sqlite-error", "util"].map((name) => `${SQLITE}/lib/${name}.js`),
  ...["aggregate", "backup", "explain", "function", "inspect", "pragma", "serialize", "table", "transaction"].map(
    (name) => `${SQLITE}/lib/methods/${name}.js`,
  ),
  ...[`${SQLITE}/lib/methods/wrappers.js`, `${SQLITE}/package.json`, `${SQLITE}/prebuilds/${PLATFORM}.node`],
];
const addon = `${PLATFORM.replace("-", "_")}/koffi.node`;

const PAGE_FILES = ["index.html", "page.css", "page.js"];

/** The completions of one program, for each shell. */
const completionsOf = (program: string): readonly string[] =>
  [`bash/${program}`, `fish/${program}.fish`, `zsh/_${program}`].map((name) => `share/completions/${name}`);

/** Parts of programs have hashes in their names (`program-parts.test.ts`), and the interfaces are the source's. */
const isPart = (file: string): boolean => /^(lib\/(picolet|picolet-hub|wasm-runner)|wit)\//.test(file);

describe("a board's distribution", () => {
  const board = new DistributionContents("dist/board");

  test("has these files", () => {
    const expected = [
      ...[
        ...PAPERS,
        "bin/edgectl",
        "bin/picolet",
        "lib/node",
        "lib/package.json",
        "lib/picolet.cjs",
        "lib/edgectl.cjs",
        "lib/yaml.cjs",
      ],
      ...[
        "lib/wasm-runner.cjs",
        "lib/wasm-dense.cjs",
        "lib/wasm-pull.cjs",
        "lib/picolet-update.cjs",
        "lib/undici.cjs",
        "lib/wasm-devices.cjs",
      ],
      ...["lib/wasm-transpile.mjs", "lib/component-tool.mjs", ...SQLITE_FILES],
      ...["package.json", "vendor/js-component-bindgen-component.js"].map((name) => `${JCO}/${name}`),
      ...["core.wasm", "core2.wasm"].map((ending) => `${JCO}/vendor/js-component-bindgen-component.${ending}`),
      ...[`${KOFFI}/package.json`, `${KOFFI}/${addon}`, "lib/configuration-fields.json"],
      ...PAGE_FILES.map((name) => `lib/page/${name}`),
      `${ONNX}/package.json`,
      ...["ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"].map(
        (name) => `${ONNX}/dist/${name}`,
      ),
      ...["edgectl", "picolet"].flatMap(completionsOf),
      ...["man1/edgectl.1", "man8/picolet.8"].map((name) => `share/man/${name}`),
    ];
    assert.deepEqual(
      board.files.filter((file) => !isPart(file)),
      expected.sort(),
    );
    assert.ok(board.files.includes("wit/world.wit"));
  });

  test("has machine code for this platform alone", () => {
    board.assertNative(PLATFORM, ["lib/node", `${KOFFI}/${addon}`, `${SQLITE}/prebuilds/${PLATFORM}.node`].sort());
  });

  test("loads nothing from outside", () => board.assertSelfContained());

  test("has no tools and no client of Kubernetes", () => board.assertWithout(["@kubernetes/client-node", "jose"]));

  test("has the licence of everything in it", () => board.assertLicensed());

  test("takes no more space than it did", () => {
    const nodeBytes = board.bytes((file) => file === "lib/node");
    assert.ok(nodeBytes <= MAX_NODE_BYTES, `Node takes ${nodeBytes} bytes`);
    const others = board.bytes((file) => file !== "lib/node");
    assert.ok(others <= MAX_BOARD_BYTES, `all but Node takes ${others} bytes`);
  });
});

describe("a hub's distribution", () => {
  const hub = new DistributionContents("dist/hub");

  test("has these files", () => {
    const expected = [
      ...[...PAPERS, "bin/picolet-hub", "lib/node", "lib/picolet-hub.mjs", "lib/yaml-worker.mjs"],
      ...["lib/kubernetes-models.json", "lib/package.json", ...SQLITE_FILES, "share/man/man8/picolet-hub.8"],
      ...completionsOf("picolet-hub"),
      ...["board", "fleet"].flatMap((page) => PAGE_FILES.map((name) => `lib/page/${page}/${name}`)),
    ];
    assert.deepEqual(
      hub.files.filter((file) => !isPart(file)),
      expected.sort(),
    );
    assert.ok(hub.files.some((file) => /^lib\/picolet-hub\/device-selector-\w+\.mjs$/.test(file)));
  });

  test("is the layer of the hub's image, with a program that starts it", () => {
    const layer = hubLayer("dist/hub", 0);
    const members = execFileSync("tar", ["-t"], { input: layer, encoding: "utf8" }).split("\n");
    const expected = hub.files
      .filter((file) => file.startsWith("lib/") && file !== "lib/node")
      .map((file) => `./usr/lib/picolet-hub/${file}`);
    const isIn = (folder: string) => (member: string) => member.startsWith(folder) && !member.endsWith("/");
    assert.deepEqual(members.filter(isIn("./usr/lib/picolet-hub/lib/")).sort(), expected.sort());
    assert.deepEqual(members.filter(isIn("./usr/lib/picolet-hub/bin/")), ["./usr/lib/picolet-hub/bin/picolet-hub"]);
  });

  test("has machine code for this platform alone", () => {
    hub.assertNative(PLATFORM, ["lib/node", `${SQLITE}/prebuilds/${PLATFORM}.node`]);
  });

  test("loads nothing from outside", () => hub.assertSelfContained());

  test("has no tools, and nothing that runs components", () =>
    hub.assertWithout(["@bytecodealliance/jco-transpile", "koffi", `@koromix/koffi-${PLATFORM}`]));

  test("has the licence of everything in it", () => hub.assertLicensed());

  test("takes no more space than it did", () => {
    const others = hub.bytes((file) => file !== "lib/node");
    assert.ok(others <= MAX_HUB_BYTES, `all but Node takes ${others} bytes`);
  });
});
