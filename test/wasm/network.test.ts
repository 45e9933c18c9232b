/** The network as components have it: real components in real processes, and peers on the loopback. */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { type TestContext, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { wasmBench } from "../support/wasm/wasm-bench.ts";

async function peer(context: TestContext, handler: (socket: Socket) => void, host = "127.0.0.1"): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, handler);
  server.listen(0, host);
  await once(server, "listening");
  context.after(() => server.close());
  return server;
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

/** The output of `net.c` with these arguments, in a pod with this network. */
async function said(context: TestContext, network: string | undefined, ...args: readonly string[]): Promise<string[]> {
  const { pod } = await wasmBench(context);
  const annotations: Record<string, string> = network === undefined ? {} : { "wasm.picolet.io/network": network };
  const made = await pod("net.c", { annotations });
  const container = await made.start({ args });
  const { exitCode, message } = await made.exit(container.id);
  assert.equal(exitCode, 0, message);
  return made.text(container, 1);
}

test("a component talks to whom its pod names, and to nobody else", async (context) => {
  const answer = (socket: Socket) => socket.on("data", (chunk: Buffer) => socket.end(`${chunk}!`));
  const server = await peer(context, answer);
  const other = await peer(context, answer);
  const elsewhere = await peer(context, answer, "127.0.0.2");
  const [port, otherPort] = [String(portOf(server)), String(portOf(other))];
  const udp = createSocket("udp4").bind(0, "127.0.0.1");
  await once(udp, "listening");
  context.after(() => udp.close());
  udp.on("message", (data, from) => udp.send(`${data}?`, from.port, from.address));
  const udpPort = String(udp.address().port);
  const network = `tcp://localhost:${port}; udp://127.0.0.1:${udpPort}; tcp://127.0.0.1:1`;
  const lines = await said(
    context,
    network,
    ...["fetch", "localhost", port, "hello"],
    ...["fetch", "127.0.0.1", port, "again"],
    ...["ask", "127.0.0.1", udpPort, "what"],
    ...["connect", "127.0.0.1", otherPort],
    ...["connect", "127.0.0.2", String(portOf(elsewhere))],
    ...["connect", "169.254.169.254", "80"],
    ...["connect", "127.0.0.1", "1"],
    ...["lookup", "example.com"],
    ...["echo", "8080", "1"],
  );
  assert.deepEqual(lines, [
    "got: hello!",
    "got: again!",
    "answer: what?",
    "connect: access-denied",
    "connect: access-denied",
    "connect: access-denied",
    "connect: connection-refused",
    "lookup: access-denied",
    "bind: access-denied",
  ]);
});

test("a name that leads where the pod names nothing leads nowhere", async (context) => {
  const server = await peer(context, (socket) => socket.end("reached"));
  const port = String(portOf(server));
  const lines = await said(
    context,
    `tcp://*:*; tcp://10.0.0.0/8:*`,
    ...["fetch", "localhost", port, "x", "fetch", "127.1", port, "x", "fetch", "2130706433", port, "x"],
    ...["connect", "0.0.0.0", port, "connect", "127.0.0.1", port],
  );
  assert.deepEqual(lines, [
    "connect: access-denied",
    "connect: access-denied",
    "connect: access-denied",
    "connect: invalid-argument",
    "connect: access-denied",
  ]);
});

test("the node itself is reached by its own address only where that is named", async (context) => {
  const own = Object.values(networkInterfaces())
    .flatMap((each) => each ?? [])
    .find(({ family, internal }) => family === "IPv4" && !internal)?.address;
  if (own === undefined) return context.skip("this machine has no address but the loopback's");
  // The port has no listener: a refusal by the system shows that the connection was tried.
  const closed = ["connect", own, "1"];
  assert.deepEqual(await said(context, "tcp://*:*; tcp://0.0.0.0/0:*", ...closed), ["connect: access-denied"]);
  assert.deepEqual(await said(context, `tcp://${own}:1`, ...closed), ["connect: connection-refused"]);
});

test("without a network of its own a component has none", async (context) => {
  const lines = await said(
    context,
    undefined,
    ...["connect", "127.0.0.1", "80", "ask", "127.0.0.1", "53", "x", "lookup", "localhost", "echo", "8080", "1"],
  );
  assert.deepEqual(lines, [
    "create: access-denied",
    "create: access-denied",
    "lookup: access-denied",
    "create: access-denied",
  ]);
});

test("a component serves on the ports that its pod opens", async (context) => {
  const { pod } = await wasmBench(context);
  const port = await fixedPort();
  const annotations = { "wasm.picolet.io/network": `listen tcp:${port}` };
  const made = await pod("net.c", { annotations });
  const container = await made.start({ args: ["echo", String(port), "3"] });
  assert.deepEqual(await made.text(container, 1), ["listening"]);
  for (const text of ["one", "two".repeat(100_000), "three"]) {
    const client = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    const received: Buffer[] = [];
    client.on("data", (chunk: Buffer) => received.push(chunk));
    client.end(text);
    await once(client, "end");
    assert.equal(Buffer.concat(received).toString(), text);
  }
  assert.equal((await made.exit(container.id)).exitCode, 0);
  assert.deepEqual(await made.text(container, 2), ["listening", "echoed 3"]);
});

test("a component that hoards sockets is told that there are no more", async (context) => {
  assert.deepEqual(await said(context, "tcp://192.0.2.1:80", "hoard"), ["128 sockets, then new-socket-limit"]);
});

test("an annotation that grants nothing sensible starts nothing", async (context) => {
  const { pod } = await wasmBench(context);
  const annotations = { "wasm.picolet.io/network": "tcp://a b; ftp://x:1", "wasm.picolet.io/netwrok": "" };
  const made = await pod("net.c", { annotations });
  await assert.rejects(made.start({ args: ["hoard"] }), (error: unknown) => {
    assert.ok(isPicoletError(error));
    assert.equal(error.reason, "CreateContainerConfigError");
    assert.match(
      error.message,
      /"tcp:\/\/a b": write .*"ftp:\/\/x:1": there is no protocol.*netwrok: there is no such/,
    );
    return true;
  });
});
