import assert from "node:assert/strict";
import { after, test } from "node:test";
import { CONFIG_MAPS, type KubeObject, NODES, SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { ADMIN_USER, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";

const server = await TestApiServer.start();
after(() => server[Symbol.asyncDispose]());
const client = server.server.client(ADMIN_USER);
const { signal } = new AbortController();
const ref = (name: string): { namespace: string; name: string } => ({ namespace: "default", name });

test("objects are made, read, changed, listed and removed as over HTTP", async () => {
  const made = await client.create(CONFIG_MAPS, ref("a"), { data: { k: "1" } }, {}, signal);
  assert.equal(made.metadata.name, "a");
  assert.deepEqual(await client.get(CONFIG_MAPS, ref("a"), signal), made);
  const updated = await client.update(CONFIG_MAPS, ref("a"), { ...made, data: { k: "2" } } as KubeObject, {}, signal);
  assert.deepEqual(made.data, { k: "1" }, "what was handed in or out is not changed");
  await client.patch(CONFIG_MAPS, ref("a"), "merge", { metadata: { labels: { x: "1" } } }, {}, signal);
  await client.patch(CONFIG_MAPS, ref("a"), "strategic", { data: { m: "3" } }, {}, signal);
  await client.patch(CONFIG_MAPS, ref("a"), "json", [{ op: "remove", path: "/data/k" }], {}, signal);
  const { items, resourceVersion } = await client.list(
    CONFIG_MAPS,
    { namespace: "default", labelSelector: "x=1" },
    signal,
  );
  assert.deepEqual(
    items.map((each) => each.data),
    [{ m: "3" }],
  );
  assert.ok(Number(resourceVersion) > Number(updated.metadata.resourceVersion));
  await client.create(CONFIG_MAPS, ref("dry"), {}, { dryRun: true }, signal);
  await assert.rejects(client.get(CONFIG_MAPS, ref("dry"), signal), (error) => isPicoletError(error, "not_found"));
  await client.delete(CONFIG_MAPS, ref("a"), {}, signal);
  const drawn = await client.create(SECRETS, ref(""), { metadata: { generateName: "s-" } }, {}, signal);
  assert.match(drawn.metadata.name, /^s-\w{5}$/);
});

test("what is handed in is held to the limits of a body, and no more is kept of it than of one", async () => {
  const made = await client.create(CONFIG_MAPS, ref("body"), { data: { k: "1", gone: undefined } }, {}, signal);
  assert.deepEqual(made.data, { k: "1" });
  const patch = (data: unknown): Promise<unknown> => client.patch(CONFIG_MAPS, ref("body"), "merge", data, {}, signal);
  const poisoned = JSON.parse('{"data":{"__proto__":"x"}}') as unknown;
  await assert.rejects(patch(poisoned), (error) => isPicoletError(error, "invalid"));
  const huge = { data: { k: "x".repeat(3 * 1024 * 1024) } };
  await assert.rejects(patch(huge), (error) => isPicoletError(error, "resource_exhausted"));
  const given = client.get(CONFIG_MAPS, ref("body"), AbortSignal.abort());
  await assert.rejects(given, (error) => isPicoletError(error, "cancelled"));
});

test("errors have code and reason", async () => {
  const made = await client.create(CONFIG_MAPS, ref("b"), {}, {}, signal);
  const stale = { ...made, metadata: { ...made.metadata, resourceVersion: "1" } };
  const cases: readonly (readonly [string, string, () => Promise<unknown>])[] = [
    ["already_exists", "AlreadyExists", () => client.create(CONFIG_MAPS, ref("b"), {}, {}, signal)],
    ["conflict", "Conflict", () => client.update(CONFIG_MAPS, ref("b"), stale, {}, signal)],
    ["conflict", "Conflict", () => client.delete(CONFIG_MAPS, ref("b"), { uid: "other" }, signal)],
    ["invalid", "Invalid", () => client.create(CONFIG_MAPS, ref("B_"), {}, {}, signal)],
    ["permission_denied", "Forbidden", () => client.as("nobody", []).get(CONFIG_MAPS, ref("b"), signal)],
    ["not_found", "NotFound", () => client.create(CONFIG_MAPS, { namespace: "none", name: "x" }, {}, {}, signal)],
    [
      "conflict",
      "Expired",
      () => client.watch(CONFIG_MAPS, { resourceVersion: "999999" }, signal)[Symbol.asyncIterator]().next(),
    ],
  ];
  for (const [code, reason, call] of cases) {
    await assert.rejects(
      call(),
      (error) => isPicoletError(error) && error.code === code && error.reason === reason,
      `${code} ${reason}`,
    );
  }
});

test("a node's client is held to what is the node's", async () => {
  const node = client.as("system:node:n", ["system:nodes"]);
  await node.create(NODES, { namespace: "", name: "n" }, {}, {}, signal);
  await assert.rejects(node.create(NODES, { namespace: "", name: "m" }, {}, {}, signal), (error) =>
    isPicoletError(error, "permission_denied"),
  );
  await assert.rejects(node.list(SECRETS, {}, signal), (error) => isPicoletError(error, "permission_denied"));
});

test("a watch reports changes until it is left, in full or without the content", async () => {
  const { resourceVersion } = await client.list(CONFIG_MAPS, {}, signal);
  const stop = new AbortController();
  const seen: string[] = [];
  const following = (async () => {
    for await (const event of client.watch(CONFIG_MAPS, { resourceVersion, metadataOnly: true }, stop.signal)) {
      assert.ok(event.type !== "BOOKMARK");
      assert.deepEqual(Object.keys(event.object), ["apiVersion", "kind", "metadata"]);
      seen.push(`${event.type} ${event.object.metadata.name}`);
      if (seen.length === 3) stop.abort();
    }
  })();
  await client.create(CONFIG_MAPS, ref("w"), { data: { large: "x" } }, {}, signal);
  await client.patch(CONFIG_MAPS, ref("w"), "merge", { data: { large: "y" } }, {}, signal);
  await client.delete(CONFIG_MAPS, ref("w"), {}, signal);
  await following;
  assert.deepEqual(seen, ["ADDED w", "MODIFIED w", "DELETED w"]);
});
