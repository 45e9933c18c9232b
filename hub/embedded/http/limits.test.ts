/** Requests above a limit are refused before the work is done, and long work is divided. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type AskInit, type Json, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";

const server = await TestApiServer.start();
after(() => server[Symbol.asyncDispose]());

const MAPS = "/api/v1/namespaces/default/configmaps";
const ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const NODES = "/api/v1/nodes";
const STRATEGIC = "application/strategic-merge-patch+json";
const MERGE = "application/merge-patch+json";
const JSON_PATCH = "application/json-patch+json";
const APPLY = "application/apply-patch+yaml";
const YAML = "application/yaml";
const PROTOBUF = "application/vnd.kubernetes.protobuf";

const many = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
const conditions = (count: number, status = "True"): Json[] => many(count, (i) => ({ type: `T${i}`, status }));
const config = (name: string, data: Json, metadata: Json = {}): Json => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name, ...metadata },
  data,
});
const texts = (count: number, value: string): Json => Object.fromEntries(many(count, (i) => [`k${i}`, value]));

async function refused(status: number, message: RegExp, method: string, path: string, init: AskInit): Promise<void> {
  const answer = await server.ask(method, path, init);
  assert.match(String(answer.body.message), message);
  assert.equal(answer.status, status);
  assert.ok(answer.text.length < 64 * 1024, "an answer that is no larger than it needs to be");
}

async function node(name: string): Promise<string> {
  await server.expect(201, "POST", NODES, { body: { metadata: { name } } });
  return `${NODES}/${name}`;
}

test("bodies that froze or ended the server are refused", async () => {
  const path = await node("frozen");
  const cases: readonly (readonly [number, RegExp, string, string, AskInit])[] = [
    // Each key was compared with all before it: 16 s.
    [
      413,
      /an object has more than 4096 keys/,
      "POST",
      MAPS,
      { type: YAML, body: `data:\n${many(24_000, (i) => ` k${i}: "1"\n`).join("")}` },
    ],
    [413, /limit for YAML is 1048576; send JSON/, "POST", MAPS, { type: YAML, body: `a: [${"a,".repeat(600_000)}]` }],
    [400, /more than 200000 tokens; send JSON/, "POST", MAPS, { type: YAML, body: `a: ${"[".repeat(250_000)}` }],
    [400, /Alias resolution is disabled/, "POST", MAPS, { type: YAML, body: "a: &a [1, 2]\nb: *a\n" }],
    [400, /Map keys must be unique: "a"/, "POST", MAPS, { type: YAML, body: "data: {a: '1', a: '2'}\n" }],
    // Each item was looked for among all others: 43 to 77 s.
    [
      413,
      /a list has more than 16384 items/,
      "PATCH",
      `${path}/status`,
      { type: STRATEGIC, body: { status: { conditions: conditions(60_000) } } },
    ],
    [
      413,
      /status\.conditions has 5000 items, limit is 1024/,
      "PATCH",
      `${path}/status`,
      { type: STRATEGIC, body: { status: { conditions: conditions(5000) } } },
    ],
    [
      413,
      /status\.conditions has 5000 items, limit is 1024/,
      "PATCH",
      `${path}/status?fieldManager=a`,
      {
        type: APPLY,
        body: {
          apiVersion: "v1",
          kind: "Node",
          metadata: { name: "frozen" },
          status: { conditions: conditions(5000) },
        },
      },
    ],
    // The difference of two lists was computed: 4 GB of heap, and the process ended.
    [
      422,
      /testing path \/spec\/x value failed/,
      "PATCH",
      path,
      {
        type: JSON_PATCH,
        body: [
          { op: "add", path: "/spec/x", value: many(1000, (i) => i) },
          { op: "test", path: "/spec/x", value: many(1000, (i) => -i) },
        ],
      },
    ],
    [
      413,
      /the patch takes more than 1000000 steps/,
      "PATCH",
      path,
      {
        type: JSON_PATCH,
        body: [
          { op: "add", path: "/x", value: many(16_000, () => 0) },
          ...many(9000, () => ({ op: "add", path: "/x/0", value: 0 })),
        ],
      },
    ],
    [
      413,
      /accumulated size increase of copy is \d+, exceeding the limit 3145728/,
      "PATCH",
      path,
      {
        type: JSON_PATCH,
        body: [
          { op: "add", path: "/x", value: "x".repeat(100_000) },
          ...many(40, () => ({ op: "copy", from: "/x", path: "/y" })),
        ],
      },
    ],
    // Line breaks matched two parts of the pattern.
    [
      400,
      /illegal base64 data/,
      "POST",
      "/api/v1/namespaces/default/secrets",
      { body: { metadata: { name: "s" }, data: { a: `${"\n".repeat(500_000)}!` } } },
    ],
    [413, /it holds more than 65536 values/, "POST", MAPS, { type: PROTOBUF, body: unknownFields(70_000) }],
    [413, /it holds more than 65536 values/, "POST", MAPS, { body: { x: many(300, () => many(300, () => 0)) } }],
    [413, /the object holds more than 32768 values/, "POST", ROLES, { body: manyValues() }],
    [400, /exceeded max depth/, "POST", MAPS, { body: `${'{"a":'.repeat(300)}1${"}".repeat(300)}` }],
  ];
  for (const [status, message, method, where, init] of cases) await refused(status, message, method, where, init);
  assert.equal((await server.ask("GET", "/readyz")).status, 200);
});

/** A protobuf envelope around `count` fields that no message has. */
function unknownFields(count: number): Uint8Array {
  const fields = Buffer.alloc(count * 2).fill(Buffer.from([0x78, 1]));
  const length = [fields.length & 0x7f, (fields.length >> 7) & 0x7f, fields.length >> 14];
  const head = [0x12, (length[0] ?? 0) | 0x80, (length[1] ?? 0) | 0x80, length[2] ?? 0];
  return Buffer.concat([Buffer.from("k8s\0"), Buffer.from(head), fields]);
}

