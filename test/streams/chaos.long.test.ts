/** Clients, nodes and containers that vanish at each step of a session: nothing is left of it anywhere. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { connect, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { SocketPipe } from "@picolet/kubelet-api/pipes/byte-pipe.ts";
import { PrefixedPipe } from "@picolet/kubelet-api/pipes/prefixed-pipe.ts";
import { readResponseHead } from "@picolet/kubelet-api/pipes/response-head.ts";
import { SpdyCommand } from "@picolet/kubelet-api/streaming/spdy-command.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { CHANNEL } from "@picolet/protocol/tunnel/channel-frames.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { desiredPod } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { heldMemory } from "../support/unit/machine/held-memory.ts";
import { runningProcesses } from "../support/unit/machine/processes.ts";
import { NODE, StreamingNode } from "../support/unit/streaming/streaming-node.ts";

const NEVER = new AbortController().signal;
const PROTOCOL = "v4.channel.k8s.io";
const TIMEOUT = { timeout: 120_000 };
const missing = containerdMissing();
const STREAMS = { stdin: true, stdout: true, stderr: true, tty: false };

let containerd: Containerd;
let node: StreamingNode;

async function dialled(): Promise<TLSSocket> {
  const { port } = node.proxy.endpointOf(NODE);
  const { certificate: cert, privateKey: key } = node.client;
  const socket = connectTls({ host: "127.0.0.1", port, ca: node.authority.ca, cert, key });
  socket.on("error", () => undefined);
  await once(socket, "secureConnect");
  return socket;
}

const execPath = (...command: readonly string[]): string =>
  `/exec/default/web/main?input=1&output=1&error=1&${new URLSearchParams(command.map((word): [string, string] => ["command", word]))}`;

/** A client of the hub, as an API server is one. */
class Client {
  readonly socket: TLSSocket;
  readonly command: SpdyCommand;

  private constructor(socket: TLSSocket, command: SpdyCommand) {
    this.socket = socket;
    this.command = command;
  }

  static exec(...words: readonly string[]): Promise<Client> {
    return Client.open(execPath(...words));
  }

  static async open(path: string): Promise<Client> {
    const socket = await dialled();
    await Client.ask(socket, path);
    const pipe = new SocketPipe(socket);
    const { status, rest } = await readResponseHead(pipe, NEVER);
    assert.equal(status, 101);
    const command = await SpdyCommand.open(
      { clock: systemClock },
      new PrefixedPipe(rest, pipe),
      PROTOCOL,
      STREAMS,
      NEVER,
    );
    return new Client(socket, command);
  }

  static async ask(socket: Socket, path: string): Promise<void> {
    const head = `POST ${path} HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n`;
    socket.write(`${head}x-stream-protocol-version: ${PROTOCOL}\r\ncontent-length: 0\r\n\r\n`);
  }

  async read(): Promise<string | undefined> {
    const piece = await this.command.channel(CHANNEL.stdout)?.read(NEVER);
    return piece === undefined ? undefined : Buffer.from(piece).toString("latin1");
  }
}

/** Processes of the pod whose command line has `marker`. */
const processes = (marker: string): number[] =>
  runningProcesses()
    .filter(({ pid, words }) => pid !== process.pid && words.some((word) => word.includes(marker)))
    .map(({ pid }) => pid);

const sockets = (): number => process.getActiveResourcesInfo().filter((each) => each === "TCPSocketWrap").length;

async function nothingLeft(marker = ""): Promise<void> {
  await node.bench.until("everything to be over", async () => {
    const over = node.streams.sessions === 0 && node.fleet.underWay === 0 && node.proxy.connections === 0;
    return over && sockets() === 0 && (marker === "" || processes(marker).length === 0) ? true : undefined;
  });
}

