/**
 * Connections and datagrams of WASI 0.3 by IPv4 and IPv6: how they end, which delay others, and the codes of their
 * failures.
 */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { settledMemory } from "../support/unit/machine/held-memory.ts";
import { AsyncComponent } from "../support/wasm/async-component.ts";
import { echo, peer, roundTrips, Talk } from "../support/wasm/async-talk.ts";

const OPEN = "tcp://127.0.0.1:*; tcp://[::1]:*; udp://127.0.0.1:*; udp://[::1]:*; listen tcp:*; listen udp:*";
const FAMILIES = [
  { name: "IPv4", host: "127.0.0.1", udp: "udp4", anywhere: [], largest: 65_507, pieces: 8000, mebibytes: 24 },
  { name: "IPv6", host: "::1", udp: "udp6", anywhere: ["six"], largest: 65_527, pieces: 3500, mebibytes: 14 },
] as const;

let component: AsyncComponent;

before(async () => {
  component = await AsyncComponent.of("async-net.c");
});

after(() => component?.[Symbol.dispose]());

const said = (rules: string, ...args: readonly string[]): Promise<string> => new Talk(component, args, rules).end;

for (const { name, host, udp, anywhere, largest, pieces, mebibytes } of FAMILIES) {
  describe(`by ${name}`, () => {
    test("each side ends for itself", async (context) => {
      let heard = "";
      const port = await peer(
        context,
        (socket) => {
          socket.end("first");
          socket.on("data", (chunk: Buffer) => {
            heard += chunk;
          });
        },
        host,
      );
      assert.equal(await said(OPEN, "late", host, port, "then"), "first\nsent: ok\nreceived: ok\n");
      assert.equal(heard, "then");
      // The peer hears the end before it says anything.
      const first: Buffer[] = [];
      const listens = await peer(
        context,
        (socket) => {
          socket.on("data", (chunk: Buffer) => first.push(chunk));
          socket.on("end", () => socket.end(Buffer.concat(first)));
        },
        host,
      );
      assert.equal(await said(OPEN, "fetch", host, listens, "all"), "all\nsent: ok\nreceived: ok\n");
    });

    test("a peer that does not read holds it up, and then gets all", async (context) => {
      const accepted = Promise.withResolvers<Socket>();
      const port = await peer(context, (socket) => accepted.resolve(socket.pause()), host);
      const before = await settledMemory();
      const talk = new Talk(component, ["flood", host, port, String(pieces)], OPEN);
      const socket = await accepted.promise;
      // A dot each 64 KiB.
      for (let dots = -1; dots < talk.text.length || dots === 0; ) {
        dots = talk.text.length;
        await roundTrips(context, 200);
      }
      assert.ok(talk.text.length < pieces / 20, "the system's own buffers end somewhere");
      const held = await settledMemory();
      assert.ok(held.buffers - before.buffers < MEBIBYTE, `${held.buffers - before.buffers} bytes wait to be sent`);
      let sum = 0;
      socket.on("data", (chunk: Buffer) => {
        sum += chunk.length;
      });
      await once(socket.resume(), "end");
      assert.equal(sum, pieces * 4096);
      assert.match(await talk.end, new RegExp(`${pieces}\nsent: ok\n$`));
    });

    test("what it does not read holds up its peer", async (context) => {
      const sockets: Socket[] = [];
      const port = await peer(context, (socket) => sockets.push(socket), host);
      const talk = new Talk(component, ["hold", host, port], OPEN);
      await talk.until(/holds\n/);
      const [first, second] = sockets as [Socket, Socket];
      const all = Buffer.alloc(mebibytes * MEBIBYTE, "x");
      const before = await settledMemory();
      // Piece by piece: what libuv is given at once counts as written only when all of it is.
      for (let at = 0; at < all.length; at += MEBIBYTE) first.write(all.subarray(at, at + MEBIBYTE));
      first.end();
      await roundTrips(context, 1000);
      assert.ok(first.writableLength > (mebibytes / 3) * MEBIBYTE, `only ${first.writableLength} bytes are held up`);
      const held = await settledMemory();
      assert.ok(held.buffers - before.buffers < MEBIBYTE, `${held.buffers - before.buffers} bytes wait to be read`);
      second.end("go");
      assert.match(await talk.end, new RegExp(`holds\n${all.length}\nreceived: ok\n$`));
    });

    test("a connection that is cut off says so on both of its ways", async (context) => {
      const port = await peer(context, (socket) => void socket.once("data", () => socket.resetAndDestroy()), host);
      const told = await said(OPEN, "flood", host, port, "100000");
      assert.match(
        told,
        /\n\.*(\d+)\nsent: connection-(?:reset|broken)\n$|^\.*\d+\nsent: connection-(?:reset|broken)\n$/,
      );
      const read = await said(OPEN, "fetch", host, port, "x");
      assert.match(read, /^\nsent: .*\nreceived: connection-reset\n$/);
    });

    test("what comes of clients that vanish before they are taken is told, and those after them are served", async () => {
      const port = await fixedPort();
      const talk = new Talk(component, ["vanish", String(port), "4", ...anywhere], OPEN);
      await talk.until(/listening/);
      const ways = [
        (socket: Socket) => socket.resetAndDestroy(),
        (socket: Socket) => socket.destroy(),
        (socket: Socket) => socket.write("word", () => socket.destroy()),
        (socket: Socket) => socket.end("words"),
      ];
      for (const way of ways) {
        const client = connect({ port, host });
        await once(client, "connect");
        way(client);
        // The last one stays until it is answered.
        if (way !== ways.at(-1)) await once(client.resume(), "close");
      }
      await say(port);
      assert.match(
        await talk.end,
        /told: ok\n0 received: connection-reset\n0 received: ok\n4 received: ok\n5 received: ok\n$/,
      );
    });

    test("clients that are gone in the middle of it take nobody else with them", async () => {
      const talk = new Talk(component, ["serve", "0", "30", ...anywhere], OPEN);
      const port = Number((await talk.until(/listening (\d+)\n/))[1]);
      const text = "0123456789".repeat(10_000);
      const spoken = async (at: number): Promise<void> => {
        const client = connect({ port, host, allowHalfOpen: true });
        client.on("error", () => undefined);
        client.write(text);
        if (at % 3 !== 0) {
          // The client does not read the answer, or not all of it.
          await once(client, at % 3 === 1 ? "connect" : "data");
          client.resetAndDestroy();
          return;
        }
        const received: Buffer[] = [];
        client.on("data", (chunk: Buffer) => received.push(chunk));
        client.end();
        await once(client, "end");
        assert.equal(Buffer.concat(received).toString(), text);
      };
      await Promise.all(Array.from({ length: 30 }, (_, at) => spoken(at)));
      assert.match(await talk.end, /served 30\n$/);
    });

    test("a listener that is let go of refuses, and its port may be had again", async (context) => {
      const port = await fixedPort();
      const talk = new Talk(component, ["refuse", String(port), ...anywhere], OPEN);
      await talk.until(/refuses\n/);
      const client = connect({ port, host });
      client.on("error", () => undefined);
      await once(client, "close");
      await say(port);
      await talk.end;
      const taken = await peer(context, echo, host);
      assert.equal(await said(OPEN, "serve", taken, "1", ...anywhere), "bind: address-in-use\n");
    });

    test("datagrams go both ways, and those that are too large are told so", async (context) => {
      const socket = createSocket(udp).bind(0, host);
      await once(socket, "listening");
      context.after(() => socket.close());
      socket.on("message", (data, from) => socket.send(`${data}?`, from.port, from.address));
      const port = String(socket.address().port);
      assert.equal(await said(OPEN, "ask", host, port, "what"), `answer: what? from ${port}\n`);
      assert.match(await said(OPEN, "ask", host, port, "what", "connected"), /^answer: what\? from/);
      assert.equal(await said(OPEN, "burst", host, "9", "1", String(largest)), "1 sent\n");
      assert.equal(
        await said(OPEN, "burst", host, "9", "1", String(largest + 1)),
        "send: datagram-too-large\n0 sent\n",
      );
      const own = await fixedPort();
      const talk = new Talk(component, ["answer", String(own), "1", ...anywhere], OPEN);
      await talk.until(/bound/);
      const client = createSocket(udp);
      context.after(() => client.close());
      client.send("word", own, host);
      const [data] = (await once(client, "message")) as [Buffer];
      assert.equal(String(data), "word");
    });

    /** Sends the word that the component waits for. */
    function say(port: number): Promise<void> {
      const socket = createSocket(udp);
      return new Promise((done) => socket.send("word", port, host, () => void socket.close(() => done())));
    }
  });
}

