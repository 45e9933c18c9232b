/** The patch types, against what Kubernetes' own documentation and code say of them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MODELS } from "@picolet/test/support/unit/embedded/api-server.ts";
import fc from "fast-check";
import { StatusError } from "../api/status-error.ts";
import { applyObjectPatch } from "./apply-patch.ts";
import { strategicMerge } from "./strategic-merge.ts";

type Fields = Record<string, unknown>;

const spec = (fields: Fields): Fields => ({ spec: fields });
const meta = (fields: Fields): Fields => ({ metadata: fields });
const status = (fields: Fields): Fields => ({ status: fields });

interface Case {
  readonly name: string;
  readonly model?: string;
  readonly live: Fields;
  readonly patch: Fields;
  readonly result: Fields;
}

const CASES: readonly Case[] = [
  {
    name: "containers are merged by name",
    live: spec({
      containers: [
        { name: "a", image: "1", env: [{ name: "X", value: "1" }] },
        { name: "b", image: "1" },
      ],
    }),
    patch: spec({ containers: [{ name: "a", image: "2", env: [{ name: "Y", value: "2" }] }] }),
    result: spec({
      containers: [
        {
          name: "a",
          image: "2",
          env: [
            { name: "X", value: "1" },
            { name: "Y", value: "2" },
          ],
        },
        { name: "b", image: "1" },
      ],
    }),
  },
  {
    name: "$patch: delete takes an item out",
    live: spec({ containers: [{ name: "a" }, { name: "b" }] }),
    patch: spec({
      containers: [
        { name: "a", $patch: "delete" },
        { name: "none", $patch: "delete" },
      ],
    }),
    result: spec({ containers: [{ name: "b" }] }),
  },
  {
    name: "$patch: replace replaces a list",
    live: spec({ containers: [{ name: "a" }, { name: "b" }] }),
    patch: spec({ containers: [{ $patch: "replace" }, { name: "c" }] }),
    result: spec({ containers: [{ name: "c" }] }),
  },
  {
    name: "$patch: replace replaces an object",
    live: spec({ securityContext: { runAsUser: 1, runAsGroup: 2 } }),
    patch: spec({ securityContext: { $patch: "replace", runAsUser: 3 } }),
    result: spec({ securityContext: { runAsUser: 3 } }),
  },
  {
    name: "$patch: delete empties an object",
    live: spec({ securityContext: { runAsUser: 1 } }),
    patch: spec({ securityContext: { $patch: "delete" } }),
    result: spec({ securityContext: {} }),
  },
  {
    name: "null takes a field away",
    live: spec({ nodeName: "n", hostname: "h" }),
    patch: spec({ hostname: null }),
    result: spec({ nodeName: "n" }),
  },
  {
    name: "tolerations are one value",
    live: spec({ tolerations: [{ key: "a" }, { key: "b" }] }),
    patch: spec({ tolerations: [{ key: "c" }] }),
    result: spec({ tolerations: [{ key: "c" }] }),
  },
  {
    name: "a node's taints are one value",
    model: "V1Node",
    live: spec({ taints: [{ key: "a", effect: "NoSchedule" }] }),
    patch: spec({ taints: [{ key: "b", effect: "NoExecute" }] }),
    result: spec({ taints: [{ key: "b", effect: "NoExecute" }] }),
  },
  {
    name: "ports are keyed by containerPort, mounts by path, volumes by name",
    live: spec({
      containers: [
        { name: "a", ports: [{ containerPort: 80, name: "x" }], volumeMounts: [{ mountPath: "/a", name: "v" }] },
      ],
      volumes: [{ name: "v", emptyDir: {} }],
    }),
    patch: spec({
      containers: [
        {
          name: "a",
          ports: [{ containerPort: 80, name: "y" }, { containerPort: 81 }],
          volumeMounts: [{ mountPath: "/a", readOnly: true }],
        },
      ],
      volumes: [{ name: "w", emptyDir: {} }],
    }),
    result: spec({
      containers: [
        {
          name: "a",
          ports: [{ containerPort: 80, name: "y" }, { containerPort: 81 }],
          volumeMounts: [{ mountPath: "/a", name: "v", readOnly: true }],
        },
      ],
      volumes: [
        { name: "v", emptyDir: {} },
        { name: "w", emptyDir: {} },
      ],
    }),
  },
  {
    name: "$retainKeys drops the other members of a oneof",
    live: spec({ volumes: [{ name: "v", emptyDir: {} }] }),
    patch: spec({ volumes: [{ name: "v", $retainKeys: ["name", "hostPath"], hostPath: { path: "/x" } }] }),
    result: spec({ volumes: [{ name: "v", hostPath: { path: "/x" } }] }),
  },
  {
    name: "$setElementOrder orders, and keeps what it does not name behind what it stood behind",
    live: spec({ containers: [{ name: "a" }, { name: "mine" }, { name: "b" }] }),
    patch: spec({
      "$setElementOrder/containers": [{ name: "b" }, { name: "c" }, { name: "a" }],
      containers: [{ name: "c" }],
    }),
    result: spec({ containers: [{ name: "mine" }, { name: "b" }, { name: "c" }, { name: "a" }] }),
  },
  {
    name: "$setElementOrder alone orders as well",
    live: spec({ containers: [{ name: "a" }, { name: "b" }] }),
    patch: spec({ "$setElementOrder/containers": [{ name: "b" }, { name: "a" }] }),
    result: spec({ containers: [{ name: "b" }, { name: "a" }] }),
  },
  {
    name: "finalizers are a set, $deleteFromPrimitiveList takes out of it",
    live: meta({ finalizers: ["a", "b"] }),
    patch: meta({ finalizers: ["c", "b"], "$deleteFromPrimitiveList/finalizers": ["a"] }),
    result: meta({ finalizers: ["b", "c"] }),
  },
  {
    name: "the last finalizer leaves no empty list",
    live: meta({ finalizers: ["a"] }),
    patch: meta({ "$deleteFromPrimitiveList/finalizers": ["a"] }),
    result: meta({}),
  },
  {
    name: "conditions are keyed by type, owners by uid, addresses by type",
    live: {
      ...meta({ ownerReferences: [{ uid: "1", name: "a" }] }),
      ...status({ conditions: [{ type: "A", status: "True" }] }),
    },
    patch: {
      ...meta({ ownerReferences: [{ uid: "2", name: "b" }] }),
      ...status({ conditions: [{ type: "A", status: "False" }, { type: "B" }] }),
    },
    result: {
      ...meta({
        ownerReferences: [
          { uid: "1", name: "a" },
          { uid: "2", name: "b" },
        ],
      }),
      ...status({ conditions: [{ type: "A", status: "False" }, { type: "B" }] }),
    },
  },
  {
    name: "labels are merged, and taken away one by one",
    live: meta({ labels: { a: "1", b: "2" } }),
    patch: meta({ labels: { b: null, c: "3" } }),
    result: meta({ labels: { a: "1", c: "3" } }),
  },
  {
    name: "through the template of a daemon set",
    model: "V1DaemonSet",
    live: spec({ template: { spec: { containers: [{ name: "a", image: "1" }] } } }),
    patch: spec({ template: { spec: { containers: [{ name: "a", env: [{ name: "X" }] }] } } }),
    result: spec({ template: { spec: { containers: [{ name: "a", image: "1", env: [{ name: "X" }] }] } } }),
  },
  {
    name: "a list that is not there is made, without the directives",
    live: spec({}),
    patch: spec({ containers: [{ name: "a", image: null, env: [{ name: "X", $patch: "delete" }] }] }),
    result: spec({ containers: [{ name: "a", env: [] }] }),
  },
];

for (const { name, model = "V1Pod", live, patch, result } of CASES) {
  test(`strategic merge: ${name}`, () => {
    assert.deepEqual(strategicMerge(MODELS, model, structuredClone(live), patch), result);
  });
}

test("strategic merge: what contradicts itself is refused", () => {
  const wrong: readonly Fields[] = [
    spec({ containers: [{ image: "no name" }] }),
    spec({ containers: ["text"] }),
    spec({ securityContext: { $patch: "explode" } }),
    spec({ $retainKeys: "containers" }),
    meta({ "$deleteFromPrimitiveList/finalizers": "a" }),
    spec({ "$setElementOrder/containers": {}, containers: [{ name: "a" }] }),
  ];
  for (const patch of wrong) {
    assert.throws(
      () => strategicMerge(MODELS, "V1Pod", spec({ containers: [] }), patch),
      (error) => error instanceof StatusError && error.statusCode === 400,
      JSON.stringify(patch),
    );
  }
});

test("JSON merge patch", () => {
  const live = { a: { b: [1], c: "x" }, d: 1 };
  assert.deepEqual(applyObjectPatch(MODELS, "V1Pod", "merge", live, { a: { b: [2], c: null }, e: { f: null } }), {
    a: { b: [2] },
    d: 1,
    e: {},
  });
});

test("JSON patch, and what it must not do", () => {
  const live = (): Fields => ({ a: { b: [1, 2] } });
  const apply = (...patch: readonly unknown[]): Fields => applyObjectPatch(MODELS, "V1Pod", "json", live(), patch);
  assert.deepEqual(apply({ op: "add", path: "/a/b/-", value: 3 }, { op: "test", path: "/a/b/0", value: 1 }), {
    a: { b: [1, 2, 3] },
  });
  assert.deepEqual(apply({ op: "remove", path: "/a/b/0" }, { op: "move", from: "/a/b", path: "/c" }), {
    a: {},
    c: [2],
  });
  const wrong: readonly (readonly [unknown, number])[] = [
    [{ op: "test", path: "/a/b/0", value: 7 }, 422],
    [{ op: "remove", path: "/none" }, 422],
    [{ op: "replace", path: "/none/deeper", value: 1 }, 422],
    [{ op: "explode", path: "/a" }, 400],
    [{ op: "add", path: "a", value: 1 }, 400],
    [{ op: "add", path: "/__proto__/x", value: 1 }, 400],
    [{ op: "add", path: "/constructor/prototype/x", value: 1 }, 400],
    [{ op: "copy", from: "/__proto__", path: "/x" }, 400],
    [{ op: "replace", path: "", value: {} }, 400],
    ["text", 400],
    [null, 400],
  ];
  for (const [operation, code] of wrong) {
    assert.throws(
      () => apply(operation),
      (error) => error instanceof StatusError && error.statusCode === code,
      JSON.stringify(operation),
    );
  }
  const bomb = [
    { op: "add", path: "/x", value: ["x".repeat(100)] },
    ...Array.from({ length: 60 }, () => ({ op: "copy", from: "/x", path: "/x/-" })),
  ];
  assert.throws(
    () => apply(...bomb),
    (error) => error instanceof StatusError && error.statusCode === 413,
  );
  assert.equal(({} as Fields).x, undefined);
});

test("a value that is no text even when it is asked is refused like any other", () => {
  const patch = [{ op: "test", path: "/spec", value: { toString: 1, valueOf: 2 } }];
  const refusal = (error: unknown): boolean => error instanceof StatusError && error.statusCode === 422;
  assert.throws(() => applyObjectPatch(MODELS, "V1Pod", "json", { spec: {} }, patch), refusal);
});

test("no patch of any shape does more than be refused", () => {
  const key = fc.oneof(
    fc.constantFrom(
      "metadata",
      "spec",
      "containers",
      "name",
      "env",
      "$patch",
      "$retainKeys",
      "$setElementOrder/containers",
      "finalizers",
      "$deleteFromPrimitiveList/finalizers",
      "labels",
      "volumes",
    ),
    fc.string(),
  );
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: "medium" },
      fc.constantFrom("delete", "replace", "a", null, 1, true),
      fc.array(tie("value"), { maxLength: 4 }),
      fc.dictionary(key, tie("value"), { maxKeys: 4 }),
    ),
  }));
  const operation = fc.record({
    op: fc.constantFrom("add", "remove", "replace", "move", "copy", "test"),
    path: fc.oneof(fc.constant("/spec"), fc.string()),
    from: fc.string(),
    value,
  });
  fc.assert(
    fc.property(
      fc.constantFrom("json", "merge", "strategic"),
      fc.oneof(value, fc.array(operation)),
      fc.dictionary(key, value),
      (type, patch, live) => {
        try {
          const result = applyObjectPatch(MODELS, "V1Pod", type, structuredClone(live), patch);
          assert.equal(typeof result, "object");
          JSON.stringify(result);
        } catch (error) {
          assert.ok(
            error instanceof StatusError && error.statusCode < 500,
            String(error instanceof Error ? error.stack : error),
          );
        }
      },
    ),
    { numRuns: 3000 },
  );
});
