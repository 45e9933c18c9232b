/**
 * wasi:sockets of WASI 0.3, called as jco's glue calls it. Every sequence of calls is answered with the interface's
 * codes.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import type { Random } from "@picolet/protocol/ports.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { NetworkPolicy } from "../../shared/network/network-policy.ts";
import { parseNetworkRules } from "../../shared/network/network-rules.ts";
import { Failure } from "../../shared/resources/failure.ts";
import { Handles } from "../../shared/resources/handles.ts";
import { BlockingWaiter, Poller } from "../../shared/resources/polling.ts";
import type { Family, IpSocketAddress } from "../../shared/sockets/socket-addresses.ts";
import { AsyncContext } from "./async-context.ts";
import { asyncSocketImports, NetworkAccess } from "./async-sockets.ts";
import type { AsyncTcpSocket } from "./async-tcp.ts";
import type { AsyncUdpSocket } from "./async-udp.ts";
import type { ByteReader } from "./byte-flow.ts";

const SEED = Number(process.env.PICOLET_SEED ?? 20_261_122);
const ROUNDS = 40;
const STEPS = 40;
const CODES = new Set([
  ...["access-denied", "not-supported", "invalid-argument", "out-of-memory", "timeout", "invalid-state"],
  ...["address-not-bindable", "address-in-use", "remote-unreachable", "connection-refused", "connection-broken"],
  ...["connection-reset", "connection-aborted", "datagram-too-large", "other"],
]);
const LOOKUP_CODES = new Set([
  ...["access-denied", "invalid-argument", "name-unresolvable", "temporary-resolver-failure"],
  ...["permanent-resolver-failure", "other"],
]);

interface Sockets {
  readonly context: AsyncContext;
  tcp(family: Family): AsyncTcpSocket;
  udp(family: Family): AsyncUdpSocket;
  resolve(name: string): Promise<unknown[]>;
}

function bench(rules: string): Sockets {
  const poller = new Poller(new BlockingWaiter({ now: () => 0n, sleep: () => undefined }), () => undefined);
  const context = new AsyncContext({ handles: new Handles(), poller, wallNow: Date.now }, () => undefined);
  const policy = new NetworkPolicy(parseNetworkRules(rules).rules, () => []);
  const after = (milliseconds: number, act: () => void) => {
    const timer = setTimeout(act, milliseconds);
    return () => clearTimeout(timer);
  };
  const imports = asyncSocketImports(context, { access: new NetworkAccess(policy), timers: { after } });
  type Made<T> = { readonly create: (family: Family) => T };
  const { TcpSocket, UdpSocket } = imports["wasi:sockets/types"] as { TcpSocket: Made<AsyncTcpSocket> } & {
    UdpSocket: Made<AsyncUdpSocket>;
  };
  const { resolveAddresses } = imports["wasi:sockets/ip-name-lookup"] as { resolveAddresses: Sockets["resolve"] };
  return { context, tcp: TcpSocket.create, udp: UdpSocket.create, resolve: resolveAddresses };
}

const v4 = (port: number): IpSocketAddress => ({ tag: "ipv4", val: { port, address: [127, 0, 0, 1] } });

test("the datagrams of a UDP socket that wait to be sent are bounded", async () => {
  const { udp, context } = bench("udp://127.0.0.1:9");
  const socket = udp("ipv4");
  const sent = Array.from({ length: 60 }, () => socket.send(new Uint8Array(60_000), v4(9)));
  const outcomes = await Promise.allSettled(sent);
  const refused = outcomes.flatMap((each) => (each.status === "rejected" ? [each.reason as Failure<unknown>] : []));
  // 16 with the system, and 128 KiB.
  assert.equal(outcomes.length - refused.length, 18);
  assert.deepEqual(refused[0]?.payload, { tag: "out-of-memory" });
  const waiting = Array.from({ length: 130 }, () => socket.receive());
  const fails = (code: string) => (error: unknown) => (error as Failure<{ tag: string }>).payload.tag === code;
  await assert.rejects(waiting[128] as Promise<unknown>, fails("out-of-memory"));
  socket[Symbol.dispose]();
  await assert.rejects(waiting[0] as Promise<unknown>, fails("invalid-state"));
  await Promise.allSettled(waiting);
  await context.atRest();
});

test("closing the instance closes its sockets in any state", async (context) => {
  const { port } = await echo(context);
  const own = bench(`tcp://127.0.0.1:${port}; listen tcp:*; udp://127.0.0.1:9`);
  const [client, listener, datagrams] = [own.tcp("ipv4"), own.tcp("ipv4"), own.udp("ipv4")];
  await client.connect(v4(port));
  const [received, outcome] = client.receive();
  const read = received[Symbol.asyncIterator]().next();
  const accepted = listener.listen().next();
  const got = datagrams.bind(v4(0)) ?? datagrams.receive().catch((error: unknown) => error);
  own.context.close();
  assert.deepEqual([(await read).done, await outcome], [true, { tag: "ok", val: undefined }]);
  assert.deepEqual(await accepted, { done: true, value: undefined });
  assert.ok((await got) instanceof Failure);
  await own.context.atRest();
  for (const each of [client, listener, datagrams]) each[Symbol.dispose]();
});

async function echo(context: TestContext) {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    socket.pipe(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => server.close());
  return { port: (server.address() as AddressInfo).port };
}

/** Random calls, and what has to become of them. */
class Steps {
  readonly #random: Random;
  readonly #sockets: Sockets;
  readonly #port: number;
  readonly #pending: Promise<void>[] = [];
  readonly #held = new Set<AsyncTcpSocket | AsyncUdpSocket>();
  readonly #flows: AsyncIterator<unknown>[] = [];

