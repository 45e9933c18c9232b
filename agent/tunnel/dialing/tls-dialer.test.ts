/** Against real TLS and WebSockets on loopback. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { MAX_FRAME_BYTES } from "@picolet/protocol/tunnel/frames.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type Refused, TlsHub } from "@picolet/test/support/unit/tunnel/tls-hub.ts";
import { RecordedIdentity } from "@picolet/test/support/unit/tunnel/tunnel-node.ts";
import type { HubAddress } from "../../core/hub/hub-address.ts";
import type { NodeCredentials } from "../../core/hub/identity.ts";
import type { Connection } from "./dialer.ts";
import { TlsDialer } from "./tls-dialer.ts";
import { TunnelError } from "./tunnel-error.ts";

const never = new AbortController().signal;
const AUTHORITY = new TlsAuthority();
const OTHER = new TlsAuthority("another authority");

function credentials(authority = AUTHORITY, hubCa = AUTHORITY.ca): NodeCredentials {
  const pair = authority.issueClient([
    { type: "O", value: "system:nodes" },
    { type: "CN", value: "system:node:edge-1" },
  ]);
  const { privateKey, certificate: certificateChain } = pair;
  return { privateKey, certificateChain, hubCa, notBeforeMs: 0, notAfterMs: Number.MAX_SAFE_INTEGER };
}

const NODE = credentials();

function makeDialer(identity = new RecordedIdentity(NODE)) {
  return { identity, dialer: new TlsDialer({ clock: systemClock, identity }) };
}

async function startHub(t: TestContext, clientCa?: string): Promise<TlsHub> {
  const hub = await TlsHub.start(AUTHORITY, clientCa);
  t.after(() => hub[Symbol.asyncDispose]());
  return hub;
}

/** Records received bytes until the connection is closed. */
function listen(connection: Connection): { readonly bytes: Uint8Array[]; readonly closed: Promise<Error> } {
  const bytes: Uint8Array[] = [];
  const { promise, resolve } = Promise.withResolvers<Error>();
  connection.attach({ onMessage: (each) => bytes.push(each), onDrain: () => undefined, onClosed: resolve });
  return { bytes, closed: promise };
}

async function failure(dialing: Promise<unknown>): Promise<TunnelError> {
  const error: unknown = await dialing.then(
    () => undefined,
    (reason) => reason,
  );
  assert.ok(error instanceof TunnelError, String(error));
  return error;
}

test("the hub is verified with its chain, and only then asked for the tunnel; binary messages go both ways", async (t) => {
  const hub = await startHub(t);
  hub.speaks = false;
  const { identity, dialer } = makeDialer();
  const connection = await dialer.dial(hub.address, NODE, never);
  assert.deepEqual(identity.calls, ["verify 2 127.0.0.1"]);
  assert.deepEqual(hub.upgrades, ["/v1/tunnel picolet.tunnel.v1 full"]);
  assert.equal(connection.localAddress, "127.0.0.1");
  const { bytes, closed } = listen(connection);
  const [socket] = hub.webSockets;
  assert.ok(socket !== undefined);
  connection.send(new Uint8Array([1, 2, 3]));
  const [received] = await once(socket, "message");
  assert.deepEqual([...(received as Buffer)], [1, 2, 3]);
  socket.send(new Uint8Array([4, 5]));
  socket.close(1001, "bye");
  assert.match(describeError(await closed), /^the connection was closed: 1001 bye$/);
  assert.deepEqual(
    bytes.map((each) => [...each]),
    [[4, 5]],
  );
  assert.deepEqual([connection.bytesSent, connection.bytesReceived], [3, 2]);
});

test("a peer that is not the hub is sent nothing", async (t) => {
  const hub = await startHub(t);
  const { identity, dialer } = makeDialer();
  identity.onVerify = () => {
    throw new PicoletError("permission_denied", "cannot trust this hub");
  };
  const error = await failure(dialer.dial(hub.address, NODE, never));
  assert.equal(error.code, "permission_denied");
  assert.equal(error.isRefusal, false);
  assert.deepEqual(hub.upgrades, []);
});

