import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { callGrpc, serviceOf } from "@picolet/test/support/unit/plugins/grpc-peer.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { GrpcClient, type GrpcMethod } from "./grpc-client.ts";
import { GrpcServer, served } from "./grpc-server.ts";
import { bool, message, string, strings } from "./protobuf.ts";

const Info = message("PluginInfo", { type: string(1), name: string(2), endpoint: string(3), versions: strings(4) });
const getInfo: GrpcMethod<object, { name: string }> = {
  path: "/pluginregistration.Registration/GetInfo",
  request: message("InfoRequest", {}),
  response: Info,
};
const Status = message("RegistrationStatus", { registered: bool(1), error: string(2) });
const notify: GrpcMethod<{ error?: string }, object> = {
  path: "/pluginregistration.Registration/NotifyRegistrationStatus",
  request: Status,
  response: message("RegistrationStatusResponse", {}),
};
const TIMEOUT_MS = 10_000;
const never = new AbortController().signal;

/** Large enough to need every kind of flow control. */
const LARGE = "x".repeat(300_000);

async function bench(context: TestContext, answer: (error: string) => Promise<object> | object = () => ({})) {
  const folder = mkdtempSync(join(tmpdir(), "picolet-grpc-"));
  const path = join(folder, "kubelet.sock");
  const clock = new VirtualClock();
  const methods = [
    served({ ...getInfo, request: message("InfoRequest", {}), response: Info }, () => ({ name: LARGE })),
    served({ path: notify.path, request: Status, response: message("Empty", {}) }, ({ error }) => answer(error)),
  ];
  const server = new GrpcServer({ clock }, { path, methods });
  await server.listen();
  const client = new GrpcClient({ clock }, { path });
  context.after(async () => {
    client[Symbol.dispose]();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });
  return { path, clock, client, server };
}

test("grpc-js gets a large answer, a status with its message, and unimplemented", async (context) => {
  const { path } = await bench(context, (error) => {
    throw new PicoletError("not_found", `no größe: 100% ${error}`);
  });
  const registration = serviceOf("pluginregistration.proto", "pluginregistration.Registration");
  assert.equal((await callGrpc(path, registration, "GetInfo", {})).name, LARGE);
  await assert.rejects(callGrpc(path, registration, "NotifyRegistrationStatus", { error: "a" }), {
    code: 5,
    details: "no größe: 100% a",
  });
});

test("our client calls our server, and a broken request fails alone", async (context) => {
  const { client } = await bench(context);
  const calls = Array.from({ length: 8 }, () => client.unary(getInfo, {}, TIMEOUT_MS, never));
  assert.deepEqual(new Set((await Promise.all(calls)).map(({ name }) => name.length)), new Set([LARGE.length]));
  const unknown = { ...getInfo, path: "/a.B/C" };
  await assert.rejects(client.unary(unknown, {}, TIMEOUT_MS, never), (error) => isPicoletError(error, "unimplemented"));
  const tooLong = client.unary(notify, { error: "x".repeat(20_000) }, TIMEOUT_MS, never);
  await assert.rejects(tooLong, (error) => isPicoletError(error, "resource_exhausted"));
  await client.unary(notify, { error: "" }, TIMEOUT_MS, never);
});

test("a call whose answer does not come is ended, and delays no other", async (context) => {
  const { client, clock } = await bench(context, () => new Promise(() => undefined));
  const hung = client.unary(notify, {}, 60_000, never);
  assert.equal((await client.unary(getInfo, {}, TIMEOUT_MS, never)).name, LARGE);
  const failed = assert.rejects(hung, (error) => isPicoletError(error, "unavailable"));
  await clock.advance(millis(10_000));
  await failed;
});

test("any bytes end the connection at most, and the server answers the next client", async (context) => {
  const { path, client } = await bench(context);
  const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const frames = fc.array(fc.tuple(fc.nat(9), fc.nat(255), fc.nat(5), fc.uint8Array({ maxLength: 64 })));
  const property = fc.asyncProperty(frames, fc.uint8Array(), async (list, tail) => {
    const parts = list.map(([type, flags, stream, payload]) =>
      Buffer.concat([Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream]), payload]),
    );
    const socket = connect(path);
    socket.on("error", () => undefined).resume();
    socket.end(Buffer.concat([preface, ...parts, tail]));
    await once(socket, "close");
    await client.unary(notify, {}, TIMEOUT_MS, never);
  });
  await fc.assert(property, { numRuns: 100 });
});
