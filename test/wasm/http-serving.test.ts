/** Components that serve wasi:http, in real runners, asked by real clients, polite and hostile. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { type IncomingMessage, type RequestOptions, request } from "node:http";
import { connect, createServer, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { httpLoad } from "../bench/wasm/http-load.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { openFilesOf } from "../support/unit/machine/processes.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { imageOf, type WasmBench, wasmBench } from "../support/wasm/wasm-bench.ts";
import type { WasmPod, WasmPodOptions } from "../support/wasm/wasm-runtime.ts";

const HOST = "127.0.0.1";

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly trailers: IncomingMessage["trailers"];
  readonly body: string;
}

class Served {
  readonly pod: WasmPod;
  readonly port: number;
  readonly container: ObservedContainer;
  readonly #bench: WasmBench;

  private constructor(bench: WasmBench, pod: WasmPod, port: number, container: ObservedContainer) {
    this.#bench = bench;
    this.pod = pod;
    this.port = port;
    this.container = container;
  }

  static async start(
    context: TestContext,
    http?: string,
    more: Partial<WasmPodOptions> = {},
    launch: Parameters<WasmPod["start"]>[0] = {},
  ): Promise<Served> {
    const bench = await wasmBench(context);
    const port = await fixedPort();
    const annotations = http === undefined ? {} : { "wasm.picolet.io/http": http };
    const pod = await bench.pod("http-server.c", {
      container: { ports: [{ containerPort: port }] },
      annotations,
      ...more,
    });
    return new Served(bench, pod, port, await pod.start(launch));
  }

  /** The runner's process. */
  get pid(): number {
    return this.#bench.runtime.runner(this.container.id)?.pid ?? assert.fail("it has a runner");
  }

  get anonKiB(): number {
    return Number(/RssAnon:\s*(\d+)/.exec(readFileSync(`/proc/${this.pid}/status`, "utf8"))?.[1]);
  }

  async ask(path: string, options: RequestOptions = {}, body: string | Buffer = ""): Promise<Answer> {
    const asked = request({ host: HOST, port: this.port, path, agent: false, ...options });
    asked.end(body);
    const [message] = (await once(asked, "response")) as [IncomingMessage];
    return {
      body: await text(message),
      status: message.statusCode ?? 0,
      headers: message.headers,
      trailers: message.trailers,
    };
  }

  async raw(): Promise<Socket> {
    const socket = connect(this.port, HOST);
    await once(socket, "connect");
    return socket;
  }
}

test("a component is asked on its container's port, and answers with what it says", async (context) => {
  const served = await Served.start(context);
  const hello = await served.ask("/hello");
  assert.deepEqual([hello.status, hello.body], [200, "hello world"]);
  assert.equal(hello.headers["content-type"], "text/plain");
  assert.equal(hello.headers["content-length"], "11");
  assert.equal((await served.ask("/query?a=%20b")).body, "/query?a=%20b");
  for (const method of ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"]) {
    assert.equal((await served.ask("/method", { method })).body, method.toLowerCase());
  }
  assert.equal((await served.ask("/method", { method: "PURGE" })).body, "PURGE");
});

test("bodies go through piece by piece, with their trailers, and a slow client holds the component back", async (context) => {
  const served = await Served.start(context);
  const body = Buffer.alloc(3_000_000, "0123456789");
  const echoed = await served.ask("/echo", { method: "POST" }, body);
  assert.equal(echoed.body.length, body.length);
  const trailed = request({ host: HOST, port: served.port, path: "/echo", method: "POST", agent: false });
  trailed.setHeader("transfer-encoding", "chunked");
  trailed.setHeader("trailer", "x-sum");
  trailed.write("some");
  trailed.addTrailers({ "x-sum": "42" });
  trailed.end("thing");
  const [message] = (await once(trailed, "response")) as [IncomingMessage];
  assert.equal(await text(message), "something");
  assert.equal(message.trailers["x-sum"], "42");
  const counted = await served.ask("/count/5000000");
  assert.equal(counted.body.length, 5_000_000);
});

