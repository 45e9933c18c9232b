/** Kubernetes' answers, expected from the embedded API server over HTTP. */
import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { after, test } from "node:test";
import { KUBERNETES_VERSION } from "@picolet/protocol/version.ts";
import { type AskInit, type Json, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";

const server = await TestApiServer.start();
after(() => server[Symbol.asyncDispose]());

const MAPS = "/api/v1/namespaces/default/configmaps";
const PODS = "/api/v1/namespaces/default/pods";
const meta = (object: Json): Json => object.metadata as Json;
const config = (name: string, data: Json = {}): Json => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name },
  data,
});

async function fails(
  status: number,
  reason: string,
  message: string | RegExp,
  method: string,
  path: string,
  init: AskInit = {},
): Promise<Json> {
  const { body, text, status: found } = await server.ask(method, path, init);
  assert.equal(found, status, text);
  assert.equal(body.kind, "Status");
  assert.equal(body.status, "Failure");
  assert.equal(body.code, status);
  assert.equal(body.reason, reason);
  if (typeof message === "string") assert.equal(body.message, message);
  else assert.match(String(body.message), message);
  return body;
}

test("an object is made, read, changed and removed", async () => {
  const made = await server.expect(201, "POST", MAPS, { body: config("life", { a: "1" }) });
  assert.match(String(meta(made).uid), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.match(String(meta(made).creationTimestamp), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  assert.deepEqual(await server.expect(200, "GET", `${MAPS}/life`), made);
  const changed = await server.expect(200, "PUT", `${MAPS}/life`, { body: { ...made, data: { a: "2" } } });
  assert.notEqual(meta(changed).resourceVersion, meta(made).resourceVersion);
  assert.equal(meta(changed).uid, meta(made).uid);
  const same = await server.expect(200, "PUT", `${MAPS}/life`, { body: changed });
  assert.equal(meta(same).resourceVersion, meta(changed).resourceVersion, "what changes nothing is no write");
  const gone = await server.expect(200, "DELETE", `${MAPS}/life`);
  assert.deepEqual(gone.details, { name: "life", kind: "configmaps", uid: meta(made).uid });
  assert.equal(gone.status, "Success");
  await fails(404, "NotFound", 'configmaps "life" not found', "GET", `${MAPS}/life`);
  await fails(404, "NotFound", 'configmaps "life" not found', "DELETE", `${MAPS}/life`);
});

test("refusals are worded as Kubernetes words them", async () => {
  await server.expect(201, "POST", MAPS, { body: config("taken") });
  const taken = await server.expect(200, "GET", `${MAPS}/taken`);
  const cases: readonly (readonly [number, string, string | RegExp, string, string, AskInit?])[] = [
    [409, "AlreadyExists", 'configmaps "taken" already exists', "POST", MAPS, { body: config("taken") }],
    [
      404,
      "NotFound",
      'namespaces "none" not found',
      "POST",
      "/api/v1/namespaces/none/configmaps",
      { body: config("x") },
    ],
    [404, "NotFound", 'daemonsets.apps "x" not found', "GET", "/apis/apps/v1/namespaces/default/daemonsets/x"],
    [404, "NotFound", "the server could not find the requested resource", "GET", "/api/v1/nothings"],
    [404, "NotFound", "the server could not find the requested resource", "GET", "/apis/none.example/v1/things"],
    [404, "NotFound", "the server could not find the requested resource", "GET", `${MAPS}/taken/scale`],
    [405, "MethodNotAllowed", /does not allow this method/, "PUT", MAPS, { body: config("x") }],
    [405, "MethodNotAllowed", /does not allow this method/, "POST", `${MAPS}/taken`, { body: config("x") }],
    [405, "MethodNotAllowed", /does not allow this method/, "POST", "/api/v1/configmaps", { body: config("x") }],
    [
      400,
      "BadRequest",
      "the name of the object (other) does not match the name on the URL (taken)",
      "PUT",
      `${MAPS}/taken`,
      { body: config("other") },
    ],
    [
      400,
      "BadRequest",
      "the namespace of the provided object does not match the namespace sent on the request",
      "POST",
      MAPS,
      { body: { ...config("x"), metadata: { name: "x", namespace: "other" } } },
    ],
    [
      400,
      "BadRequest",
      "resourceVersion should not be set on objects to be created",
      "POST",
      MAPS,
      { body: { ...config("x"), metadata: { name: "x", resourceVersion: "1" } } },
    ],
    [
      400,
      "BadRequest",
      "the API version in the data (v2) does not match the expected API version (v1)",
      "POST",
      MAPS,
      { body: { ...config("x"), apiVersion: "v2" } },
    ],
    [
      400,
      "BadRequest",
      /^Secret in version "v1" cannot be handled as a ConfigMap/,
      "POST",
      MAPS,
      { body: { ...config("x"), kind: "Secret" } },
    ],
    [
      400,
      "BadRequest",
      /cannot unmarshal number into Go struct field data\.a of type string/,
      "POST",
      MAPS,
      { body: config("x", { a: 1 }) },
    ],
    [
      400,
      "BadRequest",
      /cannot unmarshal string into Go struct field metadata\.labels of type map\[string\]string/,
      "POST",
      MAPS,
      { body: { metadata: { name: "x", labels: "a" } } },
    ],
    [400, "BadRequest", /json parse error/, "POST", MAPS, { body: '{"a":' }],
    [400, "BadRequest", /exceeded max depth/, "POST", MAPS, { body: `${"[".repeat(5000)}${"]".repeat(5000)}` }],
    [400, "BadRequest", /__proto__/, "POST", MAPS, { body: '{"metadata":{"name":"x"},"data":{"__proto__":"a"}}' }],
    [
      422,
      "Invalid",
      /^ConfigMap "Wrong_Name" is invalid: metadata\.name: Invalid value: "Wrong_Name": a lowercase RFC 1123 subdomain/,
      "POST",
      MAPS,
      { body: config("Wrong_Name") },
    ],
    [
      422,
      "Invalid",
      'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
      "POST",
      MAPS,
      { body: config("") },
    ],
    [
      409,
      "Conflict",
      'Operation cannot be fulfilled on configmaps "taken": the object has been modified; please apply your changes to the latest version and try again',
      "PUT",
      `${MAPS}/taken`,
      { body: { ...taken, metadata: { ...meta(taken), resourceVersion: "1" } } },
    ],
    [
      409,
      "Conflict",
      /Precondition failed: UID in precondition: other, UID in object meta: /,
      "PUT",
      `${MAPS}/taken`,
      { body: { ...taken, metadata: { name: "taken", uid: "other" } } },
    ],
    [
      409,
      "Conflict",
      /Precondition failed: UID in precondition: other/,
      "DELETE",
      `${MAPS}/taken`,
      { body: { preconditions: { uid: "other" } } },
    ],
    [
      409,
      "Conflict",
      /Precondition failed: ResourceVersion in precondition: 1/,
      "DELETE",
      `${MAPS}/taken`,
      { body: { preconditions: { resourceVersion: "1" } } },
    ],
    [415, "UnsupportedMediaType", /unknown format/, "POST", MAPS, { body: "a", type: "text/plain" }],
    [415, "UnsupportedMediaType", /application\/strategic-merge-patch\+json/, "PATCH", `${MAPS}/taken`, { body: {} }],
    [406, "NotAcceptable", /only the following media types/, "GET", MAPS, { headers: { accept: "image/png" } }],
    [400, "BadRequest", "field label not supported: spec.nothing", "GET", `${MAPS}?fieldSelector=spec.nothing%3Da`],
    [400, "BadRequest", /unable to parse requirement/, "GET", `${MAPS}?labelSelector=a%3D%3D%3Db`],
    [400, "BadRequest", /continue key is not valid/, "GET", `${MAPS}?continue=xyz`],
    [400, "BadRequest", /parsing "abc": invalid syntax/, "GET", `${MAPS}?resourceVersion=abc`],
    [504, "Timeout", /Too large resource version: 999999999/, "GET", `${MAPS}?resourceVersion=999999999`],
    [410, "Expired", /list again/, "GET", `${MAPS}?watch=1&resourceVersion=999999999`],
    [422, "Invalid", /dryRun: Unsupported value/, "POST", `${MAPS}?dryRun=Some`, { body: config("x") }],
    [
      422,
      "Invalid",
      /fieldManager: Required value/,
      "PATCH",
      `${MAPS}/taken`,
      { body: config("taken"), type: "application/apply-patch+yaml" },
    ],
    [401, "Unauthorized", "Unauthorized", "GET", MAPS, { token: "wrong" }],
    [
      403,
      "Forbidden",
      'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "default"',
      "GET",
      MAPS,
      { token: "" },
    ],
    [
      403,
      "Forbidden",
      'configmaps "taken" is forbidden: User "joe" cannot get resource "configmaps" in API group "" in the namespace "default"',
      "GET",
      `${MAPS}/taken`,
      { token: "joe" },
    ],
    [
      403,
      "Forbidden",
      'forbidden: User "joe" cannot get path "/picolet/backup"',
      "GET",
      "/picolet/backup",
      { token: "joe" },
    ],
    [
      403,
      "Forbidden",
      'nodes is forbidden: User "joe" cannot list resource "nodes" in API group "" at the cluster scope',
      "GET",
      "/api/v1/nodes",
      { token: "joe" },
    ],
    [
      403,
      "Forbidden",
      'namespaces "default" is forbidden: this namespace may not be deleted',
      "DELETE",
      "/api/v1/namespaces/default",
    ],
  ];
  for (const [status, reason, message, method, path, init] of cases)
    await fails(status, reason, message, method, path, init);
});

test("all errors of an object are reported at once, with a cause for each", async () => {
  const body = { metadata: { name: "x", labels: { "a b": "c d" } }, data: { "in/valid": "" } };
  const { details } = await fails(422, "Invalid", /^ConfigMap "x" is invalid: \[/, "POST", MAPS, { body });
  const { causes } = details as { causes: readonly { field: string; reason: string }[] };
  assert.deepEqual(
    causes.map(({ field, reason }) => [field, reason]),
    [
      ["metadata.labels", "FieldValueInvalid"],
      ["metadata.labels", "FieldValueInvalid"],
      ["data[in/valid]", "FieldValueInvalid"],
    ],
  );
});

test("generateName draws a name, and another one when it is taken", async () => {
  const names = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const made = await server.expect(201, "POST", MAPS, { body: { metadata: { generateName: "drawn-" } } });
      return String(meta(made).name);
    }),
  );
  assert.equal(new Set(names).size, 20);
  for (const name of names) assert.match(name, /^drawn-[bcdfghjklmnpqrstvwxz2456789]{5}$/);
});