test("a certificate of another authority is refused by the node", async (t) => {
  const hub = await startHub(t);
  const { identity, dialer } = makeDialer();
  const error = await failure(dialer.dial(hub.address, credentials(AUTHORITY, OTHER.ca), never));
  assert.match(describeError(error), /^cannot connect to hub https:\/\/127\.0\.0\.1:\d+: .*certificate/);
  assert.equal(error.isRefusal, false);
  assert.deepEqual([identity.calls, hub.upgrades], [[], []]);
});

test("the second handshake with a hub is short, and judged by the whole chain of the first", async (t) => {
  const hub = await startHub(t);
  const { identity, dialer } = makeDialer();
  const chains: string[] = [];
  identity.onVerify = (chain) => chains.push(chain.map((each) => Buffer.from(each).toString("hex")).join());
  for (let time = 0; time < 3; time += 1) {
    const connection = await dialer.dial(hub.address, NODE, never);
    const { closed } = listen(connection);
    connection.close(1000, "");
    await closed;
  }
  assert.deepEqual(
    hub.upgrades.map((each) => each.split(" ")[2]),
    ["full", "resumed", "resumed"],
  );
  assert.equal(new Set(chains).size, 1);
  // A ticket stands for the certificate that it was given to.
  const renewed = await dialer.dial(hub.address, credentials(), never);
  assert.match(hub.upgrades[3] ?? "", /full$/);
  renewed.close(1000, "");
});

test("a node whose certificate the hub does not take hears of it", async (t) => {
  const hub = await startHub(t, OTHER.ca);
  const { dialer } = makeDialer();
  const error = await failure(dialer.dial(hub.address, NODE, never));
  assert.equal(error.isRefusal, true);
  assert.match(describeError(error), /the hub answered 401: .*ISSUER|the hub answered 401: .*SIGNATURE|401/);
});

