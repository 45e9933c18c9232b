/** Fields that Pod v1 does not have, held against Kubernetes' own model of it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type FieldType, FolderModelSource } from "@picolet/hub-embedded/schema/models.ts";
import { unknownPodFields } from "@picolet/protocol/pod/validation/unknown-fields.ts";

const models = new FolderModelSource("node_modules/@kubernetes/client-node/dist/gen/models");

/** A value that has every field of its type once, down to the leaves. */
function fullValue(type: FieldType): unknown {
  switch (type.kind) {
    case "array":
      return [fullValue(type.items)];
    case "map":
      return { "example.com/key": fullValue(type.values) };
    case "object":
      return Object.fromEntries(
        [...models.get(type.model).fields.values()]
          .filter(({ name }) => name !== "status")
          .map((field) => [field.name, fullValue(field.type)]),
      );
    default:
      return "";
  }
}

const messagesOf = (pod: unknown): string[] => unknownPodFields(pod).map(({ message }) => message);
const podWith = (spec: object): object => ({ apiVersion: "v1", kind: "Pod", metadata: { name: "a" }, spec });

test("no field of Kubernetes' Pod is called unknown", () => {
  assert.deepEqual(messagesOf(fullValue({ kind: "object", model: "V1Pod" })), []);
});

for (const [name, pod, expected] of [
  [
    "in a list",
    podWith({ containers: [{ name: "a" }, { name: "b", comand: ["x"] }] }),
    ['unknown field "spec.containers[1].comand", did you mean "command"?'],
  ],
  [
    "by its letters' case",
    podWith({ containers: [{ imagepullpolicy: "Never" }] }),
    ['unknown field "spec.containers[0].imagepullpolicy", did you mean "imagePullPolicy"?'],
  ],
  ["nothing like it", { ...podWith({}), replicas: 3 }, ['unknown field "replicas"']],
  [
    "deep below optional fields",
    podWith({ containers: [{ livenessProbe: { httpGet: { prot: 80, path: "/" } } }], volumes: [{ emptydir: {} }] }),
    [
      'unknown field "spec.containers[0].livenessProbe.httpGet.prot", did you mean "port"?',
      'unknown field "spec.volumes[0].emptydir", did you mean "emptyDir"?',
    ],
  ],
  ["keys of maps are nobody's fields", podWith({ nodeSelector: { anything: "x" } }), []],
  ["its status is another's", { ...podWith({}), status: { phasee: "Running" } }, []],
  ["what is no mapping", podWith({ containers: "none", volumes: [null, 7] }), []],
  ["inherited names", podWith({ constructor: 1 }), ['unknown field "spec.constructor"']],
] as const satisfies readonly (readonly [string, object, readonly string[]])[]) {
  test(`unknown fields: ${name}`, () => assert.deepEqual(messagesOf(pod), expected));
}

test("what a hostile manifest can make it say and do has an end", () => {
  const names = Array.from({ length: 1000 }, (_, index) => [`x${index}`, 1] as const);
  assert.equal(unknownPodFields(podWith(Object.fromEntries(names))).length, 20);
  const many = Array.from({ length: 200_000 }, () => ({ name: "a" }));
  assert.deepEqual(unknownPodFields(podWith({ containers: [...many, { comand: [] }] })), []);
});