test("fieldValidation refuses, warns about or ignores what no type knows and what stands twice", async () => {
  const body = '{"metadata":{"name":"v"},"datta":{},"data":{"a":"1","a":"2"}}';
  const strict = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: ';
  await fails(400, "BadRequest", `${strict}duplicate field "data.a"`, "POST", `${MAPS}?fieldValidation=Strict`, {
    body,
  });
  await fails(400, "BadRequest", `${strict}unknown field "datta"`, "POST", `${MAPS}?fieldValidation=Strict`, {
    body: { metadata: { name: "v" }, datta: {} },
  });
  const warned = await server.ask("POST", `${MAPS}?dryRun=All`, { body });
  assert.equal(
    warned.headers.get("warning"),
    '299 - "duplicate field \\"data.a\\"", 299 - "unknown field \\"datta\\""',
  );
  const ignored = await server.ask("POST", `${MAPS}?dryRun=All&fieldValidation=Ignore`, { body });
  assert.equal(ignored.headers.get("warning"), null);
  assert.equal(ignored.body.datta, undefined);
  await server.expect(201, "POST", MAPS, { body: config("patched") });
  const patch = { body: { spec: {} }, type: "application/merge-patch+json" };
  await fails(
    422,
    "Invalid",
    /strict decoding error: unknown field "spec"/,
    "PATCH",
    `${MAPS}/patched?fieldValidation=Strict`,
    patch,
  );
});

