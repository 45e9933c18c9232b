/** wasi:sockets called as jco's glue calls it, against peers made with Node on the loopback. */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { fixedPort } from "@picolet/test/support/unit/machine/fixed-port.ts";
import { NetworkPolicy } from "../network/network-policy.ts";
import { parseNetworkRules } from "../network/network-rules.ts";
import { LoopWaiter } from "../resources/event-loop.ts";
import { Failure } from "../resources/failure.ts";
import { Handles } from "../resources/handles.ts";
import { type Pollable, Poller, WouldBlock } from "../resources/polling.ts";
import type { HostError, InputStream, OutputStream, StreamContext } from "../resources/streams.ts";
import type { ResolveAddressStream } from "./name-lookup.ts";
import type { Family, IpSocketAddress } from "./socket-addresses.ts";
import type { SocketModules } from "./socket-context.ts";
import { NetworkAccess, networkImports } from "./sockets.ts";
import type { TcpSocket } from "./tcp-socket.ts";
import type { UdpSocket } from "./udp-socket.ts";

const OPEN = "tcp://127.0.0.1:*; tcp://[::1]:*; udp://127.0.0.1:*; listen tcp:*; listen udp:*";

const v4 = (port: number, ...address: readonly number[]): IpSocketAddress => ({
  tag: "ipv4",
  val: { port, address: address.length === 0 ? [127, 0, 0, 1] : address },
});
const v6 = (port: number, address: readonly number[], scopeId = 0): IpSocketAddress => ({
  tag: "ipv6",
  val: { port, flowInfo: 0, address, scopeId },
});
const LOOPBACK_6 = [0, 0, 0, 0, 0, 0, 0, 1];

const failsWith = (payload: unknown) => (error: unknown) => {
  assert.ok(error instanceof Failure, String(error));
  assert.deepEqual(error.payload, payload);
  return true;
};

/** Addresses that names have here; anything else does not exist. */
type Names = Readonly<Record<string, readonly string[]>>;

class Bench {
  readonly #waiter: LoopWaiter;
  readonly #imports: ReturnType<typeof networkImports>;
  readonly network: unknown;
  readonly looked: string[] = [];

  /** Resources that would keep the process alive. */
  readonly #made = new Set<Disposable>();

  constructor(context: TestContext, rules: string, names: Names = {}) {
    context.after(() => this.drop(...this.#made));
    const after = (milliseconds: number, act: () => void) => {
      const timer = setTimeout(act, milliseconds);
      return () => clearTimeout(timer);
    };
    this.#waiter = new LoopWaiter({ now: () => process.hrtime.bigint(), after });
    const poller = new Poller(this.#waiter, () => undefined);
    const streams: StreamContext = { handles: new Handles(), poller, wallNow: Date.now };
    const parsed = parseNetworkRules(rules);
    assert.deepEqual(parsed.problems, []);
    const policy = new NetworkPolicy(parsed.rules, () => []);
    this.#imports = networkImports(streams, {
      access: new NetworkAccess(policy),
      timers: { after },
      modules: this.#modules(names),
    });
    this.network = this.call("wasi:sockets/instance-network#instanceNetwork");
  }

  /** Node's own, but for the names. */
  #modules(names: Names): SocketModules {
    const lookup = (name: string, _: object, done: (error: Error | null, found: object[]) => void): void => {
      this.looked.push(name);
      const found = names[name];
      const error = found === undefined ? Object.assign(new Error("no such name"), { code: "ENOTFOUND" }) : null;
      setImmediate(() =>
        done(
          error,
          (found ?? []).map((address) => ({ address })),
        ),
      );
    };
    return {
      net: () => process.getBuiltinModule("node:net"),
      dgram: () => process.getBuiltinModule("node:dgram"),
      dns: () => ({ lookup }) as unknown as ReturnType<SocketModules["dns"]>,
      url: () => process.getBuiltinModule("node:url"),
    };
  }

  call<T>(name: string, ...args: readonly unknown[]): T {
    const [path, method] = name.split("#");
    const target = this.#imports[path ?? ""]?.[method ?? ""];
    assert.ok(typeof target === "function", `${name} is there`);
    return target(...args);
  }