/** No list and no map of it is too long. */
const manyValues = (): Json => ({
  metadata: { name: "values" },
  rules: many(1000, () => ({ apiGroups: [""], resources: ["a"], verbs: many(40, () => "get") })),
});

test("an object is no larger than etcd would take, however it is written", async () => {
  const third = "x".repeat(500_000);
  await server.expect(201, "POST", MAPS, { body: config("grown", { a: third }) });
  await server.expect(200, "PATCH", `${MAPS}/grown`, { body: { data: { b: third } }, type: MERGE });
  const limit = /the object would be stored with 15\d{5} bytes, limit is 1572864/;
  const path = `${MAPS}/grown`;
  // The data of a ConfigMap has a limit of its own, so annotations make up the rest.
  const path2 = await node("grown");
  const status = (size: number): Json => ({ config: { error: "x".repeat(size) } });
  await server.expect(200, "PATCH", `${path2}/status`, { body: { status: status(1_500_000) }, type: MERGE });
  const more = { metadata: { annotations: { a: "y".repeat(90_000) } } };
  await refused(413, limit, "PATCH", path2, { body: more, type: MERGE });
  await refused(413, limit, "PATCH", path2, { body: more, type: STRATEGIC });
  await refused(413, limit, "PATCH", `${path2}?dryRun=All`, { body: more, type: MERGE });
  const patch = [{ op: "add", path: "/metadata/annotations", value: more.metadata.annotations }];
  await refused(413, limit, "PATCH", path2, { body: patch, type: JSON_PATCH });
  const applied = { apiVersion: "v1", kind: "Node", metadata: { name: "grown", ...more.metadata } };
  await refused(413, limit, "PATCH", `${path2}?fieldManager=a`, { body: applied, type: APPLY });
  const whole = await server.expect(200, "GET", path2);
  const metadata = { ...(whole.metadata as Json), ...more.metadata };
  await refused(413, limit, "PUT", path2, { body: { ...whole, metadata } });
  const made = { metadata: { name: "grown-2" }, status: status(1_600_000) };
  await refused(413, /the object would be stored with 16\d{5} bytes/, "POST", NODES, { body: made });
  assert.deepEqual(await server.expect(200, "GET", path2), whole);
  await server.expect(200, "DELETE", path);
});

test("what is within the limits is taken, and each kind of patch of it", async () => {
  const path = await node("large");
  const first = conditions(1000);
  await server.expect(200, "PATCH", `${path}/status`, { type: STRATEGIC, body: { status: { conditions: first } } });
  const second = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "large" },
    status: { conditions: conditions(1000, "False") },
  };
  const conflict = await server.ask("PATCH", `${path}/status?fieldManager=a`, { type: APPLY, body: second });
  assert.match(String(conflict.body.message), /^Apply failed with 1000 conflicts/);
  await server.expect(200, "PATCH", `${path}/status?fieldManager=a&force=true`, { type: APPLY, body: second });
  const own = `${await node("pruned")}/status?fieldManager=a`;
  const applied = (count: number): Json => ({
    ...second,
    metadata: { name: "pruned" },
    status: { conditions: conditions(count) },
  });
  await server.expect(200, "PATCH", own, { type: APPLY, body: applied(1000) });
  const pruned = await server.expect(200, "PATCH", own, { type: APPLY, body: applied(1) });
  assert.equal((pruned.status as { conditions: Json[] }).conditions.length, 1);
  const yaml = `metadata: {name: yaml}\ndata:\n${many(3000, (i) => ` k${i}: "1"\n`).join("")}`;
  const read = await server.expect(201, "POST", MAPS, { type: YAML, body: yaml });
  assert.equal(Object.keys(read.data as Json).length, 3000);
  const shown = await server.ask("GET", `${MAPS}/yaml`, { headers: { accept: "application/yaml" } });
  assert.match(shown.text, /^apiVersion: v1\n/);
});

