/** Logs, exec and the like, passed on to a kubelet that is a plain HTTP server here. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, request } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { test } from "node:test";
import type { KubeletConnector, KubeletTarget } from "@picolet/hub-core/kubelet-connector.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Json, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { WebSocket } from "ws";

const PODS = "/api/v1/namespaces/default/pods";

interface Kubelet extends AsyncDisposable {
  readonly port: number;
  readonly asked: string[];
  readonly headers: IncomingMessage["headers"][];
}

/** More than the buffers of the sockets on its way hold. */
const LARGE = Buffer.alloc(16 * 1024 * 1024, "0123456789abcdef");

/**
 * Answers with what it was asked; upgrades to an echo; a log that is followed never ends; `large` is written and the
 * connection closed; `refuse` refuses to upgrade.
 */
async function startKubelet(): Promise<Kubelet> {
  const asked: string[] = [];
  const headers: IncomingMessage["headers"][] = [];
  const sockets = new Set<Socket>();
  const server = createServer((message, response) => {
    asked.push(`${message.method} ${message.url}`);
    headers.push(message.headers);
    if (message.url?.includes("follow=true") === true) response.write("first line\n");
    else response.end(`asked ${message.url}`);
  });
  server.on("connection", (socket) => sockets.add(socket));
  server.on("upgrade", (message, socket, head) => {
    asked.push(`UPGRADE ${message.url}`);
    headers.push(message.headers);
    if (message.url?.includes("refuse") === true) {
      socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
      return;
    }
    socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\nhello ");
    socket.write(head);
    if (message.url?.includes("command=large") === true) socket.end(LARGE);
    else socket.pipe(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    asked,
    headers,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function hostOf({ node, claimed }: KubeletTarget): { readonly host: string; readonly port: number } {
  if (claimed === undefined) throw new PicoletError("unavailable", `no kubelet endpoint is known for node ${node}`);
  return { host: claimed.address, port: claimed.port };
}

const connector: KubeletConnector = {
  request: (target, { method, path, headers, body }, signal) =>
    new Promise((resolve, reject) => {
      const sent = request({ ...hostOf(target), method, path, headers, signal }, (response) =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response }),
      );
      sent.on("error", reject);
      if (body === undefined) sent.end();
      else body.pipe(sent);
    }),
  upgrade: (target, { method, path, headers }, signal) =>
    new Promise((resolve, reject) => {
      const sent = request({ ...hostOf(target), method, path, headers, signal });
      sent.on("upgrade", (response, socket, head) => {
        socket.unshift(head);
        resolve({ kind: "upgraded", headers: response.headers, connection: socket });
      });
      sent.on("response", (response) =>
        resolve({ kind: "refused", status: response.statusCode ?? 0, headers: response.headers, body: response }),
      );
      sent.on("error", reject);
      sent.end();
    }),
};

async function furnished(port: number): Promise<TestApiServer> {
  const server = await TestApiServer.start({ kubelets: connector });
  await server.expect(201, "POST", "/api/v1/namespaces/default/serviceaccounts", {
    body: { metadata: { name: "default" } },
  });
  await server.expect(201, "POST", "/api/v1/nodes", { body: { metadata: { name: "n" } } });
  const status = {
    addresses: [
      { type: "Hostname", address: "n" },
      { type: "InternalIP", address: "127.0.0.1" },
    ],
    daemonEndpoints: { kubeletEndpoint: { Port: port } },
  };
  await server.expect(200, "PATCH", "/api/v1/nodes/n/status", {
    body: { status },
    type: "application/merge-patch+json",
  });
  const containers = (...names: string[]): Json[] => names.map((name) => ({ name, image: "busybox" }));
  for (const [name, nodeName, names] of [
    ["one", "n", ["c"]],
    ["two", "n", ["c", "d"]],
    ["unbound", "", ["c"]],
    ["lost", "gone", ["c"]],
  ] as const) {
    const spec = { ...(nodeName === "" ? {} : { nodeName }), containers: containers(...names) };
    await server.expect(201, "POST", PODS, { body: { metadata: { name }, spec } });
  }
  return server;
}

test("the kubelet is asked in its own words, without the client's credentials", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const cases: readonly (readonly [string, string])[] = [
    [`${PODS}/one/log`, "GET /containerLogs/default/one/c"],
    [
      `${PODS}/two/log?container=d&tailLines=3&previous=true&nonsense=1`,
      "GET /containerLogs/default/two/d?tailLines=3&previous=true",
    ],
    ["/api/v1/nodes/n/proxy/stats/summary?only_cpu=1", "GET /stats/summary?only_cpu=1"],
    ["/api/v1/nodes/n/proxy/a%2Fb/c%20d", "GET /a%2Fb/c%20d"],
    ["/api/v1/nodes/n/proxy", "GET /"],
  ];
  for (const [path, asked] of cases) {
    const answer = await server.ask("GET", path, {
      headers: { "impersonate-user": "ann", "impersonate-group": "system:masters", cookie: "a=b" },
    });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(kubelet.asked.at(-1), asked);
    const seen = kubelet.headers.at(-1) ?? {};
    assert.deepEqual([seen.authorization, seen.cookie, seen["impersonate-user"]], [undefined, undefined, undefined]);
  }
});

test("what cannot be passed on is refused with the reason", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const cases: readonly (readonly [number, RegExp, string, string?])[] = [
    [400, /a container name must be specified for pod two, choose one of: \[c d\]/, `${PODS}/two/log`],
    [400, /container x is not valid for pod two/, `${PODS}/two/log?container=x`],
    [400, /pod unbound does not have a host assigned/, `${PODS}/unbound/log`],
    [404, /pods "none" not found/, `${PODS}/none/log`],
    [404, /nodes "gone" not found/, `${PODS}/lost/log`],
    [400, /Upgrade request required/, `${PODS}/one/exec?command=ls`],
    [403, /cannot get resource "pods\/log"/, `${PODS}/one/log`, "joe"],
  ];
  for (const [status, message, path, token = "admin"] of cases) {
    const answer = await server.ask("GET", path, { token });
    assert.equal(answer.status, status);
    assert.match(String(answer.body.message), message);
  }
  await kubelet[Symbol.asyncDispose]();
  const { status, body } = await server.ask("GET", `${PODS}/one/log`);
  assert.equal(status, 503);
  assert.match(String(body.message), /error dialing backend of node "n": .*ECONNREFUSED/);
});