for (const [refusal, code, retryAfterMs, isRefusal, message] of [
  [{ status: 403, text: "another node's" }, "permission_denied", 0, true, /the hub answered 403: another node's$/],
  [{ status: 426, text: "speaks v2" }, "unimplemented", 0, false, /the hub answered 426: speaks v2$/],
  [{ status: 503, headers: { "retry-after": "7" } }, "unavailable", 7000, false, /the hub answered 503$/],
  [{ status: 429, headers: { "retry-after": "x" } }, "unavailable", 0, false, /the hub answered 429$/],
  [{ status: 502, text: "a\r\n\tb".padEnd(5000, "c") }, "unavailable", 0, false, /the hub answered 502: a bc{500}/],
  [{ status: 200, text: "<html>" }, "unavailable", 0, false, /the hub answered 200: <html>$/],
] as const satisfies readonly (readonly [Refused, string, number, boolean, RegExp])[]) {
  test(`an answer ${refusal.status} is told as ${code}`, async (t) => {
    const hub = await startHub(t);
    hub.refusal = refusal;
    const error = await failure(makeDialer().dialer.dial(hub.address, NODE, never));
    assert.deepEqual([error.code, error.retryAfter, error.isRefusal], [code, retryAfterMs, isRefusal]);
    assert.match(describeError(error), message);
  });
}

test("text messages and messages that are too long end the connection", async (t) => {
  const hub = await startHub(t);
  hub.speaks = false;
  const { dialer } = makeDialer();
  for (const [message, code] of [
    ["text", 1003],
    [Buffer.alloc(MAX_FRAME_BYTES + 1), 1009],
  ] as const) {
    const upgraded = hub.nextUpgrade();
    const connection = await dialer.dial(hub.address, NODE, never);
    await upgraded;
    const { bytes, closed } = listen(connection);
    const socket = hub.webSockets.at(-1);
    assert.ok(socket !== undefined);
    socket.send(message);
    const [seen] = await once(socket, "close");
    await closed;
    assert.deepEqual([seen, bytes.length], [code, 0]);
  }
});

test("a message of the largest size passes", async (t) => {
  const hub = await startHub(t);
  hub.speaks = false;
  const connection = await makeDialer().dialer.dial(hub.address, NODE, never);
  const { bytes, closed } = listen(connection);
  hub.webSockets[0]?.send(Buffer.alloc(MAX_FRAME_BYTES, 7));
  hub.webSockets[0]?.close();
  await closed;
  assert.equal(bytes[0]?.length, MAX_FRAME_BYTES);
});

test("what the hub sends with its answer is not lost", async (t) => {
  const hub = await startHub(t);
  hub.speaks = false;
  const upgraded = hub.nextUpgrade().then(() => hub.webSockets[0]?.send(new Uint8Array([9])));
  const connection = await makeDialer().dialer.dial(hub.address, NODE, never);
  await upgraded;
  const first = new Promise<Uint8Array>((resolve) => {
    connection.attach({ onMessage: resolve, onDrain: () => undefined, onClosed: () => undefined });
  });
  assert.deepEqual([...(await first)], [9]);
});

test("a hub that does not read holds the sender up, and tells when there is room", async (t) => {
  const hub = await startHub(t);
  hub.speaks = false;
  const connection = await makeDialer().dialer.dial(hub.address, NODE, never);
  let onDrain = (): void => undefined;
  connection.attach({ onMessage: () => undefined, onDrain: () => onDrain(), onClosed: () => undefined });
  hub.webSockets[0]?.pause();
  const frame = new Uint8Array(MAX_FRAME_BYTES);
  for (let count = 0; count < 2000 && connection.bufferedBytes < 1_000_000; count += 1) {
    connection.send(frame);
    if (count % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(connection.bufferedBytes >= 1_000_000);
  const drained = new Promise<void>((resolve) => {
    onDrain = () => {
      if (connection.bufferedBytes === 0) resolve();
    };
  });
  hub.webSockets[0]?.resume();
  await drained;
  assert.equal(connection.bufferedBytes, 0);
});

/** Something else than a hub listens there. */
async function startOther(t: TestContext, onConnection: (write: (bytes: Buffer) => void, end: () => void) => void) {
  const { privateKey: key, certificate: cert } = AUTHORITY.issueServer();
  const server = createTlsServer({ key, cert }, (socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () =>
      onConnection(
        (bytes) => socket.write(bytes),
        () => socket.destroy(),
      ),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  return { host: "127.0.0.1", port, url: `https://127.0.0.1:${port}` } satisfies HubAddress;
}

const ACCEPT = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";

for (const [name, answer] of [
  ["nothing, and closes", ""],
  ["no HTTP", "SSH-2.0-OpenSSH_9.2\r\n"],
  ["a head without an end", `HTTP/1.1 200 OK\r\nX: ${"x".repeat(100_000)}`],
  ["an upgrade to something else", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"],
  ["a wrong key", `${ACCEPT}Sec-WebSocket-Accept: AAAA\r\n\r\n`],
] as const) {
  test(`a server that answers ${name} is no hub`, async (t) => {
    const address = await startOther(t, (write, end) => {
      if (answer !== "") write(Buffer.from(answer));
      end();
    });
    const error = await failure(makeDialer().dialer.dial(address, NODE, never));
    assert.equal(error.code, "unavailable");
    assert.equal(error.isRefusal, false);
  });
}

test("a server that is silent is given up after 30 s, and at once when nobody waits any more", async (t) => {
  const sockets: { destroy(): void }[] = [];
  const server = createServer((socket) => sockets.push(socket.on("error", () => undefined).resume()));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const each of sockets) each.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const address = { host: "127.0.0.1", port, url: "https://hub" };
  const clock = new VirtualClock();
  const dialer = new TlsDialer({ clock, identity: new RecordedIdentity(NODE) });
  const accepted = once(server, "connection");
  const dialing = assert.rejects(dialer.dial(address, NODE, never), /cannot reach hub https:\/\/hub within 30 s/);
  const [socket] = await accepted;
  const closed = once(socket, "close");
  await clock.advance(millis(30_000));
  await dialing;
  await closed;
  const stop = new AbortController();
  const second = once(server, "connection");
  const again = assert.rejects(dialer.dial(address, NODE, stop.signal), isCancelled);
  const [other] = await second;
  const gone = once(other, "close");
  stop.abort();
  await again;
  await gone;
});

test("nobody listening is said in plain words", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  const address = { host: "127.0.0.1", port, url: "https://hub" };
  const error = await failure(makeDialer().dialer.dial(address, NODE, never));
  assert.match(describeError(error), /^cannot connect to hub https:\/\/hub: connect ECONNREFUSED/);
});
