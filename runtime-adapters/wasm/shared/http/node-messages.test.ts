import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { joinSmallPieces } from "./node-messages.ts";

const HEAD = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";

/** The response that is received from these chunks. */
async function received(chunks: readonly string[]): Promise<readonly string[]> {
  const server = createServer((socket) => {
    const lines = chunks.map((each) => `${each.length.toString(16)}\r\n${each}\r\n`);
    socket.end(`${HEAD}${lines.join("")}0\r\nx-sum: 1\r\n\r\n`);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const asked = request({ host: "127.0.0.1", port: (server.address() as AddressInfo).port, agent: false });
  asked.once("response", joinSmallPieces).end();
  const [message] = (await once(asked, "response")) as [IncomingMessage];
  const pieces: string[] = [];
  message.setEncoding("latin1").on("data", (piece: string) => pieces.push(piece));
  await once(message, "end");
  server.close();
  assert.deepEqual(message.rawTrailers, ["x-sum", "1"]);
  return pieces;
}

test("a response of chunks of one byte arrives in few pieces, complete and in order", async () => {
  const letters = Array.from({ length: 20_000 }, (_, at) => String.fromCharCode(97 + (at % 26)));
  const pieces = await received(letters);
  assert.equal(pieces.join(""), letters.join(""));
  assert.ok(pieces.length < 500, `${pieces.length} pieces`);
});

test("chunks of all sizes arrive in order", async () => {
  const random = seededRandom(20_261_122);
  const chunks = Array.from({ length: 400 }, (_, at) => {
    const length = 1 + Math.floor(random.next() * (random.next() < 0.2 ? 9000 : 60));
    return String.fromCharCode(97 + (at % 26)).repeat(length);
  });
  assert.equal((await received(chunks)).join(""), chunks.join(""));
});
