/** Against a real proxy, TLS and WebSockets on loopback. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { ConnectProxy } from "@picolet/test/support/unit/images/connect-proxy.ts";
import { TlsHub } from "@picolet/test/support/unit/tunnel/tls-hub.ts";
import { RecordedIdentity } from "@picolet/test/support/unit/tunnel/tunnel-node.ts";
import { type HubProxy, parseHubProxy } from "../../core/hub/hub-address.ts";
import { connectThrough } from "./proxy-connection.ts";
import { TlsDialer } from "./tls-dialer.ts";

const never = new AbortController().signal;
const AUTHORITY = new TlsAuthority();
/** The proxy knows where that is. */
const HUB = { host: "127.0.0.1", port: 10_270, url: "https://127.0.0.1:10270" };

async function startProxy(t: TestContext): Promise<ConnectProxy> {
  const proxy = await ConnectProxy.start();
  t.after(() => proxy[Symbol.asyncDispose]());
  return proxy;
}

function settings(text: string): HubProxy {
  const proxy = parseHubProxy(text);
  assert.ok(typeof proxy !== "string", String(proxy));
  return proxy;
}

async function failure(proxy: HubProxy, signal = never): Promise<unknown> {
  return await connectThrough(proxy, HUB, signal).then(
    () => undefined,
    (error: unknown) => error,
  );
}

test("a tunnel goes through a proxy with a user, as the hub's own address, and ends with it", async (t) => {
  const proxy = await startProxy(t);
  const hub = await TlsHub.start(AUTHORITY);
  t.after(() => hub[Symbol.asyncDispose]());
  hub.speaks = false;
  proxy.places.set("127.0.0.1:10270", hub.address.port);
  proxy.user = "board:p@ss word";
  const through = settings(`http://board:p%40ss%20word@${proxy.address}`);
  const pair = AUTHORITY.issueClient([{ type: "CN", value: "system:node:edge-1" }]);
  const { privateKey, certificate: certificateChain } = pair;
  const times = { notBeforeMs: 0, notAfterMs: Number.MAX_SAFE_INTEGER };
  const node = { privateKey, certificateChain, hubCa: AUTHORITY.ca, ...times };
  const identity = new RecordedIdentity(node);
  const dialer = new TlsDialer({
    ...{ clock: systemClock, identity },
    openSocket: (address, signal) => connectThrough(through, address, signal),
  });
  const stop = new AbortController();
  const connection = await dialer.dial(HUB, node, stop.signal);
  // The dialing is over: its signal ends nothing any more.
  stop.abort();
  assert.deepEqual(proxy.asked, ["CONNECT 127.0.0.1:10270"]);
  assert.deepEqual(identity.calls, ["verify 2 127.0.0.1"]);
  assert.equal(connection.localAddress, "127.0.0.1");
  const { promise: closed, resolve } = Promise.withResolvers<Error>();
  const { promise: received, resolve: receive } = Promise.withResolvers<Uint8Array>();
  connection.attach({ onMessage: receive, onDrain: () => undefined, onClosed: resolve });
  const [socket] = hub.webSockets;
  assert.ok(socket !== undefined);
  connection.send(new Uint8Array([1, 2]));
  const [sent] = await once(socket, "message");
  assert.deepEqual([...(sent as Buffer)], [1, 2]);
  socket.send(new Uint8Array([3]));
  assert.deepEqual([...(await received)], [3]);
  await proxy[Symbol.asyncDispose]();
  assert.match(describeError(await closed), /^the connection was closed/);
});

test("a proxy that refuses, wants a user or is not there is named without its password", async (t) => {
  const proxy = await startProxy(t);
  const named = settings(`http://me:secret@${proxy.address}`);
  const failed = `cannot reach 127.0.0.1:10270 through the proxy http://${proxy.address}`;
  proxy.refusal = 403;
  const refused = await failure(named);
  assert.ok(isPicoletError(refused, "unavailable") && refused.retryable);
  assert.equal(describeError(refused), `${failed}: it refuses (403)`);
  proxy.user = "me:other";
  const unknown = `${failed}: it wants a user and a password, or others (407): set them in hub.proxy`;
  assert.equal(describeError(await failure(named)), unknown);
  await proxy[Symbol.asyncDispose]();
  assert.match(describeError(await failure(named)), /proxy http:\/\/127\.0\.0\.1:\d+: connect ECONNREFUSED/);
});

test("a proxy that is silent is left when nobody waits any more", async (t) => {
  const proxy = await startProxy(t);
  proxy.isSilent = true;
  const stop = new AbortController();
  const asked = failure(settings(`http://${proxy.address}`), stop.signal);
  while (proxy.asked.length === 0) await new Promise(setImmediate);
  stop.abort();
  assert.ok(isCancelled(await asked));
  assert.ok(isCancelled(await failure(settings(`http://${proxy.address}`), stop.signal)));
});

for (const [text, wrong] of [
  ["https://p:1", /must be a URL such as "http:\/\/proxy\.example:3128"/],
  ["socks5://p:1", /must be a URL such as/],
  ["p:3128", /must be a URL such as/],
  ["http://p:3128/path", /must have no path/],
  ["http://me:100%@p", /a % that is no escape/],
] as const) {
  test(`${text} is no proxy`, () => assert.match(String(parseHubProxy(text)), wrong));
}

test("an IPv6 address and the default port of a proxy", () => {
  const expected = { host: "fd00::1", port: 80, credentials: "", name: "http://[fd00::1]" };
  assert.deepEqual(parseHubProxy("http://[fd00::1]"), expected);
});