if (missing !== undefined) {
  test("streams in chaos", { skip: missing }, () => undefined);
} else {
  const program = () => node.fixture.programs.runForever;
  const pod = () => desiredPod(program(), { name: "web" });
  before(async () => {
    containerd = await Containerd.start();
    node = new StreamingNode(new CriFixture(containerd));
    await node.connect();
    await node.run(pod(), program());
  });
  after(async () => {
    await node[Symbol.asyncDispose]();
    await containerd[Symbol.asyncDispose]();
  });

  test("the kubelet's /run: a command's output, or how it failed", TIMEOUT, async () => {
    const run = async (cmd: string): Promise<readonly [number, string]> => {
      const { certificate: cert, privateKey: key } = node.client;
      const { port } = node.proxy.endpointOf(NODE);
      const path = `/run/default/web/main?${new URLSearchParams({ cmd })}`;
      const options = { host: "127.0.0.1", port, path, method: "POST", ca: node.authority.ca, cert, key, agent: false };
      const request = httpsRequest(options);
      request.end();
      const [response] = (await once(request, "response")) as [IncomingMessage];
      let body = "";
      for await (const piece of response) body += String(piece);
      return [response.statusCode ?? 0, body];
    };
    assert.deepEqual(await run("/bin/echo one two"), [200, "one two\n"]);
    const [status, text] = await run("/bin/ls /nowhere");
    assert.equal(status, 500);
    assert.match(text, /\/nowhere: No such file.*\n.*exit code 1/);
    const [missing, why] = await run("/no/such/program");
    assert.equal(missing, 500);
    assert.match(why, /no such file or directory/);
    await nothingLeft();
  });

  test("a client vanishes at each step of an exec", TIMEOUT, async () => {
    const steps: readonly (() => Promise<void>)[] = [
      async () =>
        void connect(node.proxy.endpointOf(NODE).port, "127.0.0.1").on("connect", function (this: Socket) {
          this.destroy();
        }),
      async () => void (await dialled()).destroy(),
      async () => {
        const socket = await dialled();
        socket.write("POST /exec/default/we");
        socket.destroy();
      },
      async () => {
        const socket = await dialled();
        await Client.ask(socket, execPath("/bin/sh"));
        socket.destroy();
      },
      async () => {
        const socket = await dialled();
        await Client.ask(socket, execPath("/bin/sh"));
        await once(socket, "data");
        socket.destroy();
      },
      async () => void (await Client.exec("/bin/sh", "-c", "read marker1")).socket.destroy(),
      async () => {
        const client = await Client.exec("/bin/sh", "-c", "echo marker1; cat");
        await client.command.channel(CHANNEL.stdin)?.write(Buffer.alloc(100_000), NEVER);
        assert.match((await client.read()) ?? "", /^marker1/);
        client.socket.destroy();
      },
      async () => {
        const client = await Client.exec("/bin/sh", "-c", "cat; echo marker1");
        client.command.channel(CHANNEL.stdin)?.end();
        while ((await client.read()) !== undefined);
        client.socket.destroy();
      },
    ];
    for (const step of steps) {
      await step();
      await nothingLeft("marker1");
    }
  });

  test("the tunnel breaks in the middle of a session: its client is told, the command ends", TIMEOUT, async () => {
    const client = await Client.exec("/bin/sh", "-c", "echo started; cat # marker2");
    assert.equal(await client.read(), "started\n");
    node.fleet.disconnect("edge-1");
    assert.equal(await client.read(), undefined);
    client.socket.destroy();
    await nothingLeft("marker2");
    await node.connect();
  });

  test("a container that ends takes its sessions along, with a status", TIMEOUT, async () => {
    const victim = desiredPod(program(), { name: "victim" });
    await node.run(victim, program());
    const [container] = (await node.bench.inspect(victim)).containers;
    const command = ["/bin/sh", "-c", "echo started; sleep 3600"];
    const client = await Client.open(execPath(...command).replace("/web/", "/victim/"));
    assert.equal(await client.read(), "started\n");
    await node.fixture.killWorkload(container?.id ?? "", "SIGKILL");
    const status = await client.command.channel(CHANNEL.error)?.read(NEVER);
    assert.match(Buffer.from(status ?? []).toString(), /exit code 137/);
    client.socket.destroy();
    await nothingLeft();
    node.forget(victim);
  });

  test("the runtime dies in the middle of a session", TIMEOUT, async () => {
    const client = await Client.exec("/bin/sh", "-c", "echo started; cat");
    assert.equal(await client.read(), "started\n");
    await containerd.killDaemon();
    assert.equal(await client.read(), undefined);
    client.socket.destroy();
    await nothingLeft();
    await containerd.startDaemon();
    await node.bench.until(
      "the runtime to be back",
      async () =>
        await node.look(pod()).then(
          () => true,
          () => undefined,
        ),
    );
  });

  test("ten megabytes a second through an exec whose reader is slow: nothing grows", TIMEOUT, async () => {
    const client = await Client.exec(
      "/bin/sh",
      "-c",
      "yes 0123456789012345678901234567890123456789 | head -c 100000000",
    );
    await client.read();
    const start = heldMemory();
    for (let turn = 0; turn < 2000; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    const stopped = heldMemory();
    // Both ends of TLS, the hub's and the agent's buffers are in this process.
    assert.ok(stopped.buffers - start.buffers < 4 * MEBIBYTE, `${stopped.buffers - start.buffers}`);
    let bytes = 0;
    for (let piece = await client.read(); piece !== undefined; piece = await client.read()) bytes += piece.length;
    assert.ok(bytes > 99_000_000);
    client.socket.destroy();
    await nothingLeft();
  });

  test("a hundred sessions one after the other leave no memory behind", TIMEOUT, async () => {
    const round = async (): Promise<void> => {
      const client = await Client.exec("/bin/sh", "-c", "echo one");
      while ((await client.read()) !== undefined);
      client.socket.destroy();
    };
    for (let index = 0; index < 20; index += 1) await round();
    await nothingLeft();
    node.fleet.pairs.length = 0;
    const before = heldMemory().heap;
    for (let index = 0; index < 100; index += 1) await round();
    await nothingLeft();
    node.fleet.pairs.length = 0;
    const grown = heldMemory().heap - before;
    assert.ok(grown < 2 * MEBIBYTE, `${grown} bytes`);
  });
}
