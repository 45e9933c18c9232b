import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { SocketPipe } from "@picolet/kubelet-api/pipes/byte-pipe.ts";
import { PrefixedPipe } from "@picolet/kubelet-api/pipes/prefixed-pipe.ts";
import { readResponseHead } from "@picolet/kubelet-api/pipes/response-head.ts";
import { SpdyCommand } from "@picolet/kubelet-api/streaming/spdy-command.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { CHANNEL, type Channel, ChannelFrameReader, channelFrame } from "@picolet/protocol/tunnel/channel-frames.ts";
import type { IncomingStream, TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { fixedPorts } from "@picolet/test/support/unit/machine/fixed-port.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { KubeletHub } from "@picolet/test/support/unit/streaming/kubelet-hub.ts";

const NEVER = new AbortController().signal;
const ATTACH = "/attach/default/web/main?input=1&output=1&error=1";
const STREAMS = { stdin: true, stdout: true, stderr: true, tty: false };

function hubOf(t: TestContext, ...args: ConstructorParameters<typeof KubeletHub>): KubeletHub {
  const hub = new KubeletHub(...args);
  t.after(() => hub[Symbol.asyncDispose]());
  return hub;
}

const text = (value: string): Uint8Array => Buffer.from(value);

/** An agent that answers every GET with what it was asked. */
const echoPath = (stream: IncomingStream): void => {
  void (async () => {
    const accepted = stream.accept({ status: 200, contentType: "text/plain" });
    await accepted.write(text((stream.params as { path: string }).path), NEVER);
    accepted.end();
  })();
};

/** An agent whose containers speak in channels: it echoes its input, then ends with 3. */
const parrot = (stream: IncomingStream): void => {
  void (async () => {
    const accepted = stream.accept({ mode: "channels" });
    await accepted.write(channelFrame(CHANNEL.stdout, text("hello ")), NEVER);
    const heard = await untilClosed(accepted, CHANNEL.stdin);
    await accepted.write(channelFrame(CHANNEL.stdout, text(heard)), NEVER);
    await accepted.write(channelFrame(CHANNEL.stderr, text("alas")), NEVER);
    const status = { metadata: {}, status: "Failure", reason: "NonZeroExitCode", message: "exit 3" };
    await accepted.write(channelFrame(CHANNEL.error, text(JSON.stringify(status))), NEVER);
    accepted.end();
  })().catch(() => undefined);
};

/** Reads `channel` until it is closed, or until a line ends. */
async function untilClosed(stream: TunnelStream, channel: Channel): Promise<string> {
  const reader = new ChannelFrameReader();
  let heard = "";
  for (;;) {
    const bytes = await stream.read(NEVER);
    if (bytes === undefined) return heard;
    for (const piece of reader.push(bytes)) {
      if (piece.channel !== channel) continue;
      if (piece.bytes.length === 0) return heard;
      heard += Buffer.from(piece.bytes).toString();
      if (heard.endsWith("\n")) return heard;
    }
  }
}

test("a client with the cluster's certificate or a valid token gets in, no other", async (t) => {
  const hub = hubOf(t);
  hub.fleet.connect("a", { kubelet: echoPath });
  assert.deepEqual(await hub.ask("a", "/pods"), { status: 200, contentType: "text/plain", body: "/pods" });
  const nobody = { cert: undefined, key: undefined };
  assert.equal((await hub.ask("a", "/pods", nobody)).status, 401);
  const bearer = (token: string) => ({ ...nobody, headers: { authorization: `Bearer ${token}` } });
  assert.equal((await hub.ask("a", "/metrics/resource", bearer("good"))).status, 200);
  assert.equal((await hub.ask("a", "/metrics/resource", bearer("bad"))).status, 401);
  const stranger = new TlsAuthority("stranger").issueClient([{ type: "CN", value: "kube-apiserver-kubelet-client" }]);
  const withStranger = { cert: stranger.certificate, key: stranger.privateKey };
  assert.equal((await hub.ask("a", "/pods", withStranger)).status, 401);
  const basic = { ...nobody, headers: { authorization: "Basic Z29vZA==" } };
  assert.equal((await hub.ask("a", "/pods", basic)).status, 401);
});

test("rights are asked for by the kubelet's names, finer ones first, and remembered", async (t) => {
  const clock = new VirtualClock();
  const hub = hubOf(t, {}, clock);
  hub.fleet.connect("a", { kubelet: echoPath });
  for (const path of ["/stats/summary", "/metrics", "/logs/x", "/pods", "/healthz", "/configz", "/spec", "/anything"]) {
    await hub.ask("a", path);
  }
  const user = "kube-apiserver-kubelet-client get";
  const asked = ["stats", "metrics", "log", "pods", "healthz", "configz", "spec", "proxy"];
  assert.deepEqual(
    hub.questions.splice(0),
    asked.map((each) => `${user} ${each}`),
  );
  await hub.ask("a", "/stats/summary");
  assert.deepEqual(hub.questions, [], "the answer is remembered");
  await clock.advance(seconds(301));
  hub.allows = (_, { subresource }) => subresource === "proxy";
  assert.equal((await hub.ask("a", "/pods")).status, 200);
  assert.deepEqual(hub.questions.splice(0), [`${user} pods`, `${user} proxy`]);
  const refused = await hub.ask("a", "/stats/summary");
  assert.equal(refused.status, 403);
  assert.match(
    refused.body,
    /Forbidden \(user=kube-apiserver-kubelet-client, verb=get, resource=nodes, subresource\(s\)=\[stats\]\)/,
  );
  await hub.ask("a", "/run/default/web/main?cmd=ls", { method: "POST" });
  assert.equal(hub.questions.at(-1), "kube-apiserver-kubelet-client create proxy");
});

test("each node has its port; one that is away keeps it and says since when", async (t) => {
  const clock = new VirtualClock(Date.parse("2026-11-20T12:00:00Z"));
  const hub = hubOf(t, {}, clock);
  hub.fleet.connect("a", { kubelet: echoPath });
  hub.fleet.connect("b", { kubelet: echoPath });
  const [a, b] = [await hub.port("a"), await hub.port("b")];
  assert.notEqual(a, b);
  hub.fleet.disconnect("a");
  await clock.settle();
  const away = await hub.ask("a", "/pods");
  assert.deepEqual([away.status, away.body], [503, "the agent of node a is away since 2026-11-20T12:00:00.000Z\n"]);
  // An API server keeps the text of 503 to itself when it is about logs.
  assert.equal((await hub.ask("a", "/containerLogs/default/web/main")).status, 502);
  assert.equal((await hub.ask("b", "/pods")).status, 200);
  hub.fleet.connect("a", { kubelet: echoPath });
  assert.equal((await hub.ask("a", "/pods")).status, 200);
  assert.equal(await hub.port("a"), a);
});

test("ports come from the range, and beyond it no node is served", async (t) => {
  const first = await fixedPorts(3);
  const other = hubOf(t, { ports: { first, last: first } });
  other.fleet.connect("x", {});
  // The first of the range is taken by that one.
  assert.equal(await other.port("x"), first);
  const hub = hubOf(t, { ports: { first, last: first + 2 } });
  hub.fleet.connect("a", { kubelet: echoPath });
  const port = await hub.port("a");
  assert.ok(port > first && port <= first + 2, `${port}`);
  hub.fleet.connect("b", { kubelet: echoPath });
  await hub.port("b");
  hub.fleet.connect("c", { kubelet: echoPath });
  while (hub.log.entries.length === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(hub.log.entries[0]?.message, "cannot listen as the kubelet of a node");
  assert.equal(hub.log.entries[0]?.fields.node, "c");
  assert.throws(() => hub.proxy.endpointOf("c"), /cannot tell the kubelet endpoint of node c yet/);
  assert.equal((await hub.ask("a", "/pods")).status, 200, "the others are served");
});

test("a node gets the port again that it had at the hub before, at once, unless that one is taken", async (t) => {
  const everywhere = { host: undefined };
  const before = hubOf(t, everywhere);
  const { port } = before.proxy.endpointOf("a");
  await before[Symbol.asyncDispose]();
  const hub = hubOf(t, everywhere);
  assert.equal(hub.proxy.endpointOf("a", port).port, port);
  hub.fleet.connect("a", { kubelet: echoPath });
  assert.equal((await hub.ask("a", "/pods")).status, 200);
  const other = hubOf(t, everywhere);
  assert.throws(() => other.proxy.endpointOf("a", port), /cannot tell the kubelet endpoint of node a yet/);
  assert.notEqual(await other.port("a"), port);
  assert.notEqual(other.proxy.endpointOf("b", 1).port, 1, "none that may be another program's by right");
});

test("logs are streamed as they come; refusals have the code that API servers show", async (t) => {
  const hub = hubOf(t);
  const opened = Promise.withResolvers<TunnelStream>();
  let params: unknown;
  const refuse = (code: string, message: string) => (stream: IncomingStream) => stream.reject({ code, message });
  hub.fleet.connect("a", {
    logs: (stream) => {
      params = stream.params;
      opened.resolve(stream.accept({}));
    },
  });
  const asking = hub.ask("a", "/containerLogs/kube-system/web/main?follow=true&tailLines=5");
  const stream = await opened.promise;
  assert.deepEqual(params, {
    ...{ namespace: "kube-system", pod: "web", uid: "", container: "main" },
    query: { follow: "true", tailLines: "5" },
  });
  await stream.write(text("one\n"), NEVER);
  await stream.write(text("two\n"), NEVER);
  stream.end();
  assert.deepEqual(await asking, { status: 200, contentType: "text/plain", body: "one\ntwo\n" });
  const waiting = 'container "main" in pod "web" is waiting to start: ContainerCreating';
  for (const [code, message, status] of [
    ["unavailable", waiting, 400],
    ["not_found", 'previous terminated container "main" in pod "web" not found', 400],
    ["not_found", 'pods "web" not found', 404],
    ["invalid", "tailLines: Invalid value", 400],
    ["unavailable", "the tunnel is gone", 502],
    ["resource_exhausted", "too many", 429],
  ] as const) {
    hub.fleet.connect("a", { logs: refuse(code, message) });
    const answer = await hub.ask("a", "/containerLogs/default/web/main");
    assert.deepEqual([answer.status, answer.body], [status, `${message}\n`]);
  }
});

test("what the hub itself refuses", async (t) => {
  const hub = hubOf(t);
  hub.fleet.connect("a", { kubelet: echoPath });
  for (const [path, method, status] of [
    ["/exec/default/web/main?output=1&command=ls", "GET", 400],
    ["/exec/default/web/main", "POST", 400],
    ["/portForward/default", "GET", 404],
    ["/portForward/default/web?port=70000", "GET", 400],
    ["/containerLogs/default/web", "GET", 404],
    ["/pods", "DELETE", 405],
    ["/%zz", "GET", 400],
  ] as const) {
    assert.equal((await hub.ask("a", path, { method })).status, status, `${method} ${path}`);
  }
  assert.equal(
    (await hub.ask("a", "/exec/default/web/main?output=1", { headers: { connection: "Upgrade", upgrade: "h2c" } }))
      .status,
    400,
  );
});

test("attach over a WebSocket to a container that speaks in channels: v5, v4, base64", async (t) => {
  const hub = hubOf(t);
  hub.fleet.connect("a", { attach: parrot });
  for (const protocol of ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"]) {
    const base64 = protocol.includes("base64");
    const socket = await hub.webSocket("a", ATTACH, [protocol]);
    const heard = ["", "", "", ""];
    socket.on("message", (data: Buffer) => {
      const channel = base64 ? Number(data.toString()[0]) : (data[0] ?? 0);
      heard[channel] += base64
        ? Buffer.from(data.toString().slice(1), "base64").toString()
        : data.subarray(1).toString();
    });
    await once(socket, "open");
    assert.equal(socket.protocol, protocol);
    if (base64) socket.send(`0${Buffer.from("you\n").toString("base64")}`);
    else socket.send(Buffer.from(protocol.startsWith("v5") ? "\0you" : "\0you\n"));
    // v5 can say that there is no more input.
    if (protocol.startsWith("v5")) socket.send(Buffer.of(255, 0));
    const [code] = await once(socket, "close");
    assert.equal(code, 1000);
    assert.deepEqual(heard.slice(1, 3), [`hello you${protocol.startsWith("v5") ? "" : "\n"}`, "alas"]);
    assert.equal(JSON.parse(heard[3] ?? "").message, "exit 3");
  }
  await idle(hub);
});

test("attach over SPDY to a container that speaks in channels: v4 with a status, v1 with a message", async (t) => {
  const hub = hubOf(t);
  hub.fleet.connect("a", { attach: parrot });
  for (const protocol of ["v4.channel.k8s.io", "channel.k8s.io"]) {
    const socket = await hub.socket("a");
    const version = protocol.startsWith("v4") ? `x-stream-protocol-version: ${protocol}\r\n` : "";
    socket.write(
      `POST ${ATTACH} HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n${version}content-length: 0\r\n\r\n`,
    );
    const pipe = new SocketPipe(socket);
    const { status, headers, rest } = await readResponseHead(pipe, NEVER);
    assert.deepEqual([status, headers.upgrade, headers["x-stream-protocol-version"]], [101, "SPDY/3.1", protocol]);
    using command = await SpdyCommand.open(
      { clock: systemClock },
      new PrefixedPipe(rest, pipe),
      protocol,
      STREAMS,
      NEVER,
    );
    const all = async (channel: Channel): Promise<string> => {
      let heard = "";
      for (
        let piece = await command.channel(channel)?.read(NEVER);
        piece !== undefined;
        piece = await command.channel(channel)?.read(NEVER)
      ) {
        heard += Buffer.from(piece).toString();
      }
      return heard;
    };
    await command.channel(CHANNEL.stdin)?.write(text("you"), NEVER);
    command.channel(CHANNEL.stdin)?.end();
    assert.equal(await all(CHANNEL.stdout), "hello you");
    assert.equal(await all(CHANNEL.stderr), "alas");
    assert.equal(JSON.parse(await all(CHANNEL.error)).message, "exit 3");
  }
  await idle(hub);
});

test("after any input of a WebSocket client the session ends in order or goes on", async (t) => {
  const hub = hubOf(t);
  hub.fleet.connect("a", { attach: parrot });
  const messages = [
    ["", Buffer.of(), Buffer.of(9, 1, 2), Buffer.of(255), Buffer.of(255, 7), Buffer.of(4, 0x7b), "text"],
    [Buffer.alloc(2 * 1024 * 1024)],
    ["9", "0!!!not base64!!!", "0", "\uffff"],
  ];
  for (const protocol of ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"]) {
    for (const [index, sent] of messages.entries()) {
      const socket = await hub.webSocket("a", ATTACH, [protocol]);
      await once(socket, "open");
      for (const message of sent) socket.send(message);
      const tooLong = index === 1;
      if (!tooLong)
        socket.send(protocol.includes("base64") ? `0${Buffer.from("x\n").toString("base64")}` : Buffer.from("\0x\n"));
      const [code] = await once(socket, "close");
      assert.equal(code, tooLong ? 1009 : 1000, protocol);
    }
  }
  await idle(hub);
});

test("a command whose node is lost ends with a status that says so", async (t) => {
  const hub = hubOf(t);
  const opened = Promise.withResolvers<TunnelStream>();
  hub.fleet.connect("a", { attach: (stream) => opened.resolve(stream.accept({ mode: "channels" })) });
  const socket = await hub.webSocket("a", ATTACH, ["v4.channel.k8s.io"]);
  let status = "";
  socket.on("message", (data: Buffer) => {
    if (data[0] === CHANNEL.error) status += data.subarray(1).toString();
  });
  await opened.promise;
  hub.fleet.disconnect("a");
  await once(socket, "close");
  assert.match(JSON.parse(status).message, /connection to the container was lost/);
  await idle(hub);
});

test("a client that vanishes takes its stream along", async (t) => {
  const hub = hubOf(t);
  const streams: TunnelStream[] = [];
  const accept = (mode: string) => (stream: IncomingStream) => void streams.push(stream.accept({ mode }));
  hub.fleet.connect("a", {
    attach: accept("channels"),
    exec: accept("raw"),
    logs: (stream) => void streams.push(stream.accept({})),
  });
  const channels = await hub.webSocket("a", ATTACH, ["v4.channel.k8s.io"]);
  await once(channels, "open");
  channels.terminate();
  const raw = await hub.socket("a");
  raw.write(
    "POST /exec/default/web/main?output=1&command=ls HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\n",
  );
  const logs = await hub.socket("a");
  logs.write("GET /containerLogs/default/web/main?follow=true HTTP/1.1\r\nhost: a\r\n\r\n");
  while (streams.length < 3) await new Promise((resolve) => setImmediate(resolve));
  raw.destroy();
  logs.destroy();
  await idle(hub);
  for (const stream of streams) assert.ok(stream.closed.aborted);
  assert.equal(hub.proxy.connections, 0);
});

test("a handshake that fails after the node has accepted leaves no stream behind", async (t) => {
  const hub = hubOf(t);
  hub.fleet.connect("a", { attach: parrot });
  for (const headers of [
    { connection: "Upgrade", upgrade: "websocket", "sec-websocket-protocol": "v4.channel.k8s.io" },
    { connection: "Upgrade", upgrade: "websocket", "sec-websocket-protocol": "v9.channel.k8s.io" },
    { connection: "Upgrade", upgrade: "SPDY/3.1", "x-stream-protocol-version": "v9.channel.k8s.io" },
  ]) {
    const { status } = await hub.ask("a", ATTACH, { headers });
    assert.ok(status === 400 || status === 403, `${status}`);
  }
  await idle(hub);
});

test("nonsense from a node is reported to the client", async (t) => {
  const hub = hubOf(t);
  const answers = (reply: unknown) => (stream: IncomingStream) => void stream.accept(reply);
  for (const reply of [undefined, null, 7, { status: 99, contentType: "x" }, { status: 200, contentType: "x\r\ny" }]) {
    hub.fleet.connect("a", { kubelet: answers(reply) });
    const { status, body } = await hub.ask("a", "/pods");
    assert.deepEqual([status, body], [500, "the node's answer is none\n"]);
  }
  hub.fleet.connect("a", {
    kubelet: () => {
      throw new PicoletError("unavailable", "the tunnel is gone");
    },
  });
  assert.equal((await hub.ask("a", "/pods")).status, 503);
});

test("a new certificate is served from then on", async (t) => {
  const hub = hubOf(t);
  hub.fleet.connect("a", { kubelet: echoPath });
  const serialOf = async (): Promise<string> => {
    const socket = await hub.socket("a");
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  const before = await serialOf();
  const next = hub.authority.issueServer();
  hub.tls.set({ privateKey: next.privateKey, certificateChain: next.certificate, clientCa: hub.authority.ca });
  await new Promise((resolve) => setImmediate(resolve));
  assert.notEqual(await serialOf(), before);
  assert.equal((await hub.ask("a", "/pods")).status, 200);
});

async function idle(hub: KubeletHub): Promise<void> {
  while (hub.fleet.underWay > 0 || hub.proxy.connections > 0) await new Promise((resolve) => setImmediate(resolve));
}