  tcp(family: Family = "ipv4"): TcpSocket {
    return this.#kept(this.call("wasi:sockets/tcp-create-socket#createTcpSocket", family));
  }

  udp(family: Family = "ipv4"): UdpSocket {
    return this.#kept(this.call("wasi:sockets/udp-create-socket#createUdpSocket", family));
  }

  #kept<T extends Disposable>(socket: T): T {
    this.#made.add(socket);
    return socket;
  }

  drop(...resources: readonly Disposable[]): void {
    for (const each of resources) {
      each[Symbol.dispose]();
      this.#made.delete(each);
    }
  }

  /** Calls again whenever it would have waited, as the runner does. */
  async retried<T>(call: () => T): Promise<T> {
    for (;;) {
      try {
        return call();
      } catch (error) {
        if (!(error instanceof WouldBlock)) throw error;
        await this.#waiter.whenAny(error.wanted);
      }
    }
  }

  async ready(pollable: Pollable): Promise<void> {
    await this.retried(() => pollable.block());
    pollable[Symbol.dispose]();
  }

  async bound<T extends TcpSocket | UdpSocket>(socket: T, address: IpSocketAddress): Promise<T> {
    socket.startBind(this.network, address);
    await this.ready(socket.subscribe());
    socket.finishBind();
    return socket;
  }

  async connected(socket: TcpSocket, address: IpSocketAddress): Promise<[InputStream, OutputStream]> {
    socket.startConnect(this.network, address);
    assert.throws(() => socket.finishConnect(), failsWith("would-block"));
    await this.ready(socket.subscribe());
    return socket.finishConnect();
  }

  async listening(address: IpSocketAddress): Promise<TcpSocket> {
    const socket = await this.bound(this.tcp(address.tag), address);
    socket.startListen();
    await this.ready(socket.subscribe());
    socket.finishListen();
    return socket;
  }

  async accepted(socket: TcpSocket): Promise<[TcpSocket, InputStream, OutputStream]> {
    await this.ready(socket.subscribe());
    const [accepted, ...streams] = socket.accept();
    return [this.#kept(accepted), ...streams];
  }

  async read(input: InputStream, length: number): Promise<string> {
    let text = "";
    while (text.length < length) {
      text += Buffer.from(await this.retried(() => input.blockingRead(BigInt(length - text.length)))).toString();
    }
    return text;
  }

  async resolved(name: string): Promise<unknown[]> {
    const stream = this.call<ResolveAddressStream>("wasi:sockets/ip-name-lookup#resolveAddresses", this.network, name);
    await this.ready(stream.subscribe());
    const found: unknown[] = [];
    try {
      for (let next = stream.resolveNextAddress(); next !== undefined; next = stream.resolveNextAddress()) {
        found.push(next.val);
      }
      return found;
    } finally {
      stream[Symbol.dispose]();
    }
  }
}

async function peer(context: TestContext, handler: (socket: Socket) => void, host = "127.0.0.1"): Promise<Server> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    handler(socket);
  });
  server.listen(0, host);
  await once(server, "listening");
  context.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return server;
}

const portOf = (server: Pick<Server, "address">): number => (server.address() as AddressInfo).port;
const portIn = ({ val }: IpSocketAddress): number => val.port;

test("a component connects, writes, reads, and ends its half", async (context) => {
  const bench = new Bench(context, OPEN);
  const server = await peer(context, (socket) => socket.pipe(socket));
  const socket = bench.tcp();
  assert.equal(socket.addressFamily(), "ipv4");
  const [input, output] = await bench.connected(socket, v4(portOf(server)));
  assert.deepEqual(socket.remoteAddress(), v4(portOf(server)));
  assert.equal(socket.localAddress().tag, "ipv4");
  assert.deepEqual([...input.read(10n)], []);
  await bench.retried(() => output.blockingWriteAndFlush(Buffer.from("hello")));
  assert.equal(await bench.read(input, 5), "hello");
  socket.shutdown("send");
  assert.throws(() => output.write(Buffer.from("x")), failsWith({ tag: "closed" }));
  await assert.rejects(
    bench.retried(() => input.blockingRead(1n)),
    failsWith({ tag: "closed" }),
  );
  bench.drop(input, output, socket);
});

