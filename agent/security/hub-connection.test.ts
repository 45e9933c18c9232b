import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { HubConnection } from "./hub-connection.ts";

const NEVER = new AbortController().signal;

/** Opens a connection to a server that answers the handshake with `answer`. @returns the words of its failure */
async function failureAt(answer: string): Promise<string> {
  const server = createServer((socket: Socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => socket.end(answer));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  try {
    const error: unknown = await HubConnection.open({ host: "127.0.0.1", port }, undefined, NEVER).then(
      () => assert.fail("it connected"),
      (reason: unknown) => reason,
    );
    assert.ok(isPicoletError(error, "unavailable") && error.retryable);
    return describeError(error).replace(String(port), "PORT");
  } finally {
    server.close();
  }
}

test("a port that speaks no TLS is named, with what to do instead of OpenSSL's words", async () => {
  for (const answer of ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"]) {
    assert.match(
      await failureAt(answer),
      /^cannot connect to 127\.0\.0\.1:PORT: it speaks no TLS, so it is not a hub's port for boards: set hub\.server to [^\n]*$/,
      answer,
    );
  }
});
