import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { seconds } from "@picolet/protocol/ports.ts";
import { type Json, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { FLOW_BYTES } from "./request-fairness.ts";

const MAPS = "/api/v1/namespaces/default/configmaps";
const MERGE = "application/merge-patch+json";
const meta = (object: unknown): Json => (object as Json).metadata as Json;

/** `ADDED a`, `BOOKMARK`. */
const line = ({ type, object }: Json): string =>
  type === "BOOKMARK" ? "BOOKMARK" : `${String(type)} ${String(meta(object).name)}`;

async function take(events: AsyncGenerator<Json>, count: number): Promise<Json[]> {
  const taken: Json[] = [];
  while (taken.length < count) {
    const { value, done } = await events.next();
    if (done === true) throw new Error(`the watch ended after ${taken.map(line).join(", ")}`);
    taken.push(value as Json);
  }
  return taken;
}

const make = (server: TestApiServer, name: string, labels: Json = {}): Promise<Json> =>
  server.expect(201, "POST", MAPS, { body: { metadata: { name, labels } } });
const label = (server: TestApiServer, name: string, labels: Json): Promise<Json> =>
  server.expect(200, "PATCH", `${MAPS}/${name}`, { body: { metadata: { labels } }, type: MERGE });

async function currentRevision(server: TestApiServer): Promise<string> {
  return String(meta(await server.expect(200, "GET", MAPS)).resourceVersion);
}

test("a watch without a revision begins with what is there, one with a revision behind it", async () => {
  await using server = await TestApiServer.start();
  await make(server, "a");
  const from = await currentRevision(server);
  await make(server, "b");
  for (const query of ["", "?resourceVersion=0"]) {
    const events = server.watch(`${MAPS}${query}`);
    assert.deepEqual((await take(events, 2)).map(line), ["ADDED a", "ADDED b"]);
    await events.return(undefined);
  }
  const events = server.watch(`${MAPS}?resourceVersion=${from}`);
  assert.deepEqual((await take(events, 1)).map(line), ["ADDED b"]);
  await label(server, "a", { x: "1" });
  await server.expect(200, "DELETE", `${MAPS}/b`);
  const [modified, deleted] = await take(events, 2);
  assert.deepEqual([line(modified ?? {}), line(deleted ?? {})], ["MODIFIED a", "DELETED b"]);
  assert.equal(meta(deleted?.object).resourceVersion, await currentRevision(server));
});

test("through a selector an object comes and goes as it matches", async () => {
  await using server = await TestApiServer.start();
  const from = await currentRevision(server);
  const events = server.watch(`${MAPS}?resourceVersion=${from}&labelSelector=x%3D1`);
  await make(server, "a");
  await label(server, "a", { x: "1" });
  await label(server, "a", { y: "1" });
  await label(server, "a", { x: "2" });
  await label(server, "a", { x: "1" });
  await server.expect(200, "DELETE", `${MAPS}/a`);
  const seen = await take(events, 5);
  assert.deepEqual(seen.map(line), ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]);
  assert.equal((meta(seen[2]?.object).labels as Json).x, "1", "as it was when it last matched");
  const revisions = seen.map(({ object }) => Number(meta(object).resourceVersion));
  assert.deepEqual(
    revisions,
    revisions.toSorted((a, b) => a - b),
  );
});

test("one name, one namespace, all namespaces", async () => {
  await using server = await TestApiServer.start();
  await server.expect(201, "POST", "/api/v1/namespaces", { body: { metadata: { name: "other" } } });
  const from = await currentRevision(server);
  const byName = server.watch(`${MAPS}?resourceVersion=${from}&fieldSelector=metadata.name%3Db`);
  const everywhere = server.watch(`/api/v1/configmaps?resourceVersion=${from}`);
  const old = server.watch(`/api/v1/watch/namespaces/other/configmaps/b?resourceVersion=${from}`);
  await make(server, "a");
  await server.expect(201, "POST", "/api/v1/namespaces/other/configmaps", { body: { metadata: { name: "b" } } });
  await make(server, "b");
  assert.deepEqual((await take(byName, 1)).map(line), ["ADDED b"]);
  assert.deepEqual((await take(everywhere, 3)).map(line), ["ADDED a", "ADDED b", "ADDED b"]);
  const [event] = await take(old, 1);
  assert.equal(meta(event?.object).namespace, "other");
});

