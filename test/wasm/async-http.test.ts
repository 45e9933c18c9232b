/** wasi:http of WASI 0.3: a client is bound by the pod's rules, a server is reached on the container's port. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, request } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const CLIENT = "localhost/async-client:1";
const SERVER = "localhost/async-server:1";
const WRITER = "localhost/async-writer:1";
const PROXY = "localhost/async-proxy:1";
const NETWORK = "wasm.picolet.io/network";
/** Error codes of wasi:http/types.error-code, by their place in it. */
const ERROR = { connectionRefused: 6, requestDenied: 15 };

let runtime: WasmRuntime;
let adapter: WasmAdapter;
let pods = 0;
const peer = createServer((asked, answer) => {
  let bytes = 0;
  asked.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
  });
  asked.on("end", () => {
    const { method, url, headers, trailers } = asked;
    answer.writeHead(201, { "x-told": `${method} ${url} ${headers["x-asked"]} ${bytes} ${trailers["x-sum"]}` });
    answer.end("a".repeat(50_000));
  });
});

before(async () => {
  runtime = await WasmRuntime.create({ p3: true });
  adapter = runtime.adapter();
  await adapter.images.import(await testComponent("async-client.c"), CLIENT, NEVER);
  await adapter.images.import(await testComponent("async-server.c"), SERVER, NEVER);
  await new Promise<void>((resolve) => void peer.listen(0, "127.0.0.1", resolve));
});

after(async () => {
  peer.close();
  peer.closeAllConnections();
  await adapter?.[Symbol.asyncDispose]();
  await runtime?.[Symbol.asyncDispose]();
});

const portOf = (server: typeof peer): number => (server.address() as AddressInfo).port;

const logOf = ({ logPath }: ObservedContainer): string =>
  readFileSync(logPath, "utf8").replace(/^\S+ std\w+ ([PF]) (.*)\n/gm, (_, tag, text) =>
    tag === "P" ? text : `${text}\n`,
  );

/** The answer in a pod with this rule. */
async function asked(rule: string, ...args: readonly string[]): Promise<string> {
  pods += 1;
  const annotations = { [NETWORK]: rule };
  await using pod = await WasmPod.create(runtime, adapter, { name: `asks-${pods}`, image: CLIENT, annotations });
  const container = await pod.start({ args });
  const exit = await pod.exit(container.id);
  assert.equal(exit.exitCode, 0, exit.message);
  return logOf(container);
}

test("it asks whom its pod names, with bodies and trailers both ways", async () => {
  const authority = `127.0.0.1:${portOf(peer)}`;
  const body = "a".repeat(50_000);
  const rule = `http://${authority}`;
  const told = await asked(rule, "GET", authority, "/x");
  assert.equal(told, `201 GET /x yes 0 undefined\n${body}\nreceived ok\nsent ok\n`);
  const sent = await asked(rule, "POST", authority, "/y", "0123456789", "2000");
  assert.equal(sent, `201 POST /y yes 20000 42\n${body}\nreceived ok\nsent ok\n`);
});

test("it asks nobody else, and hears why", async () => {
  const authority = `127.0.0.1:${portOf(peer)}`;
  for (const rule of ["http://127.0.0.1:1", `https://${authority}`, `POST http://${authority}`]) {
    const told = await asked(rule, "GET", authority, "/x");
    assert.equal(told, `answer error ${ERROR.requestDenied}\nsent error ${ERROR.requestDenied}\n`, rule);
  }
  const closed = createServer();
  await new Promise<void>((resolve) => void closed.listen(0, "127.0.0.1", resolve));
  const gone = `127.0.0.1:${portOf(closed)}`;
  await new Promise((resolve) => void closed.close(resolve));
  assert.match(
    await asked(`http://${gone}`, "GET", gone, "/x"),
    new RegExp(`^answer error ${ERROR.connectionRefused}$`, "m"),
  );
});

test("without a network it is not started", async () => {
  await using pod = await WasmPod.create(runtime, adapter, { name: "unasked", image: CLIENT });
  await assert.rejects(pod.start({ args: ["GET"] }), (error) => {
    assert.match(
      describeError(error),
      /imports what its pod does not grant: wasi:http\/types@0\.3\.0, wasi:http\/client@0\.3\.0/,
    );
    return true;
  });
});

interface Answer {
  readonly status: number | undefined;
  readonly text: string;
  readonly message: IncomingMessage;
}

function fetched(port: number, path: string, body = "", headers: Record<string, string> = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const method = body === "" ? "GET" : "POST";
    const own = request({ port, host: "127.0.0.1", path, method, headers, agent: false }, (message) => {
      const chunks: Buffer[] = [];
      message.on("data", (chunk: Buffer) => void chunks.push(chunk));
      message.on("error", reject);
      message.on("end", () => resolve({ status: message.statusCode, text: Buffer.concat(chunks).toString(), message }));
    });
    own.on("error", reject);
    own.end(body);
  });
}