  constructor(random: Random, sockets: Sockets, port: number) {
    this.#random = random;
    this.#sockets = sockets;
    this.#port = port;
  }

  step(): void {
    const { tcp, udp, resolve } = this.#sockets;
    const choice = this.#below(10);
    if (this.#held.size === 0 || choice === 0) this.#kept(() => this.#one([tcp, tcp, udp])(this.#family()));
    else if (choice === 1) this.#drop(this.#one([...this.#held]));
    else if (choice === 2) this.#settles(resolve(this.#name()), LOOKUP_CODES);
    else if (choice === 3 && this.#flows.length > 0) this.#flow(this.#one(this.#flows));
    else {
      const socket = this.#one([...this.#held]);
      if ("listen" in socket) this.#tcp(socket);
      else this.#udp(socket);
    }
  }

  /** Nothing of it hangs, and nothing is left. */
  async end(): Promise<void> {
    for (const each of [...this.#held]) this.#drop(each);
    for (const each of this.#flows) void each.return?.();
    this.#sockets.context.close();
    await Promise.all(this.#pending);
    await this.#sockets.context.atRest();
  }

  #tcp(socket: AsyncTcpSocket): void {
    const call = this.#one([
      () => socket.bind(this.#address()),
      () => this.#settles(socket.connect(this.#address()), CODES),
      () => void this.#flows.push(socket.listen()),
      () => this.#outcome(socket.send(this.#reader())),
      () => {
        const [stream, outcome] = socket.receive();
        this.#flows.push(stream[Symbol.asyncIterator]());
        this.#outcome(outcome);
      },
      () => socket.getRemoteAddress(),
      () => socket.setListenBacklogSize(this.#u64()),
      () => socket.setKeepAliveEnabled(this.#below(2) === 0),
      () => socket.setKeepAliveIdleTime(this.#u64()),
      () => socket.setKeepAliveInterval(this.#u64()),
      () => socket.setKeepAliveCount(this.#below(2 ** 32)),
      () => socket.setHopLimit(this.#below(256)),
      () => this.#either(socket),
    ]);
    this.#call(call);
  }

  #udp(socket: AsyncUdpSocket): void {
    const call = this.#one([
      () => socket.bind(this.#address()),
      () => socket.connect(this.#address()),
      () => socket.disconnect(),
      () => this.#settles(socket.send(new Uint8Array(this.#below(70_000)), this.#maybeAddress()), CODES),
      () => this.#settles(socket.receive(), CODES),
      () => socket.setUnicastHopLimit(this.#below(256)),
      () => this.#either(socket),
    ]);
    this.#call(call);
  }

  #either(socket: AsyncTcpSocket | AsyncUdpSocket): void {
    this.#one([
      () => socket.getLocalAddress(),
      () => socket.getAddressFamily(),
      () => socket.setReceiveBufferSize(this.#u64()),
      () => socket.setSendBufferSize(this.#u64()),
    ])();
    assert.ok(socket.getReceiveBufferSize() > 0n && socket.getSendBufferSize() > 0n);
  }

  #flow(flow: AsyncIterator<unknown>): void {
    if (this.#below(4) === 0) void flow.return?.();
    const next = flow.next().then(({ value }) => {
      if (typeof value === "object" && value !== null && "listen" in value) this.#held.add(value as AsyncTcpSocket);
    });
    this.#settles(next, new Set());
  }

  #call(call: () => unknown): void {
    try {
      call();
    } catch (error) {
      known(error, CODES);
    }
  }

  #kept(make: () => AsyncTcpSocket | AsyncUdpSocket): void {
    this.#call(() => this.#held.add(make()));
  }

  #drop(socket: AsyncTcpSocket | AsyncUdpSocket): void {
    this.#held.delete(socket);
    socket[Symbol.dispose]();
  }

  #settles(promise: Promise<unknown>, codes: ReadonlySet<string>): void {
    this.#pending.push(
      promise.then(
        () => undefined,
        (error: unknown) => known(error, codes),
      ),
    );
  }

  #outcome(promise: Promise<{ readonly tag: string; readonly val: unknown }>): void {
    const checked = promise.then(({ tag, val }) => {
      if (tag !== "ok") assert.ok(CODES.has((val as { tag: string }).tag), JSON.stringify(val));
    });
    this.#settles(checked, new Set());
  }

  /** The output of a component: some pieces, and then its end. */
  #reader(): ByteReader {
    let left = this.#below(6);
    return {
      read: ({ count }) => {
        left -= 1;
        return Promise.resolve({ done: left < 0, value: new Uint8Array(left < 0 ? 0 : this.#below(count) + 1) });
      },
      [Symbol.dispose]: () => undefined,
    };
  }

  #maybeAddress(): IpSocketAddress | undefined {
    return this.#below(3) === 0 ? undefined : this.#address();
  }

  #address(): IpSocketAddress {
    const port = this.#one([this.#port, 0, this.#below(65_536)]);
    const octet = (): number => this.#below(256);
    const random4 = [octet(), octet(), octet(), octet()];
    if (this.#below(4) > 0) {
      const address = this.#one([[127, 0, 0, 1], [127, 0, 0, 1], [0, 0, 0, 0], [255, 255, 255, 255], random4]);
      return { tag: "ipv4", val: { port, address } };
    }
    const address = this.#one([
      [0, 0, 0, 0, 0, 0, 0, 1],
      [0, 0, 0, 0, 0, 0xffff, 0x7f00, 1],
      Array.from({ length: 8 }, () => this.#below(65_536)),
    ]);
    return { tag: "ipv6", val: { port, flowInfo: this.#below(2 ** 32), address, scopeId: this.#below(2) } };
  }

  #name(): string {
    return this.#one([
      "localhost",
      "127.0.0.1",
      "::1",
      "",
      ".",
      "a b",
      "ü.example",
      "x".repeat(300),
      "not-granted.example",
    ]);
  }

  #family(): Family {
    return this.#one(["ipv4", "ipv4", "ipv6"]);
  }

