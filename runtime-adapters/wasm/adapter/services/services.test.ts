import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { describe, it } from "node:test";
import { ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import {
  ask,
  Bench,
  call,
  clientOf,
  EMPTY,
  hello,
  outcome,
  received,
} from "@picolet/test/support/unit/wasm/service-bench.ts";
import fc from "fast-check";
import { encodeFrame, MAX_FRAME_BYTES } from "../../shared/messages/service-frames.ts";
import { helloMessage, PROTOCOL_VERSION, welcomeMessage } from "../../shared/messages/service-messages.ts";

describe("calls of runners to the agent", () => {
  it("is answered with values and bytes, in the order of asking", async () => {
    await using bench = await Bench.open();
    const client = bench.client();
    const bytes = [new Uint8Array(1_048_576).fill(7), new Uint8Array()];
    const answers = await Promise.all([
      call(client, "echo", { value: { a: [1, "\u0000\u{1f600}"] }, bytes }),
      call(client, "echo", { value: 2, bytes: [] }),
    ]);
    assert.deepEqual(answers[0]?.value, { a: [1, "\u0000\u{1f600}"] });
    assert.deepEqual(
      answers[0]?.bytes.map((each) => each.length),
      [1_048_576, 0],
    );
    assert.equal(answers[1]?.value, 2);
  });

  it("is refused with the interface's error, and fails as unavailable with anything else", async () => {
    await using bench = await Bench.open();
    const client = bench.client();
    await assert.rejects(call(client, "refuse"), { tag: "quota-exceeded" });
    await assert.rejects(call(client, "fail"), { tag: "unavailable" });
    await assert.rejects(call(client, "much"), { tag: "unavailable" });
    await assert.rejects(outcome(client.call("telemetry.write", EMPTY, { repeatable: false })), { tag: "unavailable" });
    assert.equal((await call(client, "echo", { value: 5, bytes: [] })).value, 5);
  });

  it("is not even sent when it is too large", async () => {
    await using bench = await Bench.open();
    const client = bench.client();
    const huge = { value: null, bytes: [new Uint8Array(MAX_FRAME_BYTES)] };
    assert.throws(() => client.call("keyvalue.echo", huge, { repeatable: true }), { code: "resource_exhausted" });
  });

  it("waits for an agent that restarts, and is sent again when that is safe", async () => {
    const entered = Promise.withResolvers<void>();
    let calls = 0;
    await using bench = await Bench.open({
      call(_, _method, request) {
        calls += 1;
        entered.resolve();
        return calls === 1 ? new Promise<never>(() => undefined) : request;
      },
    });
    const client = bench.client();
    const answer = call(client, "echo", { value: 9, bytes: [] });
    await entered.promise;
    await bench.stop();
    await bench.start();
    assert.equal((await answer).value, 9);
    assert.equal(calls, 2);
  });

  it("fails at once when it may have been done and must not be done twice", async () => {
    const entered = Promise.withResolvers<void>();
    await using bench = await Bench.open({
      call() {
        entered.resolve();
        return new Promise<never>(() => undefined);
      },
    });
    const answer = call(bench.client(), "increment", EMPTY, false);
    await entered.promise;
    await bench.stop();
    await assert.rejects(answer, { tag: "unavailable" });
  });

  it("is answered on the newest connection of a container, and never with an unknown token", async () => {
    await using bench = await Bench.open();
    const first = await bench.raw();
    const closed = once(first, "close");
    first.write(hello);
    await once(first, "data");
    first.resume();
    assert.equal((await call(bench.client(), "echo", { value: 1, bytes: [] })).value, 1);
    await closed;
    const stranger = await bench.raw();
    stranger.write(encodeFrame(helloMessage({ version: PROTOCOL_VERSION, token: "cd".repeat(32) })));
    stranger.write(ask(1, "keyvalue.echo"));
    assert.deepEqual(await received(stranger), []);
  });
});

describe("an agent that answers nonsense", () => {
  it("makes calls fail, never hang, and never gives one call another's answer", async () => {
    const folder = new TempFolder();
    const nonsense = fc.oneof(
      fc.uint8Array({ minLength: 1, maxLength: 100 }),
      fc.json().map((text) => encodeFrame({ value: JSON.parse(text), bytes: [] })),
      fc.constant(encodeFrame({ value: { id: 99, value: 1 }, bytes: [] })),
      fc.constant(encodeFrame({ value: { id: 1, error: { tag: 5 } }, bytes: [] })),
    );
    let reply: Uint8Array = new Uint8Array();
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => {
        socket.write(encodeFrame(welcomeMessage));
        socket.once("data", () => socket.end(reply));
      });
    });
    server.listen(folder.at("s"));
    await once(server, "listening");
    try {
      await fc.assert(
        fc.asyncProperty(nonsense, async (bytes) => {
          reply = bytes;
          const settled = await call(clientOf(folder.at("s")), "increment", EMPTY, false).catch((error) => error);
          assert.ok(settled instanceof ServiceRefusal, String(settled));
        }),
        { numRuns: 200 },
      );
    } finally {
      server.close();
      folder[Symbol.dispose]();
    }
  });
});
