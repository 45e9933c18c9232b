/**
 * wasi:sockets of WASI 0.3 by a component that is served: held by its pod's rules, closed with its instance, and
 * nothing is left.
 */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { Agent, get } from "node:http";
import { connect, type Socket } from "node:net";
import { after, before, type TestContext, test } from "node:test";
import { DEFAULT_HTTP_OPTIONS } from "@picolet/runtime-wasm/shared/grants/http-options.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { settledMemory } from "../support/unit/machine/held-memory.ts";
import { AsyncComponent } from "../support/wasm/async-component.ts";
import { echo, networkOf, peer } from "../support/wasm/async-talk.ts";

const OPEN = "tcp://127.0.0.1:*; tcp://[::1]:*; udp://127.0.0.1:*; tcp://localhost:*; listen tcp:*; listen udp:*";
/** Half of them by TCP, half by UDP, and one of fifty thrown away. */
const REQUESTS = 400;
/**
 * Bounds the bytes of each. Some 100 without the test runner, which follows promises: 1,500 with it. A leaked socket is
 * 2,400 more.
 */
const BOUND_BYTES = 2048;

let component: AsyncComponent;

before(async () => {
  component = await AsyncComponent.of("async-proxy.c");
});

after(() => component?.[Symbol.dispose]());

interface Answer {
  readonly status: number | undefined;
  readonly text: string;
}

class Served {
  readonly #port: number;
  /** Faults of failed requests in the container's log. */
  readonly faults: readonly string[];

  private constructor(port: number, faults: readonly string[]) {
    this.#port = port;
    this.faults = faults;
  }

  static async serve(context: TestContext, rules: string | undefined, options = {}): Promise<Served> {
    const port = await fixedPort();
    const faults: string[] = [];
    const serve = { ...DEFAULT_HTTP_OPTIONS, ...options, port };
    const server = await component.serve(serve, (text) => faults.push(text), networkOf(rules));
    context.after(() => server.close());
    return new Served(port, faults);
  }

  asked(path: string, agent: Agent | false = false): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const own = get({ port: this.#port, host: "127.0.0.1", path, agent }, (message) => {
        let text = "";
        message.setEncoding("utf8").on("data", (chunk: string) => {
          text += chunk;
        });
        message.on("error", reject).on("end", () => resolve({ status: message.statusCode, text }));
      });
      own.on("error", reject);
    });
  }
}

/** @param when calls what answers */
async function udpEcho(context: TestContext, when = (answer: () => void): void => answer()): Promise<number> {
  const socket = createSocket("udp4").bind(0, "127.0.0.1");
  await once(socket, "listening");
  context.after(() => socket.close());
  socket.on("message", (data, from) => when(() => socket.send(data, from.port, from.address)));
  return socket.address().port;
}

/** A server that records its connections, their data and their ends. */
async function listener(context: TestContext, host?: string) {
  const sockets: Socket[] = [];
  const waiting: (() => void)[] = [];
  const port = await peer(
    context,
    (socket) => {
      sockets.push(socket.resume());
      for (const each of waiting.splice(0)) each();
    },
    host,
  );
  const arrived = async (count: number): Promise<readonly Socket[]> => {
    while (sockets.length < count) await new Promise<void>((resolve) => void waiting.push(resolve));
    return sockets;
  };
  return { port, arrived };
}

test("many requests at once each talk to whom they like", async (context) => {
  const instances = 8;
  const held: (() => void)[] = [];
  let most = 0;
  /** Answers only when as many clients wait as there are instances. */
  const together = (answer: () => void): void => {
    held.push(answer);
    most = Math.max(most, held.length);
    if (most === instances) for (const each of held.splice(0)) each();
  };
  const late = (socket: Socket): void => together(() => void echo(socket));
  const [four, six] = [await peer(context, late), await peer(context, late, "::1")];
  const datagrams = await udpEcho(context, together);
  const ways = [`/tcp/${four}`, `/tcp6/${six}`, `/udp/${datagrams}`, "/name/127.0.0.1"];
  const paths = Array.from({ length: 30 }, (_, at) =>
    ways.map((way) => (way.startsWith("/name") ? way : `${way}/${at}`)),
  ).flat();
  const proxy = await Served.serve(context, OPEN, { instances, waiting: paths.length });
  const checked = async (path: string): Promise<void> =>
    assert.deepEqual(await proxy.asked(path), { status: 200, text: path.startsWith("/name") ? "1" : path });
  await Promise.all(paths.map(checked));
  assert.equal(most, instances);
  assert.deepEqual(proxy.faults, []);
});