  #u64(): bigint {
    return this.#one([0n, 1n, 4096n, BigInt(this.#below(2 ** 32)) << 20n, 2n ** 64n - 1n]);
  }

  #below(end: number): number {
    return Math.floor(this.#random.next() * end);
  }

  #one<T>(of: readonly T[]): T {
    return of[this.#below(of.length)] as T;
  }
}

function known(error: unknown, codes: ReadonlySet<string>): void {
  if (!(error instanceof Failure)) throw error;
  assert.ok(codes.has((error as Failure<{ tag: string }>).payload.tag), JSON.stringify(error.payload));
}

test(`random calls are answered by codes, and leave nothing open (PICOLET_SEED=${SEED})`, async (context) => {
  const { port } = await echo(context);
  const random = seededRandom(SEED);
  for (let round = 0; round < ROUNDS; round += 1) {
    // Ports that the system gives out: those that other tests choose are lower.
    const listens = "listen tcp:32768-60999; listen udp:32768-60999";
    const own = bench(`tcp://127.0.0.1:${port}; tcp://localhost:${port}; udp://127.0.0.1:${port}; ${listens}`);
    const steps = new Steps(random, own, port);
    for (let step = 0; step < STEPS; step += 1) {
      steps.step();
      if (step % 4 === 0) await new Promise((resolve) => void setImmediate(resolve));
    }
    await steps.end();
  }
});