test("a component listens, and the peer sees the end of a dropped stream", async (context) => {
  const bench = new Bench(context, OPEN);
  const listener = await bench.listening(v4(0));
  assert.equal(listener.isListening(), true);
  assert.throws(() => listener.accept(), failsWith("would-block"));
  const client = connect(portIn(listener.localAddress()), "127.0.0.1");
  const [socket, input, output] = await bench.accepted(listener);
  assert.deepEqual(portIn(socket.remoteAddress()), client.localPort);
  client.write("ping");
  assert.equal(await bench.read(input, 4), "ping");
  output.write(Buffer.from("pong"));
  output[Symbol.dispose]();
  const received: Buffer[] = [];
  client.on("data", (chunk: Buffer) => received.push(chunk));
  await once(client, "end");
  assert.equal(Buffer.concat(received).toString(), "pong");
  bench.drop(input, socket, listener);
});

test("a peer that does not read holds up the writer, and a writer that is not read is held up", async (context) => {
  const bench = new Bench(context, OPEN);
  const accepted = Promise.withResolvers<Socket>();
  const server = await peer(context, (socket) => {
    socket.pause();
    accepted.resolve(socket);
  });
  const socket = bench.tcp();
  const [input, output] = await bench.connected(socket, v4(portOf(server)));
  const remote = await accepted.promise;
  const piece = new Uint8Array(32_768);
  let written = 0;
  const room = (): number => Number(output.checkWrite());
  // The system's own buffers take some MiB; then nothing is taken any more.
  for (let turn = 0; turn < 1000 && room() > 0; turn += 1) {
    const part = piece.subarray(0, room());
    output.write(part);
    written += part.length;
    await new Promise(setImmediate);
  }
  assert.equal(room(), 0);
  assert.ok(written < 30_000_000, `${written} bytes`);
  const pollable = output.subscribe();
  assert.equal(pollable.ready(), false);
  let read = 0;
  remote.on("data", (chunk: Buffer) => (read += chunk.length)).resume();
  await bench.ready(pollable);
  output.flush();
  await bench.retried(() => output.blockingFlush());
  socket.shutdown("send");
  await once(remote, "end");
  assert.equal(read, written);

  // The other way: what the peer sends is not read here.
  let sent = 0;
  const chunk = Buffer.alloc(65_536);
  for (let turn = 0; turn < 1000 && remote.writableLength < 1_000_000; turn += 1) {
    remote.write(chunk);
    sent += chunk.length;
    await new Promise(setImmediate);
  }
  assert.ok(remote.writableLength >= 1_000_000, "the peer is held up");
  remote.end();
  let received = 0;
  for (;;) {
    try {
      received += (await bench.retried(() => input.blockingRead(1_000_000n))).length;
    } catch (error) {
      assert.ok(failsWith({ tag: "closed" })(error));
      break;
    }
  }
  assert.equal(received, sent);
});

test("one half of a connection is shut down, and the other continues", async (context) => {
  const bench = new Bench(context, OPEN);
  const server = await peer(context, (socket) => socket.pipe(socket));
  const socket = bench.tcp();
  const [input, output] = await bench.connected(socket, v4(portOf(server)));
  socket.shutdown("receive");
  assert.throws(() => input.read(1n), failsWith({ tag: "closed" }));
  await bench.retried(() => output.blockingWriteAndFlush(new Uint8Array(10)));
  assert.ok(output.checkWrite() > 0n);
  socket.shutdown("both");
  assert.throws(() => output.write(new Uint8Array(1)), failsWith({ tag: "closed" }));
  assert.equal(output.subscribe().ready(), true);
});

