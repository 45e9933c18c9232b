import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it } from "node:test";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { heldMemory } from "@picolet/test/support/unit/machine/held-memory.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { ask, Bench, call, echo, hello, helloOf, received } from "@picolet/test/support/unit/wasm/service-bench.ts";
import fc from "fast-check";
import { encodeFrame, FrameReader, MAX_FRAME_BYTES } from "../../shared/messages/service-frames.ts";

describe("a runner that has been taken over", () => {
  it("that floods without listening fills its own socket alone", async () => {
    let calls = 0;
    await using bench = await Bench.open({
      call(_, _method, request) {
        calls += 1;
        return request;
      },
    });
    const socket = await bench.raw();
    socket.pause();
    socket.write(hello);
    const large = ask(1, "keyvalue.echo", [new Uint8Array(1_000_000)]);
    for (let i = 0; i < 20; i += 1) socket.write(large);
    // Others are answered meanwhile: neither the agent's time nor its bytes are taken.
    const peer = await bench.raw();
    peer.destroy();
    while (calls === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.ok(calls <= 2, `${calls} requests were taken`);
    socket.destroy();
  });

  it("that asks for much and takes none of it has a share of the agent's memory, until its time is up", async () => {
    const clock = new VirtualClock();
    const calls: string[] = [];
    await using bench = await Bench.open(
      {
        largeAnswers: new Set(["much"]),
        call(_, method, request) {
          calls.push(method);
          return method === "echo" ? request : { value: null, bytes: [new Uint8Array(2_000_000)] };
        },
      },
      clock,
    );
    const deaf = async (index: number, method: string): Promise<void> => {
      const socket = await bench.raw();
      socket.write(Buffer.concat([helloOf(index), ask(1, `keyvalue.${method}`)]));
    };
    const listening = bench.client();
    /** All that had room have been called by then: small answers wait for no other connection. */
    const othersAreServed = async (): Promise<void> => {
      for (let turn = 0; turn < 50; turn += 1)
        assert.equal((await call(listening, "echo", { value: turn, bytes: [] })).value, turn);
    };
    const much = (): number => calls.filter((method) => method === "much").length;
    for (let index = 0; index < 8; index += 1) await deaf(index, "much");
    await othersAreServed();
    assert.equal(much(), 2, "answers of 4 MB are held for all of them");
    await clock.advance(seconds(11));
    while (much() < 4) await othersAreServed();
    for (let round = 0; much() < 8; round += 1) {
      assert.ok(round < 100, `${much()} have been called`);
      await clock.advance(seconds(11));
      await othersAreServed();
    }
    await clock.advance(seconds(11));
    // A large answer counts even if the request did not announce it.
    for (let index = 8; index < 10; index += 1) await deaf(index, "surprise");
    while (calls.filter((method) => method === "surprise").length < 2) await othersAreServed();
    await deaf(10, "much");
    await othersAreServed();
    assert.equal(much(), 8);
    await clock.advance(seconds(11));
    while (much() < 9) await othersAreServed();
  });

  it("that says nothing, or half of something, is cut off after its time", async () => {
    const clock = new VirtualClock();
    const asked = Promise.withResolvers<void>();
    await using bench = await Bench.open(
      {
        call(_, _method, request) {
          asked.resolve();
          return request;
        },
      },
      clock,
    );
    const silent = await bench.raw();
    const silentEnd = once(silent.resume(), "close");
    const slow = await bench.raw();
    const slowEnd = once(slow.resume(), "close");
    slow.write(hello);
    slow.write(ask(1, "keyvalue.echo"));
    await asked.promise;
    slow.write(ask(2, "keyvalue.echo").subarray(0, 10));
    await clock.advance(seconds(4));
    assert.equal(silent.destroyed, false);
    await clock.advance(seconds(2));
    await silentEnd;
    // The half may arrive late, and then has its ten seconds.
    while (!slow.destroyed) await clock.advance(seconds(10));
    await slowEnd;
    assert.match(bench.log.entries.map(({ fields }) => String(fields.error)).join(), /within 10 s/);
  });

  it("that sends its request byte by byte takes the agent little memory, and has the same time for all of it", async () => {
    const clock = new VirtualClock();
    await using bench = await Bench.open(echo, clock);
    const socket = await bench.raw();
    const end = once(socket, "close");
    socket.write(hello);
    await once(socket, "data");
    socket.resume();
    const large = ask(1, "keyvalue.echo", [new Uint8Array(1_000_000)]);
    let sent = 0;
    while (!socket.destroyed) {
      socket.write(large.subarray(sent, sent + 1));
      sent += 1;
      await clock.advance(seconds(1));
    }
    await end;
    assert.ok(sent < 100, `${sent} bytes, a second between two`);
    const reader = new FrameReader();
    const before = heldMemory();
    // Without the pool that small buffers share: what comes through a socket has memory of its own.
    for (const byte of large) reader.push(Buffer.from(Uint8Array.of(byte).buffer));
    const { heap, buffers } = heldMemory();
    assert.ok(heap - before.heap + buffers - before.buffers < 4 * large.length);
    assert.equal(reader.next(MAX_FRAME_BYTES)?.bytes[0]?.length, 1_000_000);
  });

  it("that opens silent connections keeps no other runner out", async () => {
    // Their time never comes to its end.
    await using bench = await Bench.open(echo, new VirtualClock());
    const silent = await Promise.all(Array.from({ length: 300 }, () => bench.raw()));
    assert.equal((await call(bench.client(), "echo", { value: 1, bytes: [] })).value, 1);
    for (const each of silent) each.destroy();
  });

  it("that sends lists within lists without end is cut off before they are parsed", async () => {
    await using bench = await Bench.open();
    for (const text of ["[".repeat(500_000) + "]".repeat(500_000), `[${"{},".repeat(300_000)}0]`]) {
      const socket = await bench.raw();
      const json = Buffer.from(`{"id":1,"method":"keyvalue.echo","value":${text}}`);
      const lengths = Buffer.alloc(8);
      lengths.writeUInt32LE(json.length + 4, 0);
      lengths.writeUInt32LE(json.length, 4);
      socket.write(Buffer.concat([hello, lengths, json]));
      assert.equal((await received(socket)).length, 1, "the welcome alone");
    }
    assert.match(
      bench.log.entries.map(({ fields }) => String(fields.error)).join(),
      /more than 8192 lists and objects/,
    );
  });

  it("is as long about a large request as about many small ones", async () => {
    const clock = new VirtualClock();
    let calls = 0;
    await using bench = await Bench.open(
      {
        call() {
          calls += 1;
          return { value: null, bytes: [] };
        },
      },
      clock,
    );
    const socket = await bench.raw();
    socket.write(hello);
    const large = ask(1, "keyvalue.set", [new Uint8Array(1_000_000)]);
    for (let count = 0; count < 8; count += 1) socket.write(large);
    const reader = new FrameReader();
    let answers = 0;
    socket.on("data", (chunk: Buffer) => {
      reader.push(chunk);
      while (reader.next(MAX_FRAME_BYTES) !== undefined) answers += 1;
    });
    while (answers < 4) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([answers, calls, clock.monotonic()], [4, 3, 0], "the welcome, and a burst of 1,000 calls' worth");
    while (answers < 9) await clock.advance(millis(100));
    assert.ok(clock.monotonic() >= 1800, `${clock.monotonic()} ms`);
    socket.destroy();
  });

  it("gets no more than its share of calls", async () => {
    let calls = 0;
    await using bench = await Bench.open({
      call(_, _method, request) {
        calls += 1;
        return request;
      },
    });
    const socket = await bench.raw();
    const started = performance.now();
    socket.write(hello);
    socket.write(Buffer.concat(Array.from({ length: 1300 }, (_, i) => ask(i + 1, "keyvalue.echo"))));
    const answers = await received(socket, 1301);
    assert.equal(answers.length, 1301);
    assert.equal(calls, 1300);
    assert.ok(performance.now() - started >= 250, "1,000 at once, 300 more within a third of a second");
  });

  it("that sends anything at all breaks nothing, and others are served", async () => {
    await using bench = await Bench.open();
    const hostile = fc.oneof(
      fc.uint8Array({ maxLength: 300 }),
      fc.constant(ask(0, "keyvalue.echo")),
      fc.constant(encodeFrame({ value: { id: 1, method: "keyvalue.echo.x" }, bytes: [] })),
      fc.constant(encodeFrame({ value: { id: 1, method: "__proto__.toString" }, bytes: [] })),
      fc.constant(Uint8Array.of(0xff, 0xff, 0xff, 0xff)),
      fc.constant(Buffer.from("09000000050000005b5b5b5b5b", "hex")),
      fc.json().map((text) => encodeFrame({ value: JSON.parse(text), bytes: [] })),
      fc.record({ at: fc.nat(40), to: fc.nat(255) }).map(({ at, to }) => {
        const bytes = Buffer.from(ask(3, "keyvalue.echo", [new Uint8Array(5)]));
        bytes[at % bytes.length] = to;
        return new Uint8Array(bytes);
      }),
    );
    await fc.assert(
      fc.asyncProperty(fc.boolean(), fc.array(hostile, { maxLength: 4 }), async (known, parts) => {
        const socket = await bench.raw();
        if (known) socket.write(hello);
        for (const part of parts) socket.write(part);
        socket.end();
        await received(socket).catch(() => undefined);
      }),
      { numRuns: 300 },
    );
    assert.equal((await call(bench.client(), "echo", { value: 1, bytes: [] })).value, 1);
  });
});