test("a log that is followed comes as it is written, and ends with the client", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const stop = new AbortController();
  const response = await fetch(`${server.url}${PODS}/one/log?follow=true`, {
    headers: { authorization: "Bearer admin" },
    signal: stop.signal,
  });
  for await (const chunk of response.body ?? []) {
    assert.equal(Buffer.from(chunk).toString(), "first line\n");
    break;
  }
  stop.abort();
});

async function upgrade(
  server: TestApiServer,
  path: string,
  token: string,
): Promise<{ socket: Socket; read: (until: string) => Promise<string> }> {
  const { port } = new URL(server.url);
  const socket = connect(Number(port), "127.0.0.1");
  await once(socket, "connect");
  const head = [
    `GET ${path} HTTP/1.1`,
    "Host: x",
    "Connection: Upgrade",
    "Upgrade: SPDY/3.1",
    `Authorization: Bearer ${token}`,
    "X-Stream-Protocol-Version: v4.channel.k8s.io",
  ];
  socket.write(`${head.join("\r\n")}\r\n\r\nearly`);
  let seen = "";
  const read = async (until: string): Promise<string> => {
    while (!seen.includes(until)) {
      const [chunk] = (await once(socket, "data")) as [Buffer];
      seen += chunk.toString();
    }
    return seen;
  };
  return { socket, read };
}

test("a log comes over a WebSocket too, as bytes or in base64", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const url = `${server.url.replace("http", "ws")}${PODS}/one/log?tailLines=2`;
  const headers = { authorization: "Bearer admin" };
  const text = "asked /containerLogs/default/one/c?tailLines=2";
  for (const [protocols, decoded] of [
    [[], (data: Buffer) => data.toString()],
    [["binary.k8s.io"], (data: Buffer) => data.toString()],
    [["other", "base64.binary.k8s.io"], (data: Buffer) => Buffer.from(data.toString(), "base64").toString()],
  ] as const) {
    const socket = new WebSocket(url, [...protocols], { headers });
    let seen = "";
    socket.on("message", (data: Buffer) => {
      seen += decoded(data);
    });
    const [code] = (await once(socket, "close")) as [number];
    assert.deepEqual([seen, code, socket.protocol], [text, 1000, protocols.at(-1) ?? ""]);
  }
  const following = new WebSocket(url.replace("tailLines=2", "follow=true"), "binary.k8s.io", { headers });
  const [first] = (await once(following, "message")) as [Buffer];
  assert.equal(first.toString(), "first line\n");
  following.terminate();
  for (const [path, status] of [
    [`${PODS}/none/log`, 404],
    [`${PODS}/two/log`, 400],
  ] as const) {
    const refused = new WebSocket(`${server.url.replace("http", "ws")}${path}`, "binary.k8s.io", { headers });
    const [, response] = (await once(refused, "unexpected-response")) as [unknown, IncomingMessage];
    assert.equal(response.statusCode, status);
    response.destroy();
  }
});