test("failures to connect have the codes of the interface", async (context) => {
  const bench = new Bench(context, `${OPEN}; tcp://127.0.0.9:*`);
  const server = await peer(context, (socket) => void socket.once("data", () => socket.resetAndDestroy()));
  const closedPort = await fixedPort();
  const refused = bench.tcp();
  await assert.rejects(bench.connected(refused, v4(closedPort)), failsWith("connection-refused"));
  assert.throws(() => refused.startConnect(bench.network, v4(closedPort)), failsWith("invalid-state"));
  assert.throws(() => refused.finishConnect(), failsWith("not-in-progress"));

  const [input, output] = await bench.connected(bench.tcp(), v4(portOf(server)));
  output.write(Buffer.from("x"));
  await assert.rejects(
    bench.retried(() => input.blockingRead(1n)),
    (error: unknown) => {
      assert.ok(error instanceof Failure);
      const { tag, val } = error.payload as { tag: string; val: HostError };
      assert.equal(tag, "last-operation-failed");
      assert.equal(bench.call("wasi:sockets/network#networkErrorCode", val), "connection-reset");
      assert.equal(val.codeIn("filesystem"), undefined);
      return true;
    },
  );
  await assert.rejects(
    bench.retried(() => input.blockingRead(1n)),
    failsWith({ tag: "closed" }),
  );
  assert.throws(() => output.write(Buffer.from("x")), Failure);
  assert.throws(() => output.write(Buffer.from("x")), failsWith({ tag: "closed" }));
});

test("invalid addresses are refused before anything is tried", async (context) => {
  const bench = new Bench(context, OPEN);
  const invalid = failsWith("invalid-argument");
  const mapped = v6(1, [0, 0, 0, 0, 0, 0xffff, 0x7f00, 1]);
  for (const address of [v6(1, LOOPBACK_6), v4(1, 224, 0, 0, 1), v4(1, 255, 255, 255, 255)]) {
    assert.throws(() => bench.tcp().startBind(bench.network, address), invalid);
    assert.throws(() => bench.tcp().startConnect(bench.network, address), invalid);
    assert.throws(() => bench.udp().startBind(bench.network, address), invalid);
  }
  assert.throws(() => bench.tcp("ipv6").startBind(bench.network, mapped), invalid);
  assert.throws(() => bench.tcp("ipv6").startConnect(bench.network, mapped), invalid);
  assert.throws(() => bench.tcp("ipv6").startBind(bench.network, v6(0, LOOPBACK_6, 1)), failsWith("not-supported"));
  assert.throws(() => bench.tcp().startConnect(bench.network, v4(0)), invalid);
  assert.throws(() => bench.tcp().startConnect(bench.network, v4(1, 0, 0, 0, 0)), invalid);
  assert.throws(() => bench.tcp().startBind(bench.network, v4(0, 192, 0, 2, 1)), failsWith("address-not-bindable"));
  const first = await bench.listening(v4(0));
  assert.throws(() => bench.tcp().startBind(bench.network, first.localAddress()), failsWith("address-in-use"));
});

test("calls in a wrong state are refused", async (context) => {
  const bench = new Bench(context, OPEN);
  const socket = bench.tcp();
  const [wrong, idle] = [failsWith("invalid-state"), failsWith("not-in-progress")];
  assert.throws(() => socket.finishBind(), idle);
  assert.throws(() => socket.finishConnect(), idle);
  assert.throws(() => socket.finishListen(), idle);
  assert.throws(() => socket.startListen(), wrong);
  assert.throws(() => socket.accept(), wrong);
  assert.throws(() => socket.localAddress(), wrong);
  assert.throws(() => socket.remoteAddress(), wrong);
  assert.throws(() => socket.shutdown("both"), wrong);
  socket.startBind(bench.network, v4(0));
  assert.throws(() => socket.startListen(), failsWith("concurrency-conflict"));
  assert.throws(() => socket.startConnect(bench.network, v4(1)), failsWith("concurrency-conflict"));
  socket.finishBind();
  assert.throws(() => socket.startBind(bench.network, v4(0)), wrong);
  assert.notEqual(portIn(socket.localAddress()), 0);
  socket.startListen();
  socket.finishListen();
  assert.throws(() => socket.startConnect(bench.network, v4(1)), wrong);
  bench.drop(socket);
});

test("a bound socket connects from the port that it was bound to", async (context) => {
  const bench = new Bench(context, OPEN);
  const from = Promise.withResolvers<number | undefined>();
  const server = await peer(context, (socket) => from.resolve(socket.remotePort));
  const socket = await bench.bound(bench.tcp(), v4(0));
  const port = portIn(socket.localAddress());
  await bench.connected(socket, v4(portOf(server)));
  assert.equal(await from.promise, port);
  assert.equal(portIn(socket.localAddress()), port);
});