/** With a time that nothing which is to end takes. */
async function served(
  image: string,
  more: Record<string, string> = {},
): Promise<{ readonly pod: WasmPod; readonly port: number }> {
  pods += 1;
  const port = await fixedPort();
  const container = { ports: [{ containerPort: port, protocol: "TCP" }] };
  const annotations = { "wasm.picolet.io/http": "timeout=60s", ...more };
  const pod = await WasmPod.create(runtime, adapter, { name: `served-${pods}`, image, container, annotations });
  return { pod, port };
}

test("it is served, many requests at a time, and lives on when one of them traps", async () => {
  const { pod, port } = await served(SERVER);
  await using ended = pod;
  const started = await ended.start();
  const hello = await fetched(port, "/");
  assert.deepEqual([hello.status, hello.text, hello.message.headers["x-by"]], [201, "hello by 0.3\n", "async"]);
  assert.equal(hello.message.trailers["x-sum"], "42");
  const bodies = Array.from({ length: 12 }, (_, index) => String(index).repeat(30_000));
  const echoed = await Promise.all(bodies.map((body) => fetched(port, "/echo", body)));
  for (const [index, { status, text }] of echoed.entries())
    assert.ok(status === 200 && text === bodies[index], `${index}`);
  assert.equal((await fetched(port, "/long", "", { "x-times": "100" })).text, "x".repeat(409_600));
  assert.equal((await fetched(port, "/trap")).status, 500);
  assert.equal((await fetched(port, "/fail")).status, 504, "by the component's own error code");
  assert.equal((await fetched(port, "/")).text, "hello by 0.3\n");
  assert.match(logOf(started), /^picolet: the request GET "\/trap" failed: wasm trap: (?!wasm trap).*unreachable/m);
});

test("it may give its answer and write the body when it likes, but for a write that waits before the answer is given", async () => {
  const { pod, port } = await served(SERVER);
  await using ended = pod;
  const started = await ended.start();
  for (const [path, text] of [
    ["/after", "hello by 0.3\n"],
    ["/begun", "begun\nmore\nhello by 0.3\n"],
    ["/callback", "begun\nmore\nhello by 0.3\n"],
  ] as const) {
    const { status, text: told, message } = await fetched(port, path);
    assert.deepEqual([status, told, message.trailers["x-sum"]], [201, text, "42"], path);
  }
  // A value cannot be read before it is granted.
  assert.equal((await fetched(port, "/before")).status, 500);
  assert.match(logOf(started), /^picolet: the request GET "\/before" failed: wasm trap: deadlock/m);
  // Once it has answered, it is cut off.
  await assert.rejects(fetched(port, "/late"));
  assert.equal((await fetched(port, "/")).text, "hello by 0.3\n");
  assert.match(logOf(started), /^picolet: the request GET "\/late" failed: wasm trap: .*unreachable/m);
});

test("a handler that has a stack of its own, and no callback, writes by calls that wait", async () => {
  await adapter.images.import(await testComponent("async-writer.c"), WRITER, NEVER);
  const { pod, port } = await served(WRITER);
  await using ended = pod;
  await ended.start();
  const paths = ["/", "/1234567890"];
  const told = await Promise.all(paths.map((path) => fetched(port, path)));
  for (const [index, { status, text }] of told.entries())
    assert.ok(status === 200 && text === "x".repeat(4096 * (paths[index] ?? "").length), `${index}`);
  const grows = runtime.log.entries.filter(({ message }) => message.includes("glue of jco's own"));
  assert.deepEqual(grows, []);
});

test("one that is served connects to whom its pod names while it answers, and without a network to nobody", async () => {
  await adapter.images.import(await testComponent("async-proxy.c"), PROXY, NEVER);
  const reached = createServer((_, answer) => void answer.end("reached"));
  reached.on("clientError", (_, socket) => void socket.end("heard"));
  await new Promise<void>((resolve) => void reached.listen(0, "127.0.0.1", resolve));
  const named = portOf(reached);
  try {
    for (const [more, texts] of [
      [{ [NETWORK]: `tcp://127.0.0.1:${named}` }, ["heard", "connect: 0"]],
      [{}, ["create: 0", "create: 0"]],
    ] as const) {
      const { pod, port } = await served(PROXY, more);
      await using ended = pod;
      await ended.start();
      const told = await Promise.all([`/tcp/${named}`, "/tcp/2"].map((path) => fetched(port, path)));
      assert.deepEqual(
        told.map(({ text }) => text),
        texts,
      );
    }
  } finally {
    reached.close();
  }
});
