import assert from "node:assert/strict";
import { test } from "node:test";
import { MODELS } from "@picolet/test/support/unit/embedded/api-server.ts";
import { grantedReferences, podReferences, type ReferringPod } from "./pod-references.ts";

const podOf = (spec: unknown, annotations: Readonly<Record<string, string>> = {}): ReferringPod => ({
  metadata: { name: "p", annotations },
  spec,
});

/** The name at a field is that of an object of the API. */
function namesObject(model: string, field: string): boolean {
  // Part of a claim that a controller makes from a template; nodes do not use it.
  if (/^V1(Typed(Local)?Object|Owner)Reference$/.test(model)) return false;
  if (/(secret|claim|serviceAccount|runtimeClass)Name$|^(endpoints|serviceAccount)$/i.test(field)) return true;
  return field === "name" && /(Reference|KeySelector|EnvSource|Projection|VolumeSource)$/.test(model);
}

type Fields = ReturnType<typeof MODELS.get>["fields"];
type FieldType = Fields extends ReadonlyMap<string, { readonly type: infer Type }> ? Type : never;

const MAX_DEPTH = 12;

/** Every object that has one such name and nothing else, found by walking the API's own types. */
function* naming(model: string, depth = 0): Generator<{ readonly path: string; readonly object: unknown }> {
  if (depth > MAX_DEPTH) return;
  for (const { name, type } of MODELS.get(model).fields.values()) {
    if (type.kind === "string" && namesObject(model, name)) yield { path: name, object: { [name]: "wanted" } };
    for (const { path, object } of within(type, depth)) yield { path: `${name}.${path}`, object: { [name]: object } };
  }
}

function* within(type: FieldType, depth: number): Generator<{ readonly path: string; readonly object: unknown }> {
  if (type.kind === "object") yield* naming(type.model, depth + 1);
  if (type.kind === "array") {
    for (const { path, object } of within(type.items, depth)) yield { path, object: [object] };
  }
}

test("every name of an object that the API's types let a pod have is found, and a mirror pod's grants nothing", () => {
  const found = [...naming("V1PodSpec")];
  assert.ok(found.length > 30, String(found.length));
  for (const { path, object } of found) {
    const names = podReferences(podOf(object)).map(({ name }) => name);
    assert.ok(names.includes("wanted"), path);
    assert.deepEqual(grantedReferences(podOf(object, { "kubernetes.io/config.mirror": "" })), [], path);
  }
});

test("every kind of volume and projection is known, and one that is not is a reference as well", () => {
  const kindsOf = (spec: unknown): readonly string[] => podReferences(podOf(spec)).map(({ kind }) => kind);
  const volume = (fields: object): object => ({ volumes: [{ name: "v", ...fields }] });
  for (const { name } of MODELS.get("V1Volume").fields.values()) {
    if (name !== "name") assert.ok(!kindsOf(volume({ [name]: {} })).includes("Unknown"), name);
  }
  for (const { name } of MODELS.get("V1VolumeProjection").fields.values()) {
    const kinds = kindsOf(volume({ projected: { sources: [{ [name]: {} }] } }));
    assert.ok(!kinds.includes("Unknown"), name);
    assert.equal(kinds.length > 0, name !== "downwardAPI", name);
  }
  assert.deepEqual(kindsOf(volume({ teleport: {} })), ["Unknown"]);
  assert.deepEqual(kindsOf(volume({ projected: { sources: [{ teleport: {} }] } })), ["Unknown"]);
});
