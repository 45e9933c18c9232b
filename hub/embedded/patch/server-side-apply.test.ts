import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type Answer, type Json, MODELS, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import fc from "fast-check";
import { FieldSet, fieldSetOf } from "./field-set.ts";

const server = await TestApiServer.start();
after(() => server[Symbol.asyncDispose]());

const MAPS = "/api/v1/namespaces/default/configmaps";
const MERGE = "application/merge-patch+json";
const meta = (object: Json): Json => object.metadata as Json;
const config = (name: string, data: Json): Json => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name }, data });

const apply = (name: string, manager: string, body: Json, query = ""): Promise<Answer> =>
  server.ask("PATCH", `${MAPS}/${name}?fieldManager=${manager}${query}`, {
    body,
    type: "application/apply-patch+yaml",
  });

const managers = (object: Json): Json =>
  Object.fromEntries(
    ((meta(object).managedFields ?? []) as Json[]).map(({ manager, operation, fieldsV1 }) => [
      `${String(manager)} ${String(operation)}`,
      fieldsV1,
    ]),
  );

test("what is applied is made, changed and pruned, and nothing else is touched", async () => {
  const made = await apply("own", "one", config("own", { a: "1", b: "2" }));
  assert.equal(made.status, 201);
  assert.deepEqual(managers(made.body), { "one Apply": { "f:data": { "f:a": {}, "f:b": {} } } });
  await server.expect(200, "PATCH", `${MAPS}/own?fieldManager=other`, { body: { data: { c: "3" } }, type: MERGE });
  const changed = await apply("own", "one", config("own", { a: "new" }));
  assert.equal(changed.status, 200);
  assert.deepEqual(changed.body.data, { a: "new", c: "3" });
  assert.deepEqual(managers(changed.body), {
    "one Apply": { "f:data": { "f:a": {} } },
    "other Update": { "f:data": { "f:c": {} } },
  });
  const same = await apply("own", "one", config("own", { a: "new" }));
  assert.equal(meta(same.body).resourceVersion, meta(changed.body).resourceVersion, "no write");
});

test("a field of another manager is a conflict, unless it is the same or forced", async () => {
  await apply("fought", "one", config("fought", { a: "1", b: "1" }));
  assert.equal((await apply("fought", "two", config("fought", { a: "1" }))).status, 200, "both own it now");
  const refused = await apply("fought", "three", config("fought", { a: "3" }));
  assert.equal(refused.status, 409);
  assert.equal(
    refused.body.message,
    'Apply failed with 2 conflicts: conflict with "one" using v1: .data.a\nconflict with "two" using v1: .data.a',
  );
  const { causes } = refused.body.details as { causes: readonly Json[] };
  assert.deepEqual(causes[0], {
    reason: "FieldManagerConflict",
    message: 'conflict with "one" using v1',
    field: ".data.a",
  });
  const forced = await apply("fought", "three", config("fought", { a: "3" }), "&force=true");
  assert.deepEqual(forced.body.data, { a: "3", b: "1" });
  assert.deepEqual(managers(forced.body), {
    "one Apply": { "f:data": { "f:b": {} } },
    "three Apply": { "f:data": { "f:a": {} } },
  });
});

test("what was there before the first apply has a manager of its own", async () => {
  await server.expect(201, "POST", MAPS, { body: config("before", { a: "1" }) });
  const refused = await apply("before", "one", config("before", { a: "2" }));
  assert.match(String(refused.body.message), /conflict with "before-first-apply" using v1: \.data\.a/);
  const shared = await apply("before", "one", config("before", { a: "1", b: "2" }));
  assert.deepEqual(shared.body.data, { a: "1", b: "2" });
});

test("an edit takes a field over from who applied it", async () => {
  await apply("edited", "one", config("edited", { a: "1" }));
  const after = await server.expect(200, "PATCH", `${MAPS}/edited?fieldManager=editor`, {
    body: { data: { a: "2" } },
    type: MERGE,
  });
  assert.deepEqual(managers(after), { "editor Update": { "f:data": { "f:a": {} } } });
  const refused = await apply("edited", "one", config("edited", { a: "1" }));
  assert.match(String(refused.body.message), /conflict with "editor" using v1: \.data\.a/);
});

test("lists of a pod are applied item by item", async () => {
  await server.expect(201, "POST", "/api/v1/namespaces/default/serviceaccounts", {
    body: { metadata: { name: "default" } },
  });
  const path = "/api/v1/namespaces/default/pods/listed";
  const pod = (metadata: Json, containers: readonly Json[]): Json => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "listed", ...metadata },
    spec: { containers },
  });
  const type = "application/apply-patch+yaml";
  await server.expect(201, "PATCH", `${path}?fieldManager=one`, {
    body: pod({ finalizers: ["example.com/a"] }, [{ name: "c", image: "1" }]),
    type,
  });
  await server.expect(200, "PATCH", `${path}?fieldManager=two`, {
    body: pod({ finalizers: ["example.com/b"] }, [{ name: "c" }]),
    type,
  });
  const last = await server.expect(200, "PATCH", `${path}?fieldManager=one`, {
    body: pod({}, [{ name: "c", image: "2" }]),
    type,
  });
  assert.deepEqual(meta(last).finalizers, ["example.com/b"]);
  const [container] = (last.spec as { containers: Json[] }).containers;
  assert.equal(container?.image, "2");
  const { "one Apply": own } = managers(last) as Record<string, Json>;
  assert.deepEqual(own, {
    "f:spec": { "f:containers": { 'k:{"name":"c"}': { ".": {}, "f:image": {}, "f:name": {} } } },
  });
});

test("what cannot be applied is refused", async () => {
  const cases: readonly (readonly [Json | string, RegExp])[] = [
    [
      { ...config("bad", {}), spec: {} },
      /failed to create typed patch object \(default\/bad; v1, Kind=ConfigMap\): \.spec: field not declared in schema/,
    ],
    [config("other", {}), /name of the object \(other\) does not match/],
    [{ metadata: { name: "bad" } }, /apiVersion and kind are required/],
    [{ ...config("bad", {}), metadata: { name: "bad", managedFields: [] } }, /managedFields must be nil/],
    ["[1, 2]", /expected an object/],
    ["a: [", /error decoding YAML/],
  ];
  for (const [body, message] of cases) {
    const { status, body: answer } = await server.ask("PATCH", `${MAPS}/bad?fieldManager=x`, {
      body,
      type: "application/apply-patch+yaml",
    });
    assert.equal(status, 400);
    assert.match(String(answer.message), message);
  }
});

test("field sets survive any JSON", () => {
  const segment = fc.oneof(
    fc.string().map((each) => `f:${each}`),
    fc.constantFrom('k:{"name":"a"}', 'v:"x"', "."),
  );
  const { json } = fc.letrec((tie) => ({
    json: fc.dictionary(segment, fc.oneof({ maxDepth: 4 }, fc.constant({}), tie("json")), { maxKeys: 3 }),
  }));
  fc.assert(
    fc.property(json, (value) => {
      const once = FieldSet.fromJson(value);
      assert.deepEqual(FieldSet.fromJson(once.toJson()).toJson(), once.toJson());
    }),
  );
  for (const value of [null, 1, "x", [], [{}]]) assert.ok(FieldSet.fromJson(value).isEmpty);
  const set = fieldSetOf(MODELS, "V1Pod", {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "a", labels: {} },
    spec: { tolerations: [{ key: "a" }] },
  });
  assert.deepEqual(set.toJson(), { "f:metadata": { "f:labels": {} }, "f:spec": { "f:tolerations": {} } });
});