test("a dry run answers as if it were done, and does nothing", async () => {
  await server.expect(201, "POST", `${MAPS}?dryRun=All`, { body: config("dry") });
  await server.expect(404, "GET", `${MAPS}/dry`);
  const real = await server.expect(201, "POST", MAPS, { body: config("dry", { a: "1" }) });
  const put = await server.expect(200, "PUT", `${MAPS}/dry?dryRun=All`, { body: config("dry", { a: "2" }) });
  assert.deepEqual(put.data, { a: "2" });
  await server.expect(200, "DELETE", `${MAPS}/dry?dryRun=All`);
  await server.expect(200, "DELETE", `${MAPS}/dry`, { body: { dryRun: ["All"] } });
  assert.deepEqual(await server.expect(200, "GET", `${MAPS}/dry`), real);
});

test("finalizers hold an object back until they are gone, and none are added meanwhile", async () => {
  const held = { metadata: { name: "held", finalizers: ["example.com/a", "example.com/b"] } };
  await server.expect(201, "POST", MAPS, { body: held });
  const going = await server.expect(200, "DELETE", `${MAPS}/held`);
  assert.ok(meta(going).deletionTimestamp);
  assert.equal(meta(going).deletionGracePeriodSeconds, 0);
  const again = await server.expect(200, "DELETE", `${MAPS}/held`);
  assert.equal(meta(again).resourceVersion, meta(going).resourceVersion);
  const merge = "application/merge-patch+json";
  await fails(
    422,
    "Invalid",
    /no new finalizers can be added if the object is being deleted, found new finalizers \[\]string\{"example\.com\/c"\}/,
    "PATCH",
    `${MAPS}/held`,
    { body: { metadata: { finalizers: ["example.com/a", "example.com/c"] } }, type: merge },
  );
  await server.expect(200, "PATCH", `${MAPS}/held`, {
    body: { metadata: { finalizers: ["example.com/b"] } },
    type: merge,
  });
  await server.expect(200, "GET", `${MAPS}/held`);
  await server.expect(200, "PATCH", `${MAPS}/held`, { body: { metadata: { finalizers: null } }, type: merge });
  await server.expect(404, "GET", `${MAPS}/held`);
});