test("the answer to HEAD has a length and no body, and 100-continue comes when the component reads", async (context) => {
  const served = await Served.start(context);
  const head = await served.ask("/hello", { method: "HEAD" });
  assert.deepEqual([head.status, head.headers["content-length"], head.body], [200, "11", ""]);
  const expecting = request({
    host: HOST,
    port: served.port,
    path: "/echo",
    method: "POST",
    agent: false,
    headers: { expect: "100-continue" },
  });
  expecting.flushHeaders();
  await once(expecting, "continue");
  expecting.end("now");
  const [message] = (await once(expecting, "response")) as [IncomingMessage];
  assert.equal(await text(message), "now");
});

test("a request that the component fails gets an error, and the next one another instance", async (context) => {
  const served = await Served.start(context, "instances=1");
  assert.equal((await served.ask("/calls")).body, "1");
  assert.equal((await served.ask("/calls")).body, "2");
  assert.equal((await served.ask("/trap")).status, 500);
  assert.equal((await served.ask("/calls")).body, "1");
  assert.equal((await served.ask("/error")).status, 403);
  assert.equal((await served.ask("/silent")).status, 500);
  await assert.rejects(served.ask("/cut"), /socket hang up|aborted/);
  assert.equal((await served.ask("/calls")).body, "5");
  const log = await served.pod.text(served.container, 3);
  assert.match(log[0] ?? "", /^picolet: the request GET "\/trap" failed: wasm trap: /);
  assert.match(log[1] ?? "", /"\/silent" failed: it set no response/);
  const { state } = await served.pod.container((each) => each.id === served.container.id);
  assert.equal(state.kind, "running");
});

test("an instance that is thrown away leaves no file open", async (context) => {
  using volume = new TempFolder();
  chmodSync(volume.path, 0o755);
  writeFileSync(volume.at("kept"), "");
  const mounts = [{ containerPath: "/data", hostPath: volume.path, readOnly: true, propagation: "private" as const }];
  const served = await Served.start(context, "instances=1; timeout=1", {}, { mounts });
  for (let time = 0; time < 10; time += 1) assert.equal((await served.ask("/lose")).status, 500);
  // One that would sleep for long after its time is ended with its stack.
  assert.equal((await served.ask("/doze")).status, 504);
  // The client gets its answer first.
  assert.equal((await served.ask("/calls")).body, "1");
  assert.deepEqual(
    openFilesOf(served.pid).filter((path) => path.startsWith("/volumes/")),
    ["/volumes/0"],
  );
});

test("more than there are instances wait, and more than may wait are refused", async (context) => {
  const served = await Served.start(context, "instances=1; waiting=1");
  const slow = request({ host: HOST, port: served.port, path: "/echo", method: "POST", agent: false });
  slow.setHeader("transfer-encoding", "chunked");
  slow.write("first");
  const [message] = (await once(slow, "response")) as [IncomingMessage];
  const waiting = served.ask("/hello");
  // The second one that comes finds the one place taken.
  const statuses = new Set([(await Promise.race([served.ask("/hello"), waiting])).status]);
  slow.end();
  await text(message);
  statuses.add((await waiting).status);
  assert.ok(statuses.has(503), [...statuses].join());
  assert.equal((await served.ask("/hello")).status, 200);
});

/** With an end or a reset: what the server has not read when it closes resets the connection. */
const cutOff = (socket: Socket): Promise<unknown> =>
  new Promise((resolve) => socket.resume().on("error", resolve).once("close", resolve));

