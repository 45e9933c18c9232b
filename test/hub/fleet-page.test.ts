/** The fleet's page at the hub: rights, what its data has, and its limits. The listener is real, the boards are made up. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { after, before, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { CHANGE_RATE, MAX_STREAMS_PER_USER } from "@picolet/hub/page/fleet-page-port.ts";
import type { FleetBoards, FleetChange, FleetOverview } from "@picolet/protocol/page/fleet-data.ts";
import { boardName, FLEET_TOKEN, FleetPages, LESSER_TOKEN, SHOP_TOKEN } from "../support/page/fleet-pages.ts";

const BOARDS = 10_000;
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });
const ADMIN = bearer(FLEET_TOKEN);

let pages: FleetPages;

before(async () => {
  pages = await FleetPages.start(BOARDS);
});

after(async () => await pages?.[Symbol.asyncDispose]());

async function open(path: string, headers: Record<string, string> = {}, method = "GET"): Promise<IncomingMessage> {
  const options = {
    host: "127.0.0.1",
    port: pages.port,
    path,
    method,
    headers,
    agent: false,
    rejectUnauthorized: false,
  };
  const sent = request(options);
  sent.end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return response;
}

async function bytesOf(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function json<T>(path: string, headers = ADMIN): Promise<T> {
  const response = await open(path, headers);
  const text = (await bytesOf(response)).toString();
  assert.equal(response.statusCode, 200, text);
  return JSON.parse(text) as T;
}

const statusOf = async (...args: Parameters<typeof open>): Promise<number | undefined> => {
  const response = await open(...args);
  response.destroy();
  return response.statusCode;
};

test("the page itself is for all, its data for users with the rights alone", async () => {
  assert.equal(await statusOf("/page/"), 200);
  assert.equal(await statusOf("/page/page.js"), 200);
  for (const path of ["overview", "boards", "rollouts", "changes?since=x", "boards/board-00001/status"]) {
    assert.equal(await statusOf(`/page/data/${path}`), 401, path);
    assert.equal(await statusOf(`/page/data/${path}`, bearer("wrong")), 401, path);
  }
  assert.equal(await statusOf("/page/data/overview", bearer(LESSER_TOKEN)), 200);
  assert.equal(await statusOf("/page/data/rollouts", bearer(LESSER_TOKEN)), 403);
  assert.equal(await statusOf("/page/data/boards/board-00001/status", bearer(LESSER_TOKEN)), 403);
  assert.deepEqual(pages.asked, []);
  // Neither a cookie nor the address is a token.
  assert.equal(await statusOf(`/page/data/overview?token=${FLEET_TOKEN}`, { cookie: `token=${FLEET_TOKEN}` }), 401);
});

const SHOP = bearer(SHOP_TOKEN);
const POD = `/page/data/boards/${boardName(3)}/pods/shop/web`;

test("a pod is changed for a user with the right in its namespace, on the board that is named", async () => {
  assert.equal(await statusOf(`${POD}/restart`, SHOP, "POST"), 200);
  assert.equal(await statusOf(POD, { ...SHOP, "content-length": "0" }, "DELETE"), 200);
  const change = (verb: string) => {
    const action = { verb, namespace: "shop", name: "web" };
    return `${boardName(3)} ${JSON.stringify({ kind: "change", action, user: "shopkeeper" })}`;
  };
  assert.deepEqual(pages.asked.splice(0), [change("restart"), change("delete")]);
});

test("no pod is changed without the rights to the board and to the pods of the namespace", async () => {
  const board = `/page/data/boards/${boardName(3)}/`;
  assert.equal(await statusOf(POD, {}, "DELETE"), 401);
  assert.equal(await statusOf(POD, { cookie: `token=${SHOP_TOKEN}` }, "DELETE"), 401);
  assert.equal(await statusOf(POD, bearer(LESSER_TOKEN), "DELETE"), 403);
  assert.equal(await statusOf(`${board}pods/other/web`, SHOP, "DELETE"), 403);
  assert.equal(await statusOf(POD, { ...SHOP, "sec-fetch-site": "cross-site" }, "DELETE"), 403);
  assert.equal(await statusOf(POD, { ...SHOP, "transfer-encoding": "chunked" }, "DELETE"), 400);
  for (const [method, path] of [
    ["POST", POD],
    ["DELETE", `${POD}/restart`],
    ["DELETE", `${POD}?x=1`],
    ["DELETE", `/page/data/boards/..%2f${boardName(4)}/pods/shop/web`],
    ["DELETE", `${board}pods/shop/..%2f..%2f${boardName(4)}`],
    ["DELETE", `${board}pods/../web`],
    ["PATCH", POD],
    ["OPTIONS", POD],
    ["POST", "/page/"],
  ] as const)
    assert.equal(await statusOf(path, SHOP, method), 405, `${method} ${path}`);
  assert.deepEqual(pages.asked, []);
});

test("the changes of one user are limited", async () => {
  const statuses: (number | undefined)[] = [];
  for (let count = 0; count <= CHANGE_RATE.burst; count += 1)
    statuses.push(await statusOf(`${POD}/restart`, SHOP, "POST"));
  assert.ok(statuses.includes(429), String(statuses));
  assert.equal(await statusOf(POD, ADMIN, "DELETE"), 200);
  pages.asked.length = 0;
});

test("it only reads, and nothing of another site is answered", async () => {
  for (const method of ["POST", "PUT", "DELETE"])
    assert.notEqual(await statusOf("/page/data/overview", ADMIN, method), 200);
  assert.equal(await statusOf("/page/data/overview", { ...ADMIN, "sec-fetch-site": "cross-site" }), 403);
  const { headers } = await open("/page/");
  assert.match(String(headers["content-security-policy"]), /script-src 'self'.*frame-ancestors 'none'/);
  assert.equal(headers["access-control-allow-origin"], undefined);
});

test("the first answer has no names, and a list of 10,000 boards is small", async () => {
  const overview = await json<FleetOverview>("/page/data/overview");
  assert.equal(overview.map.length, BOARDS);
  assert.deepEqual(
    overview.versions.map(({ boards }) => boards),
    [8000, 2000],
  );
  assert.ok(overview.problems.some(({ text }) => text === "MemoryPressure"));
  assert.ok(JSON.stringify(overview).length < 12_000);
  const packed = await bytesOf(await open("/page/data/boards", { ...ADMIN, "accept-encoding": "gzip" }));
  assert.ok(packed.length < 60_000, `${packed.length} bytes`);
  const boards = JSON.parse(gunzipSync(packed).toString()) as FleetBoards;
  assert.equal(boards.map, overview.map);
  assert.equal(boards.names.split("\n")[1234], boardName(1234));
});

test("changes come since the list, and a board that goes is named", async () => {
  const { revision } = await json<FleetBoards>("/page/data/boards");
  // Between the two requests.
  pages.fleet.set(boardName(1), { conditions: "Ready=False" });
  const stream = await open(`/page/data/changes?since=${revision}`, ADMIN);
  const lines: FleetChange[] = [];
  const until = async (fits: (change: FleetChange) => boolean): Promise<void> => {
    let rest = "";
    for await (const chunk of stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      const parts = (rest + chunk.toString()).split("\n");
      rest = parts.pop() ?? "";
      lines.push(...parts.map((part) => JSON.parse(part) as FleetChange));
      if (lines.some(fits)) return;
    }
  };
  const has = (name: string) => (change: FleetChange) =>
    "boards" in change && (change.boards.some((board) => board.name === name) || change.gone.includes(name));
  await until(has(boardName(1)));
  pages.fleet.set(boardName(2), undefined);
  await until(has(boardName(2)));
  assert.deepEqual(
    lines.flatMap((change) => ("boards" in change ? change.boards : [])),
    [{ name: boardName(1), state: "n", version: "v1.34.0-picolet.0.1.0", problem: "not ready" }],
  );
  assert.deepEqual(
    lines.flatMap((change) => ("gone" in change ? change.gone : [])),
    [boardName(2)],
  );
  stream.destroy();
  const stale = await open("/page/data/changes?since=another.7", ADMIN);
  assert.equal((await bytesOf(stale)).toString(), '{"reset":true}\n');
});

test("a request for a board is passed on, with its path and nothing of the user", async () => {
  const path = "log/default/a%20b?follow=true&container=c";
  await json(`/page/data/boards/${boardName(7)}/${path}`);
  assert.deepEqual(pages.asked.splice(0), [`${boardName(7)} /page/data/${path}`]);
});

test("one user's streams are bounded, and another user has place", async () => {
  const { revision } = await json<FleetBoards>("/page/data/boards");
  const path = `/page/data/changes?since=${revision}`;
  const streams = await Promise.all(Array.from({ length: MAX_STREAMS_PER_USER }, () => open(path, ADMIN)));
  assert.equal(await statusOf(path, ADMIN), 429);
  assert.equal(await statusOf(path, bearer(LESSER_TOKEN)), 200);
  assert.equal(await statusOf("/page/data/overview", ADMIN), 200);
  for (const stream of streams) stream.destroy();
});
