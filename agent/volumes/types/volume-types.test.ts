import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { VOLUME_MODELS } from "@picolet/protocol/pod/volumes/volume-models.ts";
import { VOLUME_TYPES, volumeKind } from "./volume-types.ts";

const SCENE = fileURLToPath(import.meta.resolve("@picolet/test/support/unit/registries/dummy-volume/scene.ts"));

test("a volume type is a file and a line in each of two tables", { timeout: 60_000 }, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [SCENE]);
  assert.deepEqual(JSON.parse(stdout), {
    refused: [
      "spec.volumes[0].note.text: Required value",
      "spec.volumes[0].note.mode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
    ],
    misspelt: ['unknown field "spec.volumes[0].note.mod", did you mean "mode"?'],
    references: [{ kind: "Secret", name: "hello" }],
    podSecurity: 'volume "n" uses restricted volume type "note"',
    seen: { text: "hello", mode: 0o644, readOnly: true },
    isRefreshed: true,
    limits: [{ name: "n", limit: "1Ki" }],
    isRemoved: true,
    logged: ["forgotten"],
  });
});

test("every type that the node has is in the pod model", () => {
  for (const kind of Object.keys(VOLUME_TYPES)) assert.ok(Object.hasOwn(VOLUME_MODELS, kind), kind);
});

test("the folders of types differ", () => {
  const folders = Object.values(VOLUME_TYPES).flatMap(({ folder }) => folder ?? []);
  assert.equal(new Set(folders).size, folders.length);
  assert.ok(folders.every((folder) => /^[a-z-]+$/.test(folder)));
});

test("a volume without a source is an emptyDir; an unknown one has its field's name", () => {
  assert.equal(volumeKind({ name: "v" }), "emptyDir");
  assert.equal(volumeKind({ name: "v", nfs: { server: "s", path: "/" } }), "nfs");
  assert.equal(volumeKind({ name: "v", secret: { secretName: "s", defaultMode: 0 } }), "secret");
});