test("hostile clients are cut off, and the others are served", async (context) => {
  const served = await Served.start(context, "max-body=1Ki; timeout=2");
  assert.equal((await served.ask("/echo", { method: "POST" }, Buffer.alloc(2048))).status, 413);
  assert.equal((await served.ask("/hello", { headers: { "x-long": "y".repeat(20_000) } })).status, 431);
  const endless = await served.raw();
  endless.write("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
  const chunk = `800\r\n${"z".repeat(2048)}\r\n`;
  for (let each = 0; each < 4; each += 1) endless.write(chunk);
  await cutOff(endless);
  const pipelining = await served.raw();
  pipelining.write("GET /hello HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200));
  await cutOff(pipelining);
  const nonsense = await served.raw();
  nonsense.write("\0\0\0\0\r\n\r\n");
  assert.match(await text(nonsense), /^HTTP\/1\.1 400 /);
  const smuggling = await served.raw();
  smuggling.write("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
  assert.match(await text(smuggling), /^HTTP\/1\.1 400 /);
  const slow = await served.raw();
  slow.write("GET /hello HTTP/1.1\r\nhost: ");
  assert.match(await text(slow), /^HTTP\/1\.1 408 /);
  const halfClosed = connect({ port: served.port, host: HOST, allowHalfOpen: true });
  halfClosed.end("GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  assert.match(await text(halfClosed), /hello world$/);
  assert.equal((await served.ask("/hello")).status, 200);
});

test("a response that comes too late is given up", async (context) => {
  const served = await Served.start(context, "instances=1; timeout=1");
  // The first request also makes an instance, which must not count.
  await served.ask("/hello");
  const slow = request({ host: HOST, port: served.port, path: "/echo", method: "POST", agent: false });
  slow.setHeader("transfer-encoding", "chunked");
  slow.on("error", () => undefined);
  slow.write("first");
  const [message] = (await once(slow, "response")) as [IncomingMessage];
  await assert.rejects(text(message), /aborted/);
  assert.equal((await served.ask("/hello")).status, 200);
});

test("many requests leave the process as small as it was", async (context) => {
  const served = await Served.start(context, "instances=2");
  const load = (requests: number) => httpLoad({ port: served.port, path: "/hello", connections: 8, requests });
  // Until the heap is as large as it gets: some 11 MiB more than after the first thousands.
  await load(40_000);
  const before = served.anonKiB;
  await load(30_000);
  const grown = served.anonKiB - before;
  context.diagnostic(`${grown} KiB more`);
  // The heap goes up and down by 5 MiB; jco's own glue would leave 60 MiB behind.
  assert.ok(grown < 10_240, `${grown} KiB more`);
});

test("a port that is taken, too low, or none, is said", async (context) => {
  const bench = await wasmBench(context);
  const taken = createServer().listen(0);
  await once(taken, "listening");
  context.after(() => taken.close());
  const { port } = taken.address() as { port: number };
  const pod = await bench.pod("http-server.c", { name: "taken", container: { ports: [{ containerPort: port }] } });
  await assert.rejects(pod.start(), (error) =>
    /cannot serve on port \d+: something on the node/.test(describeError(error)),
  );
  const first = Number(readFileSync("/proc/sys/net/ipv4/ip_unprivileged_port_start", "utf8"));
  if (first > 1) {
    const low = await bench.pod("http-server.c", { name: "low", container: { ports: [{ containerPort: first - 1 }] } });
    // Also of root: a component has no capabilities.
    await assert.rejects(low.start(), (error) => /ip_unprivileged_port_start allows them/.test(describeError(error)));
  }
  const without = await bench.pod("http-server.c", { name: "without" });
  await assert.rejects(without.start(), /nothing says on which port/);
});

for (const mode of ["isolated", "dense"]) {
  test(`two containers of a pod that would be served on one port: the second is told before it is made, ${mode}`, async (context) => {
    const bench = await wasmBench(context);
    const port = await fixedPort();
    const image = imageOf("http-server.c");
    const pod = await bench.pod("http-server.c", {
      annotations: { "wasm.picolet.io/http": `port=${port}`, "wasm.picolet.io/mode": mode },
      spec: { containers: ["first", "second"].map((name) => ({ name, image, resources: {} })) },
    });
    await pod.start({ name: "first" });
    await assert.rejects(pod.start({ name: "second", attempt: 1 }), {
      reason: "CreateContainerConfigError",
      message: new RegExp(`containers first and second would both be served on port ${port} `),
    });
    const { containers } = await bench.adapter.inspect(pod.desired.uid, new AbortController().signal);
    assert.deepEqual(new Set(containers.map(({ name }) => name)), new Set(["first"]));
  });
}