test("an upgraded connection is passed on both ways from its first byte", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const { socket, read } = await upgrade(
    server,
    `${PODS}/one/exec?command=sh&command=-c&stdin=true&stdout=1&tty=false`,
    "admin",
  );
  assert.match(await read("hello early"), /^HTTP\/1\.1 101 Switching Protocols\r\n/);
  assert.equal(kubelet.asked.at(-1), "UPGRADE /exec/default/one/c?input=1&output=1&command=sh&command=-c");
  assert.equal(kubelet.headers.at(-1)?.["x-stream-protocol-version"], "v4.channel.k8s.io");
  assert.equal(kubelet.headers.at(-1)?.authorization, undefined);
  socket.write(" and more");
  await read(" and more");
  const closed = once(socket, "close");
  socket.end();
  await closed;
});

test("a client that is slow, and still writes, gets all that was written before the end", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const { socket } = await upgrade(server, `${PODS}/one/exec?command=large&stdout=1`, "admin");
  let length = 0;
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    length += chunk.length;
    socket.write("still here");
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(length > LARGE.length, `${length} of ${LARGE.length}`);
});

test("an upgrade that is not allowed, not possible or refused is answered in HTTP", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const cases: readonly (readonly [string, string, RegExp])[] = [
    [`${PODS}/one/exec?command=ls`, "joe", /^HTTP\/1\.1 403 Forbidden[\s\S]*cannot get resource \\"pods\/exec\\"/],
    [`${PODS}/one/exec?command=ls`, "wrong", /^HTTP\/1\.1 401 Unauthorized/],
    [`${PODS}/none/exec?command=ls`, "admin", /^HTTP\/1\.1 404 NotFound/],
    [PODS, "admin", /^HTTP\/1\.1 400 BadRequest/],
    ["/api/v1/nodes/n/proxy/refuse", "admin", /^HTTP\/1\.1 403 .*[\s\S]*no$/],
  ];
  for (const [path, token, expected] of cases) {
    const { socket, read } = await upgrade(server, path, token);
    await read("\r\n\r\n");
    const closed = once(socket, "close");
    const answer = (await Promise.race([read("}"), read("\r\n\r\nno"), closed.then(() => read(""))])) ?? "";
    assert.match(answer, expected);
    socket.destroy();
  }
});

/** Sent as it is: fetch would resolve dot segments itself. */
const rawStatus = (url: string, path: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const sent = request({ hostname, port, path, headers: { authorization: "Bearer admin" } }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sent.on("error", reject);
    sent.end();
  });

test("a path behind proxy cannot climb, and neither pods nor services are proxied to", async () => {
  await using kubelet = await startKubelet();
  await using server = await furnished(kubelet.port);
  const proxy = "/api/v1/nodes/n/proxy";
  for (const path of ["/stats/../exec/default/one/c", "/..", "/%2e%2e/x", "/a/%2E", "/a%2F..%2Fb", "/a%5C..%5Cb?x=1"]) {
    assert.equal(await rawStatus(server.url, `${proxy}${path}`), 400, path);
  }
  assert.equal(await rawStatus(server.url, `${proxy}/a..b/c.?q=../x`), 200);
  assert.deepEqual(kubelet.asked, ["GET /a..b/c.?q=../x"]);
  for (const path of [`${PODS}/one/proxy/`, "/api/v1/namespaces/default/services/https:one:443/proxy/"]) {
    assert.equal(await rawStatus(server.url, path), 404, path);
  }
  assert.equal(kubelet.asked.length, 1);
});

test("a connector that must not dial an address answers a bad request, as Kubernetes does", async () => {
  const refuse = async (): Promise<never> => {
    throw new PicoletError("permission_denied", "address not allowed: 127.0.0.1:6443", { reason: "AddressNotAllowed" });
  };
  await using server = await TestApiServer.start({ kubelets: { request: refuse, upgrade: refuse } });
  await server.expect(201, "POST", "/api/v1/nodes", { body: { metadata: { name: "n" } } });
  const answer = await server.ask("GET", "/api/v1/nodes/n/proxy/");
  assert.deepEqual([answer.status, answer.body.reason], [400, "BadRequest"]);
  assert.match(String(answer.body.message), /^address not allowed/);
});