test("an object has a bounded number of managers, and an answer a bounded number of errors", async () => {
  const path = await node("managed");
  const entry = (i: number): Json => ({
    ...{ manager: `m${i}`, operation: "Apply", apiVersion: "v1", fieldsType: "FieldsV1" },
    fieldsV1: { "f:spec": { [`f:x${i}`]: {} } },
  });
  const body = (count: number): Json => ({
    metadata: { managedFields: many(count, entry) },
    spec: { unschedulable: true },
  });
  await server.expect(200, "PATCH", path, { body: body(60), type: MERGE });
  await refused(413, /metadata\.managedFields has 101 entries, limit is 64/, "PATCH", path, {
    body: { ...body(100), spec: { unschedulable: false } },
    type: MERGE,
  });
  await refused(422, /and 3900 more errors\]$/, "POST", MAPS, {
    body: config("errors", {}, { ownerReferences: many(1000, () => ({})) }),
  });
  const key = "k".repeat(1_000_000);
  await refused(400, /strict decoding error: unknown field/, "POST", `${MAPS}?fieldValidation=Strict`, {
    body: { ...config("keys", {}), metadata: { name: "keys", ...texts(99, "1") }, [key]: 1 },
  });
});

/** A namespace with four ConfigMaps of 300 KB each, whose list is too large to be formatted. @returns its ConfigMaps */
async function largeMaps(namespace: string): Promise<string> {
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: namespace } } });
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  for (const body of many(4, (i) => config(`large-${i}`, texts(1, "x".repeat(300_000)))))
    await server.expect(201, "POST", path, { body });
  return path;
}

test("answers that take long to format wait for their turn", async (t) => {
  const { turns } = server.server.core.service;
  const pauses = t.mock.method(turns, "next").mock;
  const path = `${MAPS}/formatted`;
  await server.expect(201, "POST", MAPS, { body: config("formatted", texts(1000, "x".repeat(50))) });
  await server.expect(201, "POST", MAPS, { body: config("pretty", texts(2000, "x".repeat(50))) });
  await server.expect(201, "POST", MAPS, { body: config("large", texts(1, "x".repeat(300_000))) });
  await server.expect(201, "POST", MAPS, { body: config("small", texts(10, "x")) });
  const largeList = await largeMaps("turns");
  const table = "application/json;as=Table;g=meta.k8s.io;v=v1";
  for (const [count, query, accept] of [
    [0, path, "application/json"],
    [1, path, "application/yaml"],
    [1, `${MAPS}/pretty?pretty=1`, "application/json"],
    [0, `${MAPS}/pretty`, "application/json"],
    [1, `${MAPS}/large`, table],
    [0, `${MAPS}/large`, "application/yaml"],
    [4, largeList, "application/json"],
    [4, `${largeList}?pretty=1`, "application/json"],
    [8, largeList, table],
    [0, `${MAPS}/small?pretty=1`, "application/yaml"],
    [0, `${MAPS}/small`, table],
  ] as const) {
    pauses.resetCalls();
    await server.expect(200, "GET", query, { headers: { accept } });
    assert.equal(pauses.callCount(), count, `${query} ${accept}`);
  }
});

test("large answers are not formatted", async () => {
  await server.expect(201, "POST", MAPS, { body: config("wide", texts(2000, "x".repeat(40))) });
  const yaml = await server.ask("GET", `${MAPS}/wide`, { headers: { accept: "application/yaml" } });
  assert.equal(yaml.headers.get("content-type"), "application/yaml");
  assert.match(yaml.text, /^\{"apiVersion":"v1"/);
  const pretty = await server.ask("GET", `${await largeMaps("wide")}?pretty=1`);
  assert.match(pretty.text, /^\{"kind":"ConfigMapList"/);
});
