import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { test } from "node:test";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { ConnectionGate } from "./connection-gate.ts";

/**
 * A port behind a gate, which takes the path of a request as the client's name: `/owner`, `/!owner` for one that is
 * protected.
 */
class Port implements AsyncDisposable {
  readonly log = new RecordedLog();
  readonly gate: ConnectionGate;
  readonly server: Server;
  readonly #sockets: Socket[] = [];

  constructor(limits: { readonly maxConnections: number; readonly maxPending: number }) {
    this.gate = new ConnectionGate({ clock: new VirtualClock(), log: this.log }, { name: "test", ...limits });
    this.server = createServer((request: IncomingMessage, response) => {
      const owner = (request.url ?? "").slice(1);
      if (owner !== "") this.gate.admit(request.socket, owner, owner.startsWith("!"));
      response.end("ok");
    });
    this.gate.guard(this.server);
  }

  async open(address: string): Promise<Client> {
    if (!this.server.listening) await once(this.server.listen(0, "127.0.0.1"), "listening");
    const { port } = this.server.address() as AddressInfo;
    const socket = connect({ port, host: "127.0.0.1", localAddress: address });
    this.#sockets.push(socket);
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return new Client(socket);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

class Client {
  readonly closed: Promise<unknown>;
  readonly #socket: Socket;
  readonly #chunks: string[] = [];

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (data) => this.#chunks.push(data.toString()));
    this.closed = once(socket, "close");
  }

  /** Resolves with whether there was an answer. */
  async ask(path = "/"): Promise<boolean> {
    this.#chunks.length = 0;
    this.#socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await Promise.race([once(this.#socket, "data"), this.closed]);
    return this.#chunks.join("").startsWith("HTTP/1.1 200");
  }
}

test("a network that opens more than there is room for closes its own oldest, and no one else's", async () => {
  await using port = new Port({ maxConnections: 100, maxPending: 4 });
  const early = await port.open("127.0.0.9");
  assert.equal(await early.ask(), true);
  const flood: Client[] = [];
  for (let n = 0; n < 20; n += 1) flood.push(await port.open("127.0.0.2"));
  const other = await port.open("127.0.0.3");
  assert.equal(await other.ask(), true);
  assert.equal(await early.ask(), true, "it was the oldest of all");
  await Promise.all(flood.slice(0, 17).map(({ closed }) => closed));
  assert.deepEqual(port.gate.load, { connections: 4, pending: 4 });
  assert.equal(await flood.at(-1)?.ask(), true);
  assert.deepEqual(port.log.problems, ["too many connections: the oldest of the largest client were closed"]);
});

test("who has shown who it is counts for its identity; on a full port the largest gives way, the protected never", async () => {
  await using port = new Port({ maxConnections: 9, maxPending: 100 });
  const admin = await Promise.all(Array.from({ length: 4 }, () => port.open("127.0.0.2")));
  for (const each of admin) assert.equal(await each.ask("/!admin"), true);
  const many: Client[] = [];
  for (let n = 0; n < 3; n += 1) {
    const client = await port.open("127.0.0.2");
    many.push(client);
    assert.equal(await client.ask("/many"), true);
  }
  const few: Client[] = [];
  for (let n = 0; n < 2; n += 1) {
    const client = await port.open("127.0.0.2");
    few.push(client);
    assert.equal(await client.ask("/few"), true);
  }
  assert.deepEqual(port.gate.load, { connections: 9, pending: 0 });
  const next = await port.open("127.0.0.2");
  await many[0]?.closed;
  assert.equal(await next.ask("/new"), true);
  for (const each of [...admin, ...few, ...many.slice(1)]) assert.equal(await each.ask("/!admin"), true);
});

test("connections that end leave nothing behind", async () => {
  await using port = new Port({ maxConnections: 10, maxPending: 10 });
  const clients = await Promise.all(Array.from({ length: 5 }, () => port.open("127.0.0.2")));
  for (const client of clients) await client.ask("/a");
  port.server.closeAllConnections();
  await Promise.all(clients.map(({ closed }) => closed));
  const last = await port.open("127.0.0.2");
  await last.ask();
  assert.deepEqual(port.gate.load, { connections: 1, pending: 1 });
});