test("sendInitialEvents ends what is there with a marked bookmark", async () => {
  await using server = await TestApiServer.start();
  await make(server, "a");
  const query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
  const events = server.watch(`${MAPS}?${query}`);
  const [added, end] = await take(events, 2);
  assert.equal(line(added ?? {}), "ADDED a");
  assert.equal(end?.type, "BOOKMARK");
  assert.deepEqual(meta(end?.object).annotations, { "k8s.io/initial-events-end": "true" });
  await make(server, "b");
  assert.deepEqual((await take(events, 1)).map(line), ["ADDED b"]);
  const wrong = await server.ask("GET", `${MAPS}?watch=1&sendInitialEvents=true`);
  assert.match(String(wrong.body.message), /sendInitialEvents requires setting resourceVersionMatch to NotOlderThan/);
});

test("bookmarks carry the revision on, and the last one is sent when the time is over", async () => {
  const clock = new VirtualClock();
  await using server = await TestApiServer.start({ clock });
  const from = await currentRevision(server);
  const events = server.watch(`${MAPS}?resourceVersion=${from}&allowWatchBookmarks=true&timeoutSeconds=150`);
  const first = events.next();
  await server.expect(201, "POST", "/api/v1/namespaces/default/secrets", { body: { metadata: { name: "s" } } });
  await clock.advance(seconds(61));
  const bookmark = (await first).value as Json;
  assert.equal(bookmark.type, "BOOKMARK");
  assert.ok(Number(meta(bookmark.object).resourceVersion) > Number(from), "what others wrote moves it too");
  assert.equal((bookmark.object as Json).kind, "ConfigMap");
  await clock.advance(seconds(90));
  const rest: string[] = [];
  for await (const event of events) rest.push(line(event));
  assert.deepEqual(rest, ["BOOKMARK", "BOOKMARK"]);
});

test("a watch from before the history gets 410 Expired, at once or within", async () => {
  await using server = await TestApiServer.start();
  await make(server, "a");
  for (let n = 0; n < 5010; n += 1) {
    server.server.core.store.put({
      key: { resource: "configmaps", namespace: "default", name: "a" },
      type: "MODIFIED",
      object: { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a", namespace: "default" } },
      previous: undefined,
    });
  }
  await server.server.core.store.settled();
  server.server.core.store.compact();
  const { status, body } = await server.ask("GET", `${MAPS}?watch=1&resourceVersion=2`);
  assert.equal(status, 410);
  assert.equal(body.reason, "Expired");
  assert.match(String(body.message), /too old resource version: 2/);
  const { status: gone } = await server.ask(
    "GET",
    `${MAPS}?limit=1&continue=${Buffer.from(JSON.stringify({ v: "meta.k8s.io/v1", rv: 2, namespace: "default", name: "a" })).toString("base64url")}`,
  );
  assert.equal(gone, 410);
});

test("tables and partial objects are watched too", async () => {
  await using server = await TestApiServer.start();
  await make(server, "a");
  const tables = server.watch(MAPS, undefined, { accept: "application/json;as=Table;v=v1;g=meta.k8s.io" });
  const table = async (): Promise<{ columnDefinitions: unknown[]; rows: { cells: unknown[] }[] }> => {
    const [event] = await take(tables, 1);
    return event?.object as { columnDefinitions: unknown[]; rows: { cells: unknown[] }[] };
  };
  const first = await table();
  assert.equal(first.columnDefinitions.length, 3);
  await label(server, "a", { x: "1" });
  const second = await table();
  assert.deepEqual(second.columnDefinitions, [], "said once");
  assert.equal(second.rows[0]?.cells[0], "a");
  const accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
  const [partial] = await take(server.watch(MAPS, undefined, { accept }), 1);
  assert.deepEqual(Object.keys(partial?.object as Json), ["kind", "apiVersion", "metadata"]);
});

test("no event is lost or doubled for watchers that break off and come back, over restarts too", {
  timeout: 120_000,
}, async () => {
  using folder = new TempFolder();
  const storePath = folder.at("hub.db");
  const random = seededRandom(11);
  const wanted: string[] = [];
  const watchers = Array.from({ length: 8 }, () => ({ seen: [] as string[], revision: "" }));
  let next = 0;
  for (let life = 0; life < 3; life += 1) {
    await using server = await TestApiServer.start({ storePath });
    const start = await currentRevision(server);
    for (const watcher of watchers) if (watcher.revision === "") watcher.revision = start;
    const last = next + 150;
    const following = watchers.map(async (watcher) => {
      const isDone = (): boolean => watcher.seen.length >= last * 2;
      while (!isDone()) {
        const breakAfter = 1 + Math.floor(random.next() * 40);
        const stop = new AbortController();
        let count = 0;
        try {
          for await (const { type, object } of server.watch(
            `${MAPS}?resourceVersion=${watcher.revision}`,
            stop.signal,
          )) {
            assert.notEqual(type, "ERROR");
            watcher.revision = String(meta(object).resourceVersion);
            watcher.seen.push(`${String(type)} ${String(meta(object).name)}`);
            count += 1;
            if (count >= breakAfter || isDone()) break;
          }
        } finally {
          stop.abort();
        }
      }
    });
    const writing: Promise<unknown>[] = [];
    for (; next < last; next += 1) {
      const name = `n${next}`;
      wanted.push(name);
      writing.push(make(server, name).then(() => server.expect(200, "DELETE", `${MAPS}/${name}`)));
      if (next % 10 === 0) await writing.at(-1);
    }
    await Promise.all(writing);
    await Promise.all(following);
  }
  for (const { seen } of watchers) {
    assert.equal(seen.length, wanted.length * 2);
    assert.equal(new Set(seen).size, seen.length, "none twice");
    for (const name of wanted) assert.ok(seen.indexOf(`ADDED ${name}`) < seen.indexOf(`DELETED ${name}`), name);
  }
});

test("a watcher that does not read costs no memory, and gets an error when it has fallen behind", {
  timeout: 60_000,
}, async () => {
  await using server = await TestApiServer.start();
  const from = await currentRevision(server);
  const stop = new AbortController();
  const events = server.watch(`${MAPS}?resourceVersion=${from}`, stop.signal);
  await make(server, "big");
  await take(events, 1);
  // Far more than sockets and streams take on the way.
  const body = "x".repeat(20_000);
  for (let n = 0; n < 6000; n += 1) {
    server.server.core.store.put({
      key: { resource: "configmaps", namespace: "default", name: "big" },
      type: "MODIFIED",
      object: { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "big", namespace: "default" }, data: { body } },
      previous: undefined,
    });
    if (n % 500 === 0) await server.server.core.store.settled();
  }
  await server.server.core.store.settled();
  server.server.core.store.compact();
  let count = 0;
  let last: Json = {};
  for await (const event of events) {
    last = event;
    count += 1;
  }
  assert.equal(last.type, "ERROR");
  assert.equal((last.object as Json).code, 410);
  assert.ok(count < 6000);
});

