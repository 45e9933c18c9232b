import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { seconds } from "@picolet/protocol/ports.ts";
import type { GrpcHealthAnswer } from "@picolet/runtime-contract/grpc-health.ts";
import { GrpcHealthServer, type HealthReply } from "@picolet/test/support/unit/cri/grpc-health-server.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { GrpcHealthClient } from "./grpc-health-client.ts";

const never = new AbortController().signal;
const make = (clock = new VirtualClock()): GrpcHealthClient =>
  new GrpcHealthClient({ clock }, { userAgent: "kube-probe/1.34" });
const check = (port: number, service = "", client = make(), signal = never): Promise<GrpcHealthAnswer> =>
  client.check({ host: "127.0.0.1", port, service }, seconds(1), signal);

const REPLIES: readonly (readonly [reply: HealthReply, answer: GrpcHealthAnswer])[] = [
  [{ serving: 1 }, { kind: "answered", status: 1 }],
  [{ serving: 0 }, { kind: "answered", status: 0 }],
  [{ serving: 2 }, { kind: "answered", status: 2 }],
  [
    { status: 5, message: "unknown service" },
    { kind: "failed", error: "rpc error: code = NotFound desc = unknown service" },
  ],
  [
    { status: 12, message: "unknown service grpc.health.v1.Health" },
    { kind: "unimplemented", message: "unknown service grpc.health.v1.Health" },
  ],
  [{ status: 4, message: "slow" }, { kind: "late" }],
  [
    { http: 404 },
    { kind: "unimplemented", message: "cannot call /grpc.health.v1.Health/Check: the HTTP status is 404" },
  ],
];

test("a server is asked for a service, on a connection that is closed then", async () => {
  await using server = await GrpcHealthServer.start();
  const services: string[] = [];
  for (const [reply, answer] of REPLIES) {
    server.reply = (service) => {
      services.push(service);
      return reply;
    };
    assert.deepEqual(await check(server.port, "my.Service"), answer);
  }
  assert.deepEqual([...new Set(services)], ["my.Service"]);
  assert.equal(server.headers["user-agent"], "kube-probe/1.34");
  assert.equal(server.headers[":authority"], `127.0.0.1:${server.port}`);
  server.reply = () => "reset";
  assert.match(
    JSON.stringify(await check(server.port)),
    /"failed","error":"rpc error: code = Unavailable desc = cannot finish/,
  );
  await server.quiet();
});

test("many at once share one buffer and mix up nothing", async () => {
  await using server = await GrpcHealthServer.start();
  server.reply = (service) => ({ serving: Number(service) });
  const client = make();
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, index) => check(server.port, String(index), client)),
  );
  assert.deepEqual(
    answers,
    answers.map((_, index) => ({ kind: "answered", status: index })),
  );
});

test("one that does not answer in time is late", async () => {
  await using server = await GrpcHealthServer.start();
  const clock = new VirtualClock();
  server.reply = () => "silence";
  server.onRequest = () => void clock.advance(seconds(1));
  assert.deepEqual(await check(server.port, "", make(clock)), { kind: "late" });
  await server.quiet();
});

/** What is no gRPC server. */
async function stranger(serve: (socket: Socket) => void): Promise<AsyncDisposable & { readonly port: number }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).resume();
    serve(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

test("no HTTP/2 connection: no listener, a server that closes, speaks another protocol, or is silent", async () => {
  const gone = await stranger(() => undefined);
  await gone[Symbol.asyncDispose]();
  assert.deepEqual(await check(gone.port), { kind: "unreached" });
  await using closing = await stranger((socket) => socket.end());
  assert.deepEqual(await check(closing.port), { kind: "unreached" });
  await using other = await stranger((socket) => socket.write("HTTP/1.1 400 Bad Request\r\n\r\n"));
  assert.deepEqual(await check(other.port), { kind: "unreached" });
  const clock = new VirtualClock();
  await using silent = await stranger((socket) => socket.once("data", () => void clock.advance(seconds(1))));
  assert.deepEqual(await check(silent.port, "", make(clock)), { kind: "unreached" });
});

test("it is tried again for as long as there is time", async () => {
  const clock = new VirtualClock();
  let refusals = 0;
  await using front = await stranger((socket) => {
    refusals += 1;
    socket.end();
    setImmediate(() => void clock.advance(seconds(1)));
  });
  const client = make(clock);
  assert.deepEqual(await client.check({ host: "127.0.0.1", port: front.port, service: "" }, seconds(4), never), {
    kind: "unreached",
  });
  assert.ok(refusals >= 3, String(refusals));
});

test("a cancelled call gets no answer", async () => {
  await using server = await GrpcHealthServer.start();
  const stop = new AbortController();
  server.reply = () => "silence";
  server.onRequest = () => stop.abort(new Error("enough"));
  await assert.rejects(check(server.port, "", make(), stop.signal), { message: "enough" });
  await server.quiet();
  const enough = new AbortController();
  await using silent = await stranger((socket) => socket.once("data", () => enough.abort(new Error("enough"))));
  await assert.rejects(check(silent.port, "", make(), enough.signal), { message: "enough" });
});
