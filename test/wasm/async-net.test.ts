/** wasi:sockets of WASI 0.3: real sockets on the loopback, held by the pod's rules and the limits of 0.2. */
import assert from "node:assert/strict";
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, type TestContext, test } from "node:test";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { AsyncComponent } from "../support/wasm/async-component.ts";
import { echo, peer, roundTrips, Talk } from "../support/wasm/async-talk.ts";

/** All that the loopback has, which tells no policy from another. */
const OPEN = "tcp://127.0.0.1:*; udp://127.0.0.1:*; tcp://localhost:*; listen tcp:*; listen udp:*";

let component: AsyncComponent;

before(async () => {
  component = await AsyncComponent.of("async-net.c");
});

after(() => component?.[Symbol.dispose]());

const said = (rules: string | undefined, ...args: readonly string[]): Promise<string> =>
  new Talk(component, args, rules).end;

async function udpPeer(context: TestContext, handler: (data: Buffer, answer: (text: string) => void) => void) {
  const socket: UdpSocket = createSocket("udp4").bind(0, "127.0.0.1");
  await once(socket, "listening");
  context.after(() => socket.close());
  socket.on("message", (data, from) => handler(data, (text) => socket.send(text, from.port, from.address)));
  return String(socket.address().port);
}

test("it connects, sends, ends its side and reads to the end, and hears how both ended", async (context) => {
  const port = await peer(context, echo);
  assert.equal(await said(OPEN, "fetch", "127.0.0.1", port, "hello"), "hello\nsent: ok\nreceived: ok\n");
  const long = await said(OPEN, "fetch", "127.0.0.1", port, "0123456789".repeat(50), "400");
  assert.equal(long, `${"0123456789".repeat(20_000)}\nsent: ok\nreceived: ok\n`);
});

test("what it lets go of early takes nothing else with it", async (context) => {
  const port = await peer(context, echo);
  const early = (way: string, of = port): Promise<string> => said(OPEN, "early", "127.0.0.1", of, way);
  assert.equal(await early("handle"), "after the handle\nsent: ok\nreceived: ok\n");
  assert.equal(await early("futures"), "after the futures\n");
  assert.equal(await early("twice"), "sent: invalid-state\n0\nreceived: invalid-state\n");
  assert.equal(await early("all"), "");
  const heard: string[] = [];
  const ended = Promise.withResolvers<void>();
  const speaks = await peer(context, (socket) => {
    socket.write("word");
    socket.on("data", (chunk: Buffer) => heard.push(String(chunk)));
    socket.on("end", () => ended.resolve());
  });
  assert.equal(await early("reader", speaks), "received: ok\nsent: ok\n");
  await ended.promise;
  assert.deepEqual(heard, ["after the reader"]);
  const dropped = Promise.withResolvers<void>();
  const alone = await peer(context, (socket) => void socket.resume().on("end", () => dropped.resolve()));
  assert.equal(await early("socket", alone), "dropped\n");
  await dropped.promise;
});

test("it serves many connections at a time through the stream of its listener", async () => {
  const talk = new Talk(component, ["serve", "0", "300"], OPEN);
  const [, port] = await talk.until(/listening (\d+)\n/);
  const spoken = async (at: number): Promise<void> => {
    const client = connect({ port: Number(port), host: "127.0.0.1", allowHalfOpen: true });
    const text = `${at} `.repeat(at % 10 === 0 ? 20_000 : 3);
    const received: Buffer[] = [];
    client.on("data", (chunk: Buffer) => received.push(chunk));
    client.end(text);
    await once(client, "end");
    assert.equal(Buffer.concat(received).toString(), text);
  };
  let next = 0;
  const oneAfterTheOther = async (): Promise<void> => {
    while (next < 300) await spoken(next++);
  };
  await Promise.all(Array.from({ length: 40 }, oneAfterTheOther));
  assert.match(await talk.end, /served 300\n$/);
});

test("who lets go of its stream of connections takes none any more", async () => {
  const port = await fixedPort();
  const talk = new Talk(component, ["refuse", String(port)], OPEN);
  await talk.until(/refuses\n/);
  const client = connect({ port, host: "127.0.0.1" });
  client.on("error", () => undefined);
  await once(client, "close");
  const socket = createSocket("udp4");
  socket.send("over", port, "127.0.0.1", () => void socket.close());
  assert.match(await talk.end, /^listening \d+\nrefuses\ntold: ok\n$/);
});

test("a connection that came for a wait that was given up is not kept from anybody", async (context) => {
  const port = await fixedPort();
  const talk = new Talk(component, ["cancel", String(port)], OPEN);
  const say = (): void => {
    const socket = createSocket("udp4");
    socket.send("word", port, "127.0.0.1", () => void socket.close());
  };
  // CopyResult: cancelled.
  await talk.until(/cancelled 2\n/);
  const client = connect({ port, host: "127.0.0.1" });
  client.on("error", () => undefined);
  await once(client, "connect");
  const closed = once(client, "close");
  await roundTrips(context, 20);
  say();
  await talk.until(/refuses\n/);
  await closed;
  say();
  await talk.end;
});

