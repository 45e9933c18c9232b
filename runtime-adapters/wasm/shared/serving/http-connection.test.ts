/** One connection on libuv's own handles, whose peer does not read. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { fixedPort } from "@picolet/test/support/unit/machine/fixed-port.ts";
import { type ConnectionPort, HttpConnection } from "./http-connection.ts";
import { type NodePrivateApi, nodeParts, privateParts } from "./node-parts.ts";
import { PublicParts } from "./public-parts.ts";
import { DateField } from "./response-writer.ts";

const LIMITS = {
  ...{ maxBodyBytes: 1, maxHeaderBytes: 16_384, maxHeaders: 8, headMs: 1, requestMs: 1, keepAliveMs: 1, idleMs: 1 },
  ...{ takeMs: 1, maxPipelined: 1, highWaterBytes: 65_536 },
};

const WAYS: readonly (readonly [name: string, parts: () => NodePrivateApi])[] = [
  ["Node's private parts", () => privateParts() ?? assert.fail("they are not there")],
  ["public parts alone", () => new PublicParts()],
];

test("a Node without the private parts gets public ones", async () => {
  const refused = (): never => {
    throw new Error("No such module");
  };
  for (const binding of [refused, () => undefined, () => ({})]) {
    assert.ok((await nodeParts(binding)) instanceof PublicParts);
  }
  assert.ok(!((await nodeParts()) instanceof PublicParts));
});

for (const [name, makeParts] of WAYS) {
  test(`bytes that are written one by one to a client who takes none fill a connection soon (${name})`, async () => {
    const parts = makeParts();
    const listener = parts.listener();
    const port = await fixedPort();
    assert.equal(listener.bind("127.0.0.1", port) || listener.listen(1), 0);
    let unsent = 0;
    const shared: ConnectionPort = {
      ...{ parts, limits: LIMITS, date: new DateField(() => 0), now: () => 0 },
      ...{ small: new Uint8Array(16), large: new Uint8Array(16), take: () => undefined, closed: () => undefined },
      unsent: (_, bytes) => {
        unsent += bytes;
      },
    };
    const accepted = new Promise<HttpConnection>((resolve) => {
      listener.onconnection = (_, client) => client && resolve(new HttpConnection(shared, client));
    });
    const client = connect(port, "127.0.0.1");
    client.pause();
    await once(client, "connect");
    const connection = await accepted;
    try {
      // The kernel's buffer takes the first writes.
      while (!connection.hasUnsent) connection.write([Buffer.alloc(16_384)]);
      let writes = 0;
      for (; !connection.isFull; writes += 1) connection.write(["a"]);
      assert.ok(writes < 100, `${writes} writes`);
    } finally {
      connection.close();
      client.destroy();
      listener.close();
    }
    assert.equal(unsent, 0, "nothing is counted of a connection that is closed");
  });
}