test("propagation policies become the finalizers that the garbage collector acts on", async () => {
  for (const [policy, finalizer] of [
    ["Foreground", "foregroundDeletion"],
    ["Orphan", "orphan"],
  ] as const) {
    await server.expect(201, "POST", MAPS, { body: config("owner") });
    const going = await server.expect(200, "DELETE", `${MAPS}/owner`, { body: { propagationPolicy: policy } });
    assert.deepEqual(meta(going).finalizers, [finalizer]);
    await server.expect(200, "PATCH", `${MAPS}/owner`, {
      body: { metadata: { finalizers: null } },
      type: "application/merge-patch+json",
    });
  }
  await server.expect(201, "POST", MAPS, { body: config("owner") });
  await server.expect(200, "DELETE", `${MAPS}/owner`, { body: { propagationPolicy: "Background" } });
  await server.expect(404, "GET", `${MAPS}/owner`);
});

const pod = (name: string, spec: Json = {}): Json => ({
  metadata: { name, labels: { app: name } },
  spec: { serviceAccountName: "default", containers: [{ name: "c", image: "busybox" }], ...spec },
});

test("a bound pod is deleted with grace, an unbound one at once", async () => {
  await server.expect(201, "POST", "/api/v1/namespaces/default/serviceaccounts", {
    body: { metadata: { name: "default" } },
  });
  await server.expect(201, "POST", PODS, { body: pod("unbound") });
  const gone = await server.expect(200, "DELETE", `${PODS}/unbound`);
  assert.equal(gone.kind, "Status");
  await server.expect(404, "GET", `${PODS}/unbound`);

  await server.expect(201, "POST", PODS, { body: pod("bound", { terminationGracePeriodSeconds: 20 }) });
  const binding = { metadata: { name: "bound" }, target: { kind: "Node", name: "n1" } };
  const bound = await server.expect(201, "POST", `${PODS}/bound/binding`, { body: binding });
  assert.equal(bound.status, "Success");
  await fails(409, "Conflict", /pod bound is already assigned to node "n1"/, "POST", `${PODS}/bound/binding`, {
    body: binding,
  });
  const going = await server.expect(200, "DELETE", `${PODS}/bound`);
  assert.equal(meta(going).deletionGracePeriodSeconds, 20);
  const longer = await server.expect(200, "DELETE", `${PODS}/bound`, { body: { gracePeriodSeconds: 60 } });
  assert.equal(meta(longer).deletionGracePeriodSeconds, 20, "it is never put off");
  const shorter = await server.expect(200, "DELETE", `${PODS}/bound`, { body: { gracePeriodSeconds: 5 } });
  assert.equal(meta(shorter).deletionGracePeriodSeconds, 5);
  const negative = await server.expect(200, "DELETE", `${PODS}/bound`, { body: { gracePeriodSeconds: -1 } });
  assert.equal(meta(negative).deletionGracePeriodSeconds, 1, "not at once");
  await server.expect(200, "DELETE", `${PODS}/bound?gracePeriodSeconds=0`);

  await server.expect(201, "POST", PODS, { body: pod("slow", { terminationGracePeriodSeconds: 20, nodeName: "n1" }) });
  await server.expect(200, "DELETE", `${PODS}/slow?gracePeriodSeconds=60`);
  const same = await server.expect(200, "DELETE", `${PODS}/slow`);
  assert.equal(meta(same).deletionGracePeriodSeconds, 60, "only who names a time changes it");
  await server.expect(404, "GET", `${PODS}/bound`);
});

