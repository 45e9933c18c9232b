import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { describe, it } from "node:test";
import fc from "fast-check";
import { systemClock } from "../../../protocol/async/system-clock.ts";
import { PicoletError } from "../../../protocol/errors.ts";
import { type Clock, seconds } from "../../../protocol/ports.ts";
import { RecordedLog } from "../../../test/support/recorders.ts";
import { TempFolder } from "../../../test/support/temp-folder.ts";
import { VirtualClock } from "../../../test/support/virtual-clock.ts";
import {
  type BoardService,
  type ServiceMessage,
  type ServicePeer,
  ServiceRefusal,
} from "../../contract/board-services.ts";
import type { Begun } from "../host/polling.ts";
import { encodeFrame, FrameReader, MAX_FRAME_BYTES } from "./frames.ts";
import { helloMessage, PROTOCOL_VERSION, requestMessage, welcomeMessage } from "./messages.ts";
import { ServiceClient } from "./service-client.ts";
import { ServicePort } from "./service-port.ts";

const TOKEN = "ab".repeat(32);
const PEER: ServicePeer = {
  containerId: "c1",
  container: "main",
  pod: { name: "p", namespace: "default", uid: "u" },
  interfaces: ["keyvalue"],
  buckets: [],
};
const hello = encodeFrame(helloMessage({ version: PROTOCOL_VERSION, token: TOKEN }));
const ask = (id: number, method: string, bytes: readonly Uint8Array[] = []): Uint8Array =>
  encodeFrame(requestMessage({ id, method, value: null, bytes }));

/** Answers with what it was asked; `refuse` is refused, `fail` fails. */
const echo: BoardService = {
  call(_, method, request) {
    if (method === "refuse") throw new ServiceRefusal("quota-exceeded");
    if (method === "fail") throw new PicoletError("failed", "cannot do it");
    if (method === "much") return { value: null, bytes: [new Uint8Array(MAX_FRAME_BYTES)] };
    return request;
  },
};

class Bench implements AsyncDisposable {
  readonly folder = new TempFolder();
  readonly log = new RecordedLog();
  readonly path = this.folder.at("s");
  #port: ServicePort | undefined;
  readonly #service: BoardService;
  readonly #clock: Clock;

  constructor(service: BoardService, clock: Clock) {
    this.#service = service;
    this.#clock = clock;
  }

  static async open(service: BoardService = echo, clock: Clock = systemClock): Promise<Bench> {
    const bench = new Bench(service, clock);
    await bench.start();
    return bench;
  }