test("IPv6 works by itself", async (context) => {
  const bench = new Bench(context, OPEN);
  const server = await peer(context, (socket) => socket.end("six"), "::1");
  const socket = bench.tcp("ipv6");
  const [input] = await bench.connected(socket, v6(portOf(server), LOOPBACK_6));
  assert.equal(await bench.read(input, 3), "six");
  assert.deepEqual(socket.remoteAddress(), v6(portOf(server), LOOPBACK_6));
});

test("options are kept, rounded, and refused where nothing can be set", (context) => {
  const bench = new Bench(context, OPEN);
  const socket = bench.tcp();
  const invalid = failsWith("invalid-argument");
  assert.equal(socket.keepAliveEnabled(), false);
  socket.setKeepAliveEnabled(true);
  assert.equal(socket.keepAliveEnabled(), true);
  assert.equal(socket.keepAliveIdleTime(), 7200n * 1_000_000_000n);
  socket.setKeepAliveIdleTime(1n);
  assert.equal(socket.keepAliveIdleTime(), 1_000_000_000n);
  socket.setKeepAliveInterval(5n);
  socket.setKeepAliveCount(3);
  assert.deepEqual([socket.keepAliveInterval(), socket.keepAliveCount()], [1_000_000_000n, 10]);
  socket.setReceiveBufferSize(1n);
  socket.setSendBufferSize(1n << 40n);
  assert.deepEqual([socket.receiveBufferSize(), socket.sendBufferSize()], [4096n, 65_536n]);
  assert.equal(socket.hopLimit(), 64);
  socket.setHopLimit(64);
  assert.throws(() => socket.setHopLimit(3), failsWith("not-supported"));
  socket.setListenBacklogSize(1n);
  for (const zero of [
    () => socket.setKeepAliveIdleTime(0n),
    () => socket.setKeepAliveInterval(0n),
    () => socket.setKeepAliveCount(0),
    () => socket.setHopLimit(0),
    () => socket.setReceiveBufferSize(0n),
    () => socket.setSendBufferSize(0n),
    () => socket.setListenBacklogSize(0n),
  ]) {
    assert.throws(zero, invalid);
  }
});

test("datagrams go both ways, and only to and from peers that the pod names", async (context) => {
  const bench = new Bench(context, "udp://127.0.0.1:*");
  const remote = createSocket("udp4").bind(0, "127.0.0.1");
  const stranger = createSocket("udp4").bind(0, "127.0.0.2");
  await Promise.all([once(remote, "listening"), once(stranger, "listening")]);
  const socket = await bench.bound(bench.udp(), v4(0));
  const port = portIn(socket.localAddress());
  const [incoming, outgoing] = socket.stream(undefined);
  const to = v4(remote.address().port);
  assert.equal(outgoing.checkSend(), 16n);
  assert.equal(outgoing.send([{ data: Buffer.from("one"), remoteAddress: to }]), 1n);
  const [message, from] = (await once(remote, "message")) as [Buffer, AddressInfo];
  assert.deepEqual([message.toString(), from.port], ["one", port]);
  await new Promise<void>((sent) => stranger.send("unwanted", port, "127.0.0.1", () => sent()));
  remote.send("two", port, "127.0.0.1");
  await bench.ready(incoming.subscribe());
  const received = incoming.receive(10n);
  assert.deepEqual(
    received.map(({ data, remoteAddress }) => [Buffer.from(data).toString(), remoteAddress]),
    [["two", to]],
  );
  assert.deepEqual(incoming.receive(10n), []);
  const send = (data: Uint8Array, remoteAddress?: IpSocketAddress) => () => {
    outgoing.checkSend();
    return outgoing.send([{ data, remoteAddress }]);
  };
  assert.throws(send(Buffer.from("x"), v4(stranger.address().port, 127, 0, 0, 2)), failsWith("access-denied"));
  assert.throws(send(Buffer.from("x")), failsWith("invalid-argument"));
  assert.throws(send(Buffer.alloc(65_508), to), failsWith("datagram-too-large"));
  const [, connected] = socket.stream(to);
  assert.deepEqual(socket.remoteAddress(), to);
  assert.throws(() => outgoing.checkSend(), failsWith("invalid-state"));
  connected.checkSend();
  assert.equal(connected.send([{ data: Buffer.from("three") }, { data: Buffer.from("x"), remoteAddress: v4(9) }]), 1n);
  assert.equal(String((await once(remote, "message"))[0]), "three");
  remote.close();
  stranger.close();
  bench.drop(incoming, outgoing, connected, socket);
});