test("status is written through its own door alone", async () => {
  await server.expect(201, "POST", "/api/v1/nodes", { body: { metadata: { name: "n1" }, status: { phase: "x" } } });
  const put = await server.expect(200, "PATCH", "/api/v1/nodes/n1/status", {
    body: { status: { conditions: [{ type: "Ready", status: "True" }] }, spec: { unschedulable: true } },
    type: "application/strategic-merge-patch+json",
  });
  assert.equal((put.spec as Json)?.unschedulable, undefined);
  const node = await server.expect(200, "PATCH", "/api/v1/nodes/n1", {
    body: { status: { conditions: [] }, spec: { unschedulable: true } },
    type: "application/merge-patch+json",
  });
  assert.equal((node.spec as Json).unschedulable, true);
  assert.deepEqual(
    ((node.status as Json).conditions as Json[]).map((each) => each.type),
    ["Ready"],
  );
  await server.expect(200, "DELETE", "/api/v1/nodes/n1");
});

test("lists are cut into pages and joined by continue tokens", async () => {
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "pages" } } });
  const path = "/api/v1/namespaces/pages/configmaps";
  for (let n = 0; n < 7; n += 1) await server.expect(201, "POST", path, { body: config(`m${n}`) });
  const seen: string[] = [];
  const revisions = new Set<unknown>();
  let next = "";
  do {
    const page = await server.expect(
      200,
      "GET",
      `${path}?limit=3${next === "" ? "" : `&continue=${encodeURIComponent(next)}`}`,
    );
    const items = page.items as Json[];
    assert.ok(items.length <= 3);
    seen.push(...items.map((each) => String(meta(each).name)));
    revisions.add(meta(page).resourceVersion);
    next = String(meta(page).continue ?? "");
    // Objects that are made meanwhile do not move the revision that the client will watch from.
    await server.expect(201, "POST", MAPS, { body: { metadata: { generateName: "meanwhile-" } } });
  } while (next !== "");
  assert.deepEqual(seen, ["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
  assert.equal(revisions.size, 1);
});