test("it reaches whom its pod names, and hears why nobody else", async (context) => {
  const port = await peer(context, echo);
  // Free ports that any process may open: only the missing grant keeps the component from them.
  const [granted, ungranted] = [await fixedPort(), await fixedPort()];
  const rules = `tcp://127.0.0.1:${port}; tcp://127.0.0.1:1; udp://127.0.0.1:9; listen udp:${granted}`;
  const proxy = await Served.serve(context, rules);
  for (const [path, text] of [
    [`/tcp/${port}`, `/tcp/${port}`],
    // By the place of the code among those of its interface.
    [`/tcp6/${port}`, "connect: 0"],
    ["/tcp/2", "connect: 0"],
    ["/tcp/1", "connect: 9"],
    ["/udp/2", "send: 0"],
    [`/hear/${ungranted}`, "bind: 0"],
    [`/listen/${ungranted}`, "bind: 0"],
    [`/listen/${granted}`, "bind: 0"],
    ["/name/example.com", "lookup: 0"],
  ] as const) {
    assert.deepEqual(await proxy.asked(path), { status: 200, text }, path);
  }
  const alone = await Served.serve(context, undefined);
  for (const [path, text] of [
    [`/tcp/${port}`, "create: 0"],
    ["/udp/9", "create: 0"],
    ["/name/127.0.0.1", "lookup: 0"],
  ] as const) {
    assert.deepEqual(await alone.asked(path), { status: 200, text }, path);
  }
});

test("what an instance keeps is closed when it is thrown away, and takes no other request with it", async (context) => {
  const { port, arrived } = await listener(context);
  const slow = await listener(context);
  const proxy = await Served.serve(context, OPEN, { instances: 2 });
  const underway = proxy.asked(`/tcp/${slow.port}`);
  const [waits] = await slow.arrived(1);
  assert.deepEqual(await proxy.asked(`/keep/${port}`), { status: 200, text: "kept" });
  const [kept] = await arrived(1);
  const trapped = proxy.asked(`/trap/${port}`);
  const [, second] = await arrived(2);
  const closed = [kept, second].map((socket) => once(socket as Socket, "end"));
  second?.write("now");
  assert.equal((await trapped).status, 500);
  await Promise.all(closed);
  // Neither what it waits for by UDP, nor a connection that is not there yet.
  const own = await fixedPort();
  for (let time = 0; time < 3; time += 1) assert.equal((await proxy.asked(`/leave/${own}`)).status, 500);
  waits?.end("answer");
  assert.deepEqual(await underway, { status: 200, text: "answer" });
  assert.equal(proxy.faults.length, 4);
  for (const fault of proxy.faults) assert.match(fault, /wasm trap: .*unreachable/);
});

test("who waits for too long is cut off with all that it has", async (context) => {
  const { port, arrived } = await listener(context);
  const proxy = await Served.serve(context, OPEN, { timeoutMs: 1 });
  const [heard, listened] = [await fixedPort(), await fixedPort()];
  const paths = [`/wait/${port}`, `/hear/${heard}`, `/listen/${listened}`];
  for (let time = 0; time < 2; time += 1) {
    const asked = Promise.all(paths.map((path) => proxy.asked(path)));
    const waits = (await arrived(time + 1))[time] as Socket;
    const ended = once(waits, "end");
    assert.deepEqual(
      (await asked).map(({ status }) => status),
      [504, 504, 504],
    );
    await ended;
    await assert.rejects(once(connect({ port: listened, host: "127.0.0.1" }), "connect"), /ECONNREFUSED/);
  }
});

test("a container's instances share its sockets, and one that is thrown away gives back what it had", async (context) => {
  const { port, arrived } = await listener(context);
  const proxy = await Served.serve(context, OPEN, { instances: 4, waiting: 128 });
  const kept = await Promise.all(Array.from({ length: 128 }, () => proxy.asked(`/keep/${port}`)));
  assert.deepEqual([...new Set(kept.map(({ text }) => text))], ["kept"]);
  // Error `other`, with a text.
  assert.equal((await proxy.asked(`/tcp/${port}`)).text, "create: 14");
  const all = await arrived(128);
  const closed = all.map((socket) => once(socket, "end"));
  assert.equal((await proxy.asked("/fault/")).status, 500);
  await Promise.race(closed);
  assert.equal((await proxy.asked(`/keep/${port}`)).text, "kept");
});

test("requests leave nothing behind, whether they let go of what they have or are cut off", async (context) => {
  const proxy = await Served.serve(context, OPEN, { instances: 1 });
  const paths = [`/tcp/${await peer(context, echo)}`, `/udp/${await udpEcho(context)}`];
  const thrown = await fixedPort();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  context.after(() => agent.destroy());
  const requests = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at += 1) await proxy.asked(paths[at % 2] as string, agent);
    for (let at = 0; at < count / 50; at += 1) await proxy.asked(`/leave/${thrown}`, agent);
  };
  // What is compiled, cached and pooled is there after these.
  await requests(REQUESTS);
  const before = await settledMemory();
  await requests(REQUESTS);
  const after = await settledMemory();
  const grown = after.heap - before.heap + after.buffers - before.buffers;
  assert.ok(grown < BOUND_BYTES * REQUESTS, `${REQUESTS} requests have left ${grown} bytes`);
});