test("a port that the pod opens answers its senders, and no one else", async (context) => {
  const port = await fixedPort();
  const bench = new Bench(context, `listen udp:${port}`);
  const socket = await bench.bound(bench.udp(), v4(port));
  const [incoming, outgoing] = socket.stream(undefined);
  const remote = createSocket("udp4").bind(0, "127.0.0.1");
  await once(remote, "listening");
  const to = v4(remote.address().port);
  outgoing.checkSend();
  assert.throws(() => outgoing.send([{ data: Buffer.from("x"), remoteAddress: to }]), failsWith("access-denied"));
  remote.send("question", port, "127.0.0.1");
  await bench.ready(incoming.subscribe());
  assert.equal(incoming.receive(1n).length, 1);
  outgoing.send([{ data: Buffer.from("answer"), remoteAddress: to }]);
  assert.equal(String((await once(remote, "message"))[0]), "answer");
  remote.close();
  bench.drop(socket);
});

test("a flood of datagrams takes a bounded queue", async (context) => {
  const bench = new Bench(context, "udp://127.0.0.1:*");
  const socket = await bench.bound(bench.udp(), v4(0));
  const [incoming] = socket.stream(undefined);
  const remote = createSocket("udp4").bind(0, "127.0.0.1");
  await once(remote, "listening");
  const { port } = socket.localAddress().val;
  for (let turn = 0; turn < 30; turn += 1) {
    const sends = Array.from(
      { length: 20 },
      () => new Promise((done) => remote.send("x".repeat(2000), port, "127.0.0.1", done)),
    );
    await Promise.all(sends);
    await new Promise(setImmediate);
  }
  await bench.ready(incoming.subscribe());
  const count = incoming.receive(1000n).length;
  assert.ok(count > 0 && count <= 65, `${count} of 600, 131,072 bytes at most`);
  remote.close();
  bench.drop(socket);
});

test("only names in a rule are looked up, and their addresses may be connected to", async (context) => {
  const server = await peer(context, (socket) => socket.end("hi"));
  const port = portOf(server);
  const names = {
    "db.example.com": ["192.0.2.7", "2001:db8::7"],
    "rebound.example.com": ["127.0.0.1"],
    "xn--bcher-kva.example.com": ["192.0.2.8"],
    localhost: ["127.0.0.1"],
  };
  const bench = new Bench(context, `tcp://*.example.com:*; tcp://localhost:${port}`, names);
  const invalid = failsWith("invalid-argument");
  assert.deepEqual(await bench.resolved("DB.example.com."), [
    [192, 0, 2, 7],
    [0x2001, 0xdb8, 0, 0, 0, 0, 0, 7],
  ]);
  assert.deepEqual(await bench.resolved("b\u00fccher.example.com"), [[192, 0, 2, 8]]);
  assert.deepEqual(await bench.resolved("192.0.2.9"), [[192, 0, 2, 9]]);
  await assert.rejects(bench.resolved("other.example.org"), failsWith("access-denied"));
  await assert.rejects(bench.resolved("a b"), invalid);
  await assert.rejects(bench.resolved(`${"a".repeat(64)}.example.com`), invalid);
  await assert.rejects(bench.resolved("missing.example.com"), failsWith("name-unresolvable"));
  assert.deepEqual(bench.looked, ["db.example.com", "xn--bcher-kva.example.com", "missing.example.com"]);

  const denied = failsWith("access-denied");
  await bench.resolved("rebound.example.com");
  assert.throws(() => bench.tcp().startConnect(bench.network, v4(port + 1)), denied);
  assert.throws(() => bench.tcp().startConnect(bench.network, v4(port, 192, 0, 2, 99)), denied);
  await bench.resolved("localhost");
  const [input] = await bench.connected(bench.tcp(), v4(port));
  assert.equal(await bench.read(input, 2), "hi");
});