test("selectors choose by labels and fields", async () => {
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "chosen" } } });
  const path = "/api/v1/namespaces/chosen/secrets";
  const all: Readonly<Record<string, Json>> = {
    a: { tier: "web", n: "1" },
    b: { tier: "db", n: "5" },
    c: { n: "9" },
    d: {},
  };
  for (const [name, labels] of Object.entries(all))
    await server.expect(201, "POST", path, { body: { metadata: { name, labels } } });
  const cases: readonly (readonly [string, string])[] = [
    ["labelSelector=tier=web", "a"],
    ["labelSelector=tier==web", "a"],
    ["labelSelector=tier!=web", "bcd"],
    ["labelSelector=tier in (web, db)", "ab"],
    ["labelSelector=tier notin (web)", "bcd"],
    ["labelSelector=tier", "ab"],
    ["labelSelector=!tier", "cd"],
    ["labelSelector=n>4,tier", "b"],
    ["labelSelector=n<6", "ab"],
    ["labelSelector=tier=", ""],
    ["labelSelector= tier = web ", "a"],
    ["fieldSelector=metadata.name=c", "c"],
    ["fieldSelector=metadata.name!=c", "abd"],
    ["fieldSelector=type=Opaque,metadata.name==d", "d"],
    ["fieldSelector=metadata.namespace=chosen&labelSelector=tier", "ab"],
  ];
  for (const [query, expected] of cases) {
    const { items } = await server.expect(200, "GET", `${path}?${query.replaceAll(" ", "%20").replaceAll(">", "%3E")}`);
    assert.equal((items as Json[]).map((each) => meta(each).name).join(""), expected, query);
  }
});