test("watches that read nothing keep no more than their user's budget, and are cut off", async () => {
  const clock = new VirtualClock();
  await using server = await TestApiServer.start({ clock });
  const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
  const rules = [{ apiGroups: [""], resources: ["configmaps"], verbs: ["watch"] }];
  await server.expect(201, "POST", `${rbac}/roles`, { body: { metadata: { name: "watcher" }, rules } });
  await server.expect(201, "POST", `${rbac}/rolebindings`, {
    body: {
      metadata: { name: "joe" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "watcher" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "joe" }],
    },
  });
  // More than sockets take on the way.
  const data = { text: "x".repeat(1_000_000) };
  for (let n = 0; n < 12; n += 1)
    await server.expect(201, "POST", MAPS, { body: { metadata: { name: `m${n}` }, data } });
  const { port, hostname } = new URL(server.url);
  const sockets = Array.from({ length: 100 }, () => {
    const socket = connect(Number(port), hostname);
    socket.on("error", () => undefined);
    socket.write(`GET ${MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer joe\r\n\r\n`);
    return socket.pause();
  });
  const { requests } = server.server;
  try {
    while (requests.load.streams < 100 || requests.load.bytes < FLOW_BYTES / 2) await server.expect(200, "GET", "/api");
    // Those that wait in turn have read nothing from the store.
    assert.ok(requests.load.bytes <= 3 * FLOW_BYTES, String(requests.load.bytes));
    const events = server.watch(`${MAPS}?fieldSelector=metadata.name%3Dm0`);
    assert.deepEqual((await take(events, 1)).map(line), ["ADDED m0"]);
    await events.return(undefined);
    // Each time those are cut off that have had their time, and others come in.
    for (let n = 0; n < 100 && requests.load.streams > 0; n += 1) {
      await clock.advance(seconds(200));
      await server.expect(200, "GET", "/api");
    }
    assert.equal(requests.load.streams, 0);
    assert.equal(requests.load.bytes, 0);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
});

test("watches end in order when the server stops", async () => {
  await using server = await TestApiServer.start();
  const events = server.watch(MAPS);
  await make(server, "a");
  await take(events, 1);
  const ended = events.next();
  await server.server[Symbol.asyncDispose]();
  assert.equal((await ended).done, true);
});