test("a rule for one family grants nothing of the other, and each refusal has its code", async (context) => {
  const port = await peer(context, echo, "::1");
  const six = `tcp://[::1]:${port}; tcp://[::1]:1; udp://[::1]:9; listen udp:1`;
  const fine = "x\nsent: ok\nreceived: ok\n";
  for (const [rules, expected, ...args] of [
    [six, fine, "fetch", "::1", port, "x"],
    [six, fine, "fetch", "0:0:0:0:0:0:0:1", port, "x"],
    [six, "connect: access-denied\n", "fetch", "127.0.0.1", port, "x"],
    [six, "connect: access-denied\n", "fetch", "::1", "2", "x"],
    [six, "connect: connection-refused\n", "fetch", "::1", "1", "x"],
    [six, "connect: invalid-argument\n", "fetch", "::", port, "x"],
    [six, "connect: invalid-argument\n", "fetch", "::1", "0", "x"],
    // An address of IPv4 in the clothes of the other, and many at once.
    [six, "connect: invalid-argument\n", "fetch", "::ffff:7f00:1", port, "x"],
    [six, "connect: invalid-argument\n", "fetch", "ff02::1", port, "x"],
    [six, "send: access-denied\n", "ask", "::1", "10", "x"],
    [six, "connect: access-denied\n", "ask", "::1", "10", "x", "connected"],
    [six, "send: invalid-argument\n", "ask", "ff02::1", "9", "x"],
    [six, "bind: access-denied\n", "answer", "8080", "1", "six"],
    [six, "bind: access-denied\n", "serve", "8080", "1", "six"],
    [`tcp://127.0.0.1:${port}; udp://127.0.0.1:9`, "connect: access-denied\n", "fetch", "::1", port, "x"],
    [`tcp://127.0.0.1:${port}; udp://127.0.0.1:9`, "send: access-denied\n", "ask", "::1", "9", "x"],
    ["tcp://*:*", "connect: access-denied\n", "fetch", "::1", port, "x"],
    ["tcp://[::/0]:*", "connect: access-denied\n", "fetch", "::1", port, "x"],
    ["tcp://[::/0]:*", "connect: access-denied\n", "fetch", "fe80::1", port, "x"],
    [`tcp://localhost:${port}`, "connect: access-denied\n", "fetch", "2001:db8::1", port, "x"],
  ] as const) {
    assert.equal(await said(rules, ...args), expected, `${rules}: ${args.join(" ")}`);
  }
});