test("tables, partial objects and YAML are given to those who ask", async () => {
  await server.expect(201, "POST", MAPS, { body: config("shown", { a: "1", b: "2" }) });
  for (const version of ["v1", "v1beta1"]) {
    const accept = `application/json;as=Table;v=${version};g=meta.k8s.io,application/json`;
    const table = await server.expect(200, "GET", `${MAPS}/shown`, { headers: { accept } });
    assert.equal(table.kind, "Table");
    assert.equal(table.apiVersion, `meta.k8s.io/${version}`);
    assert.deepEqual(
      (table.columnDefinitions as Json[]).map(({ name }) => name),
      ["Name", "Data", "Age"],
    );
    const [row] = table.rows as { cells: unknown[]; object: Json }[];
    assert.deepEqual(row?.cells.slice(0, 2), ["shown", 2]);
    assert.equal(row?.object.kind, "PartialObjectMetadata");
    const bare = await server.expect(200, "GET", `${MAPS}?includeObject=None&fieldSelector=metadata.name=shown`, {
      headers: { accept },
    });
    assert.deepEqual(
      (bare.rows as Json[]).map(({ object }) => object),
      [null],
    );
  }
  const partial = await server.expect(200, "GET", MAPS, {
    headers: { accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" },
  });
  assert.equal(partial.kind, "PartialObjectMetadataList");
  assert.ok((partial.items as Json[]).every((each) => each.data === undefined));
  const yaml = await server.ask("GET", `${MAPS}/shown`, { headers: { accept: "application/yaml" } });
  assert.equal(yaml.headers.get("content-type"), "application/yaml");
  assert.match(yaml.text, /^apiVersion: v1\nkind: ConfigMap\n/);
  await server.expect(201, "POST", MAPS, {
    body: "metadata: {name: from-yaml}\ndata: {a: 'yes'}\n",
    type: "application/yaml",
  });
  const pretty = await server.ask("GET", `${MAPS}/shown?pretty=true`);
  assert.match(pretty.text, /^\{\n {2}"/);
});

test("a collection is deleted by selector", async () => {
  for (const [name, labels] of [
    ["one", { gone: "yes" }],
    ["two", { gone: "yes" }],
    ["three", {}],
  ] as const) {
    await server.expect(201, "POST", "/api/v1/namespaces/default/secrets", { body: { metadata: { name, labels } } });
  }
  const gone = await server.expect(200, "DELETE", "/api/v1/namespaces/default/secrets?labelSelector=gone%3Dyes");
  assert.equal((gone.items as Json[]).length, 2);
  const left = await server.expect(200, "GET", "/api/v1/namespaces/default/secrets");
  assert.deepEqual(
    (left.items as Json[]).map((each) => meta(each).name),
    ["three"],
  );
});

test("a lease is made by a PUT, a configmap is not", async () => {
  const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: "l" } };
  const path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
  await server.expect(201, "PUT", path, { body: lease });
  await server.expect(200, "PUT", path, { body: { ...lease, spec: { holderIdentity: "a" } } });
  await fails(404, "NotFound", 'configmaps "new" not found', "PUT", `${MAPS}/new`, { body: config("new") });
});

test("bodies and URLs have a limit", async () => {
  const large = config("large", { a: "x".repeat(3 * 1024 * 1024) });
  await fails(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728", "POST", MAPS, {
    body: large,
  }).catch((error: unknown) => {
    // The server may end the connection while the client is still sending.
    assert.match(String(error), /fetch failed/);
  });
  const url = await server.ask("GET", `${MAPS}?labelSelector=${"a,".repeat(7000)}`);
  assert.ok([400, 414, 431].includes(url.status), String(url.status));
  await fails(413, "RequestEntityTooLarge", /allowed maximum operations/, "PATCH", `${MAPS}/shown`, {
    body: Array.from({ length: 10_001 }, () => ({ op: "test", path: "/a", value: 1 })),
    type: "application/json-patch+json",
  });
});