  async start(): Promise<void> {
    const peerOf = (token: string): ServicePeer | undefined => (token === TOKEN ? PEER : undefined);
    const services = { keyvalue: () => this.#service };
    this.#port = await ServicePort.open({ clock: this.#clock, log: this.log, services, peerOf }, this.path);
  }

  async stop(): Promise<void> {
    await this.#port?.[Symbol.asyncDispose]();
    this.#port = undefined;
  }

  client(token = TOKEN): ServiceClient {
    return clientOf(this.path, token);
  }

  async raw(): Promise<Socket> {
    const socket = connect(this.path);
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    this.folder[Symbol.dispose]();
  }
}

function clientOf(path: string, token = TOKEN): ServiceClient {
  const open = async (): Promise<Socket> => {
    const socket = connect(path);
    await once(socket, "connect");
    socket.on("error", () => socket.destroy());
    return socket;
  };
  const after = (ms: number, act: () => void): (() => void) => {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  };
  return new ServiceClient({ connect: open, after, random: () => 0.5 }, token);
}

async function outcome<R>(begun: Begun<R>): Promise<R> {
  await new Promise<void>((resolve) => {
    begun.onReady?.(resolve);
    if (begun.ready()) resolve();
  });
  return begun.result();
}

const EMPTY: ServiceMessage = { value: null, bytes: [] };
const call = (client: ServiceClient, method: string, message = EMPTY, repeatable = true): Promise<ServiceMessage> =>
  outcome(client.call(`keyvalue.${method}`, message, { repeatable }));

/** The messages that arrive until the other end closes, or there are `count`. */
async function received(socket: Socket, count = Number.POSITIVE_INFINITY): Promise<ServiceMessage[]> {
  const reader = new FrameReader();
  const found: ServiceMessage[] = [];
  for await (const chunk of socket) {
    reader.push(chunk);
    for (let next = reader.next(MAX_FRAME_BYTES); next !== undefined; next = reader.next(MAX_FRAME_BYTES))
      found.push(next);
    if (found.length >= count) break;
  }
  return found;
}

describe("what runners ask of the agent", () => {
  it("is answered with values and bytes, in the order of asking", async () => {
    await using bench = await Bench.open();
    const client = bench.client();
    const bytes = [new Uint8Array(1_048_576).fill(7), new Uint8Array()];
    const answers = await Promise.all([
      call(client, "echo", { value: { a: [1, "\u0000\u{1f600}"] }, bytes }),
      call(client, "echo", { value: 2, bytes: [] }),
    ]);
    assert.deepEqual(answers[0]?.value, { a: [1, "\u0000\u{1f600}"] });
    assert.deepEqual(
      answers[0]?.bytes.map((each) => each.length),
      [1_048_576, 0],
    );
    assert.equal(answers[1]?.value, 2);
  });

  it("is refused with the interface's error, and fails as unavailable with anything else", async () => {
    await using bench = await Bench.open();
    const client = bench.client();
    await assert.rejects(call(client, "refuse"), { tag: "quota-exceeded" });
    await assert.rejects(call(client, "fail"), { tag: "unavailable" });
    await assert.rejects(call(client, "much"), { tag: "unavailable" });
    await assert.rejects(outcome(client.call("telemetry.write", EMPTY, { repeatable: false })), { tag: "unavailable" });
    assert.equal((await call(client, "echo", { value: 5, bytes: [] })).value, 5);
  });

  it("is not even sent when it is too large", async () => {
    await using bench = await Bench.open();
    const client = bench.client();
    const huge = { value: null, bytes: [new Uint8Array(MAX_FRAME_BYTES)] };
    assert.throws(() => client.call("keyvalue.echo", huge, { repeatable: true }), { code: "resource_exhausted" });
  });

  it("waits for an agent that is started anew, and is asked again when that may be", async () => {
    const entered = Promise.withResolvers<void>();
    let calls = 0;
    await using bench = await Bench.open({
      call(_, _method, request) {
        calls += 1;
        entered.resolve();
        return calls === 1 ? new Promise<never>(() => undefined) : request;
      },
    });
    const client = bench.client();
    const answer = call(client, "echo", { value: 9, bytes: [] });
    await entered.promise;
    await bench.stop();
    await bench.start();
    assert.equal((await answer).value, 9);
    assert.equal(calls, 2);
  });

  it("fails at once when it may have been done and must not be done twice", async () => {
    const entered = Promise.withResolvers<void>();
    await using bench = await Bench.open({
      call() {
        entered.resolve();
        return new Promise<never>(() => undefined);
      },
    });
    const answer = call(bench.client(), "increment", EMPTY, false);
    await entered.promise;
    await bench.stop();
    await assert.rejects(answer, { tag: "unavailable" });
  });

  it("is answered for the newest connection of a container, and for none with a token of nobody's", async () => {
    await using bench = await Bench.open();
    const first = await bench.raw();
    const closed = once(first, "close");
    first.write(hello);
    await once(first, "data");
    first.resume();
    assert.equal((await call(bench.client(), "echo", { value: 1, bytes: [] })).value, 1);
    await closed;
    const stranger = await bench.raw();
    stranger.write(encodeFrame(helloMessage({ version: PROTOCOL_VERSION, token: "cd".repeat(32) })));
    stranger.write(ask(1, "keyvalue.echo"));
    assert.deepEqual(await received(stranger), []);
  });
});

describe("a runner that has been taken over", () => {
  it("that floods without listening fills its own socket alone", async () => {
    let calls = 0;
    await using bench = await Bench.open({
      call(_, _method, request) {
        calls += 1;
        return request;
      },
    });
    const socket = await bench.raw();
    socket.pause();
    socket.write(hello);
    const large = ask(1, "keyvalue.echo", [new Uint8Array(1_000_000)]);
    for (let i = 0; i < 20; i += 1) socket.write(large);
    // Others are answered meanwhile: neither the agent's time nor its bytes are taken.
    const peer = await bench.raw();
    peer.destroy();
    while (calls === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.ok(calls <= 2, `${calls} requests were taken`);
    socket.destroy();
  });

  it("that says nothing, or half of something, is cut off after its time", async () => {
    const clock = new VirtualClock();
    const asked = Promise.withResolvers<void>();
    await using bench = await Bench.open(
      {
        call(_, _method, request) {
          asked.resolve();
          return request;
        },
      },
      clock,
    );
    const silent = await bench.raw();
    const silentEnd = once(silent.resume(), "close");
    const slow = await bench.raw();
    const slowEnd = once(slow.resume(), "close");
    slow.write(hello);
    slow.write(ask(1, "keyvalue.echo"));
    await asked.promise;
    slow.write(ask(2, "keyvalue.echo").subarray(0, 10));
    await clock.advance(seconds(4));
    assert.equal(silent.destroyed, false);
    await clock.advance(seconds(2));
    await silentEnd;
    // The half may arrive late, and then has its ten seconds.
    while (!slow.destroyed) await clock.advance(seconds(10));
    await slowEnd;
    assert.match(bench.log.entries.map(({ fields }) => String(fields.error)).join(), /within 10 s/);
  });

  it("gets no more than its share of calls", async () => {
    let calls = 0;
    await using bench = await Bench.open({
      call(_, _method, request) {
        calls += 1;
        return request;
      },
    });
    const socket = await bench.raw();
    const started = performance.now();
    socket.write(hello);
    socket.write(Buffer.concat(Array.from({ length: 1300 }, (_, i) => ask(i + 1, "keyvalue.echo"))));
    const answers = await received(socket, 1301);
    assert.equal(answers.length, 1301);
    assert.equal(calls, 1300);
    assert.ok(performance.now() - started >= 250, "1,000 at once, 300 more within a third of a second");
  });

  it("whatever it sends, brings nothing down, and others are served", async () => {
    await using bench = await Bench.open();
    const hostile = fc.oneof(
      fc.uint8Array({ maxLength: 300 }),
      fc.constant(ask(0, "keyvalue.echo")),
      fc.constant(encodeFrame({ value: { id: 1, method: "keyvalue.echo.x" }, bytes: [] })),
      fc.constant(encodeFrame({ value: { id: 1, method: "__proto__.toString" }, bytes: [] })),
      fc.constant(Uint8Array.of(0xff, 0xff, 0xff, 0xff)),
      fc.constant(Buffer.from("09000000050000005b5b5b5b5b", "hex")),
      fc.json().map((text) => encodeFrame({ value: JSON.parse(text), bytes: [] })),
      fc.record({ at: fc.nat(40), to: fc.nat(255) }).map(({ at, to }) => {
        const bytes = Buffer.from(ask(3, "keyvalue.echo", [new Uint8Array(5)]));
        bytes[at % bytes.length] = to;
        return new Uint8Array(bytes);
      }),
    );
    await fc.assert(
      fc.asyncProperty(fc.boolean(), fc.array(hostile, { maxLength: 4 }), async (known, parts) => {
        const socket = await bench.raw();
        if (known) socket.write(hello);
        for (const part of parts) socket.write(part);
        socket.end();
        await received(socket).catch(() => undefined);
      }),
      { numRuns: 300 },
    );
    assert.equal((await call(bench.client(), "echo", { value: 1, bytes: [] })).value, 1);
  });
});

describe("an agent that answers nonsense", () => {
  it("makes calls fail, never hang, and never gives one call another's answer", async () => {
    const folder = new TempFolder();
    const nonsense = fc.oneof(
      fc.uint8Array({ minLength: 1, maxLength: 100 }),
      fc.json().map((text) => encodeFrame({ value: JSON.parse(text), bytes: [] })),
      fc.constant(encodeFrame({ value: { id: 99, value: 1 }, bytes: [] })),
      fc.constant(encodeFrame({ value: { id: 1, error: { tag: 5 } }, bytes: [] })),
    );
    let reply: Uint8Array = new Uint8Array();
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => {
        socket.write(encodeFrame(welcomeMessage));
        socket.once("data", () => socket.end(reply));
      });
    });
    server.listen(folder.at("s"));
    await once(server, "listening");
    try {
      await fc.assert(
        fc.asyncProperty(nonsense, async (bytes) => {
          reply = bytes;
          const settled = await call(clientOf(folder.at("s")), "increment", EMPTY, false).catch((error) => error);
          assert.ok(settled instanceof ServiceRefusal, String(settled));
        }),
        { numRuns: 200 },
      );
    } finally {
      server.close();
      folder[Symbol.dispose]();
    }
  });
});