test("whom its pod names it reaches, and nobody else: each failure by its code", async (context) => {
  const port = await peer(context, echo);
  const other = await peer(context, echo);
  const rules = `tcp://localhost:2; tcp://127.0.0.1:${port}; udp://127.0.0.1:9; tcp://127.0.0.1:1; listen udp:1`;
  assert.equal(
    await said(`tcp://127.0.0.1:${port}`, "fetch", "127.0.0.2", port, "x"),
    "connect: access-denied\n",
    "an address stands for itself alone",
  );
  const fine = "x\nsent: ok\nreceived: ok\n";
  for (const [expected, ...args] of [
    [fine, "fetch", "127.0.0.1", port, "x"],
    ["connect: access-denied\n", "fetch", "127.0.0.1", other, "x"],
    ["connect: access-denied\n", "fetch", "169.254.169.254", "80", "x"],
    ["connect: connection-refused\n", "fetch", "127.0.0.1", "1", "x"],
    ["connect: invalid-argument\n", "fetch", "0.0.0.0", port, "x"],
    ["connect: invalid-argument\n", "fetch", "127.0.0.1", "0", "x"],
    ["bind: access-denied\n", "serve", "8080", "1"],
    ["listen: access-denied\n", "serve", "0", "1"],
    ["send: access-denied\n", "ask", "127.0.0.1", "10", "x"],
    ["connect: access-denied\n", "ask", "127.0.0.1", "10", "x", "connected"],
    ["bind: access-denied\n", "answer", "8080", "1"],
    ["lookup: access-denied\n", "lookup", "example.com"],
    ["lookup: invalid-argument\n", "lookup", "no name"],
    ["127.0.0.1\n", "lookup", "localhost"],
    ["192.0.2.1\n", "lookup", "192.0.2.1"],
    ["192.0.2.1\n", "lookup", "::ffff:192.0.2.1"],
    ["8193:3512:0:0:0:0:0:1\n", "lookup", "2001:db8::1"],
  ] as const) {
    const told = await said(rules, ...args);
    // A machine may have the name by both families.
    assert.equal(args[1] === "localhost" ? told.replace("0:0:0:0:0:0:0:1\n", "") : told, expected, args.join(" "));
  }
});

test("a port that somebody has is taken", async (context) => {
  const port = await peer(context, echo);
  assert.equal(await said(OPEN, "serve", port, "1"), "bind: address-in-use\n");
  const udp = await udpPeer(context, () => undefined);
  assert.equal(await said(OPEN, "answer", udp, "1"), "bind: address-in-use\n");
});

test("without a network it has none", async () => {
  for (const args of [
    ["fetch", "127.0.0.1", "1", "x"],
    ["serve", "0", "1"],
    ["ask", "127.0.0.1", "1", "x"],
    ["hoard"],
  ]) {
    assert.match(await said(undefined, ...args), /^(?:create|0 sockets): access-denied\n$/, args.join(" "));
  }
  assert.equal(await said(undefined, "lookup", "localhost"), "lookup: access-denied\n");
});

test("datagrams go both ways, by connect and without", async (context) => {
  const port = await udpPeer(context, (data, answer) => answer(`${data}?`));
  assert.equal(await said(OPEN, "ask", "127.0.0.1", port, "what"), `answer: what? from ${port}\n`);
  const connected = await said(OPEN, "ask", "127.0.0.1", port, "what", "connected");
  assert.equal(connected, `answer: what? from ${port}\ndisconnect: ok\ndisconnect: invalid-state\n`);
});

test("it answers whoever writes to a port that its pod opens", async (context) => {
  const own = await fixedPort();
  const talk = new Talk(component, ["answer", String(own), "20"], `listen udp:${own}`);
  await talk.until(/bound \d+\n/);
  const socket = createSocket("udp4");
  context.after(() => socket.close());
  for (let at = 0; at < 20; at += 1) {
    socket.send(`${at}`, own, "127.0.0.1");
    const [data] = (await once(socket, "message")) as [Buffer];
    assert.equal(String(data), `${at}`);
  }
  assert.match(await talk.end, /answered\n$/);
});

test("it may hoard so many sockets, send so large datagrams, and no more of them at once", async () => {
  assert.equal(
    await said(OPEN, "hoard"),
    "128 sockets: other (new-socket-limit: the component has as many sockets as it may have at once, release some)\n",
  );
  const to = "udp://127.0.0.1:9";
  assert.equal(await said(to, "burst", "127.0.0.1", "9", "1", "65507"), "1 sent\n");
  assert.equal(await said(to, "burst", "127.0.0.1", "9", "1", "65508"), "send: datagram-too-large\n0 sent\n");
  assert.equal(await said(to, "burst", "127.0.0.1", "9", "100", "1000"), "100 sent\n");
});

test("each call has its state", async () => {
  assert.equal(
    await said("tcp://127.0.0.1:1; udp://127.0.0.1:9", "states", "127.0.0.1", "1"),
    [
      ...["local: invalid-state", "remote: invalid-state", "bind to many: invalid-argument"],
      ...["bind to the other family: invalid-argument", "sent: invalid-state", "0", "received: invalid-state"],
      ...["bind: ok", "bind again: invalid-state", "local: ok", "connect to nobody: connection-refused"],
      ...["listen: invalid-state", "connect again: invalid-state", "UDP local: invalid-state"],
      ...["UDP remote: invalid-state", "UDP receive: invalid-state", "UDP disconnect: invalid-state"],
      ...["UDP send to nobody: invalid-argument", "UDP send to no port: invalid-argument"],
      ...["UDP connect to nobody: invalid-argument", "UDP bind: ok", "UDP bind again: invalid-state", ""],
    ].join("\n"),
  );
});

test("options are what the node makes of them", async () => {
  assert.equal(
    await said(OPEN, "options"),
    [
      ...["family 1", "backlog 0: invalid-argument", "backlog: ok", "keep alive: ok", "keep alive 1"],
      ...["idle 0: invalid-argument", "idle 5000000000", "interval 1000000000", "count 0: invalid-argument"],
      ...["count 10", "hops 0: invalid-argument", "hops 5: not-supported", "hops 64", "receive 4096", "send 65536"],
      ...["send 0: invalid-argument", "UDP family 1", "UDP hops 0: invalid-argument", "UDP hops 9"],
      ...["UDP receive 5000", "UDP send 9000", ""],
    ].join("\n"),
  );
});