test("uploads that do not come hold up no other identity, and take no memory beyond a flow's budget", async () => {
  const { port } = new URL(server.url);
  const events = "/api/v1/namespaces/default/events";
  const sockets: Socket[] = [];
  const refused = Promise.withResolvers<string>();
  try {
    for (let n = 0; n < 300; n += 1) {
      const socket = connect(Number(port), "127.0.0.1");
      sockets.push(socket);
      socket.on("error", () => undefined);
      socket.once("data", (data) => refused.resolve(data.toString()));
      socket.write(
        `POST ${events} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer node-a\r\n` +
          "Content-Type: application/json\r\nContent-Length: 3000000\r\n\r\n{",
      );
    }
    const head = await refused.promise;
    assert.match(head, /^HTTP\/1\.1 429 /);
    assert.match(head, /\r\nRetry-After: 1\r\n/);
    assert.match(head, /"message":"Too many requests, please try again later\."/);
    assert.match(head, /X-Kubernetes-PF-PriorityLevel-UID: system\r\n/);
    await server.expect(200, "GET", "/api", { token: "admin" });
    // A user without rights is refused.
    assert.equal((await server.ask("GET", "/api", { token: "joe" })).status, 403);
    assert.equal((await server.ask("GET", "/readyz")).status, 200);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
  // The memory that they held is given back.
  const event = { metadata: { name: "after" }, involvedObject: { namespace: "default" } };
  let after = await server.ask("POST", events, { token: "node-a", body: event });
  for (let n = 0; n < 1000 && after.status === 429; n += 1) {
    after = await server.ask("POST", events, { token: "node-a", body: event });
  }
  assert.equal(after.status, 201, after.text);
});

test("an identity with hundreds of requests is answered in turns with others", async () => {
  const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
  const body = { spec: { user: "joe", resourceAttributes: { verb: "get", resource: "pods", namespace: "default" } } };
  let answered = 0;
  const flood = Array.from({ length: 250 }, async () => {
    const { status } = await server.ask("POST", path, { token: "node-a", body });
    assert.ok([201, 429].includes(status), String(status));
    answered += 1;
  });
  const { status, headers } = await server.ask("GET", "/api", { token: "joe" });
  assert.equal(status, 403);
  assert.equal(headers.get("x-kubernetes-pf-flowschema-uid"), "global-default");
  await Promise.all(flood);
  assert.equal(answered, 250);
});

test("watches of one identity are bounded by what it is", async () => {
  const watches = Array.from({ length: 520 }, () => new AbortController());
  const path = "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Da";
  const headers = { authorization: "Bearer node-a" };
  try {
    const answers = await Promise.all(watches.map(({ signal }) => fetch(`${server.url}${path}`, { headers, signal })));
    assert.equal(answers.filter(({ status }) => status === 429).length, 8);
    // The answers are held until here: fetch ends those that are collected, and their places are free again.
    assert.equal(answers.filter(({ status }) => status === 200).length, 512);
    await server.expect(200, "GET", "/api");
  } finally {
    for (const watch of watches) watch.abort();
  }
});

test("health, version, discovery and keys", async () => {
  for (const path of ["/healthz", "/livez", "/readyz"]) {
    const { status, text } = await server.ask("GET", path, { token: "" });
    assert.deepEqual([status, text], [200, "ok"]);
  }
  const version = await server.expect(200, "GET", "/version");
  assert.equal(`${version.major}.${version.minor}`, KUBERNETES_VERSION, "the version that nodes have");
  assert.match(String(version.gitVersion), new RegExp(`^v${KUBERNETES_VERSION}\\.0\\+picolet-`));
  assert.deepEqual((await server.expect(200, "GET", "/api")).versions, ["v1"]);
  const groups = (await server.expect(200, "GET", "/apis")).groups as Json[];
  assert.ok(groups.some(({ name }) => name === "apps"));
  const core = (await server.expect(200, "GET", "/api/v1")).resources as Json[];
  assert.ok(core.some(({ name }) => name === "pods/exec"));
  const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
  const aggregated = await server.ask("GET", "/apis", { headers: { accept } });
  assert.equal(
    aggregated.headers.get("content-type"),
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
  );
  assert.equal(aggregated.body.kind, "APIGroupDiscoveryList");
  const openapi = await server.expect(200, "GET", "/openapi/v3");
  for (const { serverRelativeURL } of Object.values(openapi.paths as Record<string, { serverRelativeURL: string }>)) {
    const document = await server.expect(200, "GET", serverRelativeURL);
    const text = JSON.stringify(document);
    const schemas = (document.components as Json).schemas as Json;
    for (const [, name = ""] of text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)) assert.ok(name in schemas, name);
  }
  assert.equal(((await server.expect(200, "GET", "/openid/v1/jwks")).keys as Json[]).length, 1);
});

test("a backup can be fetched while the server runs", async () => {
  const { status, text } = await server.ask("GET", "/picolet/backup");
  assert.equal(status, 200);
  assert.ok(text.startsWith("SQLite format 3"));
});

test("an answer is not sent before it is safe, nor are reads of what is not", async () => {
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, n) => server.expect(201, "POST", MAPS, { body: config(`together-${n}`) })),
  );
  const revisions = answers.map((each) => Number(meta(each).resourceVersion));
  assert.ok(Math.max(...revisions) <= server.server.core.store.revision);
});
