/**
 * The steps of `wit/README.md` for authors, done literally: folders, world, program and pod are taken from its text.
 */
import assert from "node:assert/strict";
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { textOf } from "@picolet/scripts/start/follow-pods.ts";
import { componentize } from "componentize-qjs";
import { parse } from "yaml";
import { edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

const README = readFileSync("wit/README.md", "utf8");
/** As the README names it. */
const WASI_WIT = "node_modules/@bytecodealliance/jco/lib/wit/builtin/0.2.12";
const IMAGE = "picolet.example/sensor:1";

/** The one piece of the README in this language. */
function written(language: string): string {
  const pieces = [...README.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "gs"))].map(([, text = ""]) => text);
  assert.equal(pieces.length, 1, `one piece of ${language}`);
  return pieces.join();
}

/** @param version of WASI, in the place of the README's */
async function built(folder: TempFolder, version: string): Promise<string> {
  const deps = folder.at("wit/deps");
  mkdirSync(deps, { recursive: true });
  cpSync("wit/board", `${deps}/picolet-board`, { recursive: true });
  cpSync("wit/board/deps/io", `${deps}/io`, { recursive: true });
  const inVersion = (text: string): string => text.replaceAll("@0.2.12", `@${version}`);
  for (const name of readdirSync(WASI_WIT)) {
    // wit/board already contains this version.
    if (version === "0.2.0" && name === "wasi-io") continue;
    mkdirSync(`${deps}/${name}`);
    writeFileSync(`${deps}/${name}/package.wit`, inVersion(readFileSync(`${WASI_WIT}/${name}/package.wit`, "utf8")));
  }
  writeFileSync(folder.at("wit/world.wit"), inVersion(written("wit")));
  const jsSource = inVersion(written("js"));
  const { component } = await componentize({ witPath: folder.at("wit"), world: "sensor", sync: true, jsSource });
  writeFileSync(folder.at("sensor.wasm"), component);
  return folder.at("sensor.wasm");
}

for (const version of ["0.2.12", "0.2.0"]) {
  test(`the README's component is built beside WASI ${version}, and does on a node what it says`, async () => {
    using folder = new TempFolder();
    const component = await built(folder, version);
    await using node = nodeWith(undefined, {});
    await node.start();
    edgectl(node, "image", "import", component, "--name", IMAGE);
    const { metadata, spec } = parse(written("yaml")) as Record<"metadata" | "spec", Record<string, unknown>>;
    const containers = [{ name: "sensor", image: IMAGE, imagePullPolicy: "Never" }];
    node.writeManifest("sensor.json", {
      ...{ apiVersion: "v1", kind: "Pod", metadata: { ...metadata, name: "sensor" } },
      spec: { ...spec, restartPolicy: "Never", containers },
    });
    await node.waitForPods("the end of the sensor", (pods) =>
      /^(Succeeded|Failed)$/.test(pods.get("sensor-node")?.status?.phase ?? ""),
    );
    const path = "/v1/namespaces/default/pods/sensor-node/log?container=sensor";
    assert.equal(await textOf(await node.request(path)), "start 1\n");
    assert.equal(edgectl(node, "kv", "get", "settings", "starts"), "1");
  });
}