test("look-ups are bounded, and one more may be tried again later", async (context) => {
  const bench = new Bench(context, "tcp://*:*", { "a.example": ["192.0.2.1"] });
  const started = Array.from({ length: 16 }, () => bench.resolved("a.example"));
  await assert.rejects(bench.resolved("a.example"), failsWith("temporary-resolver-failure"));
  await Promise.all(started);
  assert.deepEqual(await bench.resolved("a.example"), [[192, 0, 2, 1]]);
});

test("options of UDP are set on the socket, before it is bound and after", async (context) => {
  const bench = new Bench(context, OPEN);
  const socket = bench.udp();
  assert.equal(socket.addressFamily(), "ipv4");
  assert.throws(() => socket.localAddress(), failsWith("invalid-state"));
  assert.throws(() => socket.stream(undefined), failsWith("invalid-state"));
  socket.setUnicastHopLimit(3);
  await bench.bound(socket, v4(0));
  socket.setUnicastHopLimit(200);
  socket.setReceiveBufferSize(8192n);
  socket.setSendBufferSize(1n << 40n);
  assert.deepEqual(
    [socket.unicastHopLimit(), socket.receiveBufferSize(), socket.sendBufferSize()],
    [200, 8192n, 212_992n],
  );
  const invalid = failsWith("invalid-argument");
  assert.throws(() => socket.setUnicastHopLimit(0), invalid);
  assert.throws(() => socket.setReceiveBufferSize(0n), invalid);
  assert.throws(() => socket.setSendBufferSize(0n), invalid);
  assert.throws(() => socket.remoteAddress(), failsWith("invalid-state"));
  assert.throws(() => socket.startBind(bench.network, v4(0)), failsWith("invalid-state"));
  const taken = bench.udp();
  taken.startBind(bench.network, socket.localAddress());
  await bench.ready(taken.subscribe());
  assert.throws(() => taken.finishBind(), failsWith("address-in-use"));
});

test("without a rule nothing is created, bound, connected, or looked up", async (context) => {
  const denied = failsWith("access-denied");
  const http = new Bench(context, "https://api.example.com");
  assert.throws(() => http.tcp(), denied);
  assert.throws(() => http.udp(), denied);
  await assert.rejects(http.resolved("api.example.com"), denied);
  const tcp = new Bench(context, "tcp://192.0.2.1:80");
  assert.throws(() => tcp.udp(), denied);
  assert.throws(() => tcp.tcp().startConnect(tcp.network, v4(80)), denied);
  assert.throws(() => tcp.tcp().startConnect(tcp.network, v4(81, 192, 0, 2, 1)), denied);
  assert.throws(() => tcp.tcp().startBind(tcp.network, v4(8080)), denied);
  const socket = await tcp.bound(tcp.tcp(), v4(0));
  assert.throws(() => socket.startListen(), denied);
});

test("sockets are bounded, pending ones too, and are freed when they are closed", async (context) => {
  const bench = new Bench(context, OPEN);
  const held: TcpSocket[] = [];
  assert.throws(() => {
    for (let count = 0; count < 1000; count += 1) held.push(bench.tcp());
  }, failsWith("new-socket-limit"));
  assert.equal(held.length, 128);
  assert.throws(() => bench.udp(), failsWith("new-socket-limit"));
  bench.drop(...held);
  const listener = await bench.bound(bench.tcp(), v4(0));
  listener.setListenBacklogSize(1n);
  listener.startListen();
  listener.finishListen();
  const port = portIn(listener.localAddress());
  const clients = [connect(port, "127.0.0.1"), connect(port, "127.0.0.1"), connect(port, "127.0.0.1")];
  const ended = clients.map((client) =>
    once(
      client.on("error", () => undefined),
      "close",
    ),
  );
  // One is kept, the others are closed.
  for (const client of clients) client.resume();
  await Promise.any(ended);
  const [socket, input, output] = await bench.accepted(listener);
  bench.drop(input, output, socket, listener);
  for (const client of clients) client.destroy();
  await Promise.all(ended);
});
