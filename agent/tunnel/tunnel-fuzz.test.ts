/** The agent survives random messages in random order, and its disk has only sets that some hub sent completely. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { digestOf } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { HubMessage, RemoteObject, TunnelMessage } from "@picolet/protocol/tunnel/messages.ts";
import { TunnelBench } from "@picolet/test/support/unit/tunnel/tunnel-bench.ts";
import { agrees } from "@picolet/test/support/unit/tunnel/tunnel-hub.ts";
import { sha256 } from "@picolet/test/support/unit/tunnel/tunnel-node.ts";
import fc from "fast-check";

const RUNS = 300;

const bytes = (length: number): fc.Arbitrary<Uint8Array> =>
  fc.oneof(fc.constant(new Uint8Array(length)), fc.uint8Array({ minLength: length, maxLength: length }));
const small = fc.oneof(fc.nat(5), fc.nat(1000), fc.constant(Number.MAX_SAFE_INTEGER));
const key = fc.constantFrom("Pod/default/a", "Pod/default/b", "Secret/default/s");
const object: fc.Arbitrary<RemoteObject> = fc.record({ key, hash: bytes(16), object: fc.constant({ x: 1 }) });

const message: fc.Arbitrary<TunnelMessage> = fc.oneof(
  fc.record({
    kind: fc.constant("welcome" as const),
    hubVersion: fc.string({ maxLength: 5 }),
    epoch: bytes(8),
    revision: small,
    timeMs: small,
    desired: fc.constantFrom("current" as const, "delta" as const, "inventory" as const),
    wantsMirrors: fc.boolean(),
    wantsNode: fc.boolean(),
    takesTelemetry: fc.boolean(),
    fleet: fc.constantFrom(undefined, { id: "f", former: [] }, { id: "g", former: ["f"] }),
  }),
  fc.record({
    kind: fc.constant("desired" as const),
    revision: small,
    upserts: fc.array(object, { maxLength: 3 }),
    deletes: fc.array(key, { maxLength: 2 }),
    last: fc.boolean(),
    digest: bytes(16),
  }),
  fc.record({
    kind: fc.constant("statusesAck" as const),
    sequence: small,
    wantFull: fc.array(fc.constantFrom("uid-web", "uid-db", "x"), { maxLength: 3 }),
  }),
  fc.record({ kind: fc.constant("eventsAck" as const), sequence: small }),
  fc.record({ kind: fc.constant("nodeAck" as const), hash: bytes(8), wantFull: fc.boolean() }),
  fc.record({ kind: fc.constant("drain" as const), reconnectAfterMs: small, reason: fc.constant("r") }),
  fc.record({
    kind: fc.constant("refusal" as const),
    code: fc.constant("overloaded"),
    message: fc.string({ maxLength: 5 }),
    retryAfterMs: fc.constantFrom(0, 500),
  }),
  fc.constantFrom<TunnelMessage>(
    { kind: "resync" },
    { kind: "desiredAck", revision: 1 },
    { kind: "eventsAck", sequence: 1 },
  ),
);

type Step =
  | { readonly kind: "say"; readonly message: TunnelMessage }
  | { readonly kind: "raw"; readonly bytes: Uint8Array }
  | { readonly kind: "open" }
  | { readonly kind: "cut" }
  | { readonly kind: "fill" }
  | { readonly kind: "status" }
  | { readonly kind: "wait"; readonly ms: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("say" as const), message }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("raw" as const), bytes: fc.uint8Array({ maxLength: 12 }) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.constantFrom(1, 20, 2000, 40_000) }) },
  {
    weight: 3,
    arbitrary: fc.constantFrom<Step>({ kind: "open" }, { kind: "cut" }, { kind: "fill" }, { kind: "status" }),
  },
);

async function play(bench: TunnelBench, each: Step): Promise<void> {
  const { session } = bench.hub;
  switch (each.kind) {
    case "say":
      session?.send(each.message as HubMessage);
      return;
    case "raw":
      bench.network.connections.at(-1)?.arrive(each.bytes);
      return;
    case "open":
      session?.mux.open("exec", {}, "interactive", new AbortController().signal).catch(() => undefined);
      return;
    case "cut":
      bench.network.cut();
      return;
    case "fill":
      bench.disk.isFull = !bench.disk.isFull;
      return;
    case "status":
      for (const name of ["web", "db"]) bench.node.putStatus(name, { phase: "Running", at: bench.clock.monotonic() });
      return;
    case "wait":
      await bench.pass(each.ms);
  }
}

for (const isGreeted of [true, false]) {
  test(`random messages in any order, ${isGreeted ? "after" : "instead of"} a welcome, do no harm`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 25 }), fc.nat(), async (steps, seed) => {
        await using bench = new TunnelBench({ seed });
        bench.hub.put("web");
        if (!isGreeted) bench.hub.intercept = ({ kind }) => kind === "hello";
        await bench.start();
        for (const each of steps) {
          await play(bench, each);
          // The cursor's digest is that of the stored set, so a hub has made it.
          const { cursor, objects } = bench.disk;
          assert.ok(equalBytes(cursor.digest, digestOf(sha256, objects.values())), "the cursor lies");
        }
        // With a hub that behaves all is well again.
        bench.disk.isFull = false;
        bench.hub.intercept = () => false;
        // For any fleet that it was assigned to.
        bench.hub.fleet = { id: "h", former: ["f", "g"] };
        bench.hub.wanted.restart();
        bench.network.cut();
        await bench.pass(1);
        await bench.connected(4_000_000);
        for (const name of ["web", "db"]) bench.node.putStatus(name, { phase: "Failed" });
        bench.hub.put("last");
        await bench.pass(120_000);
        assert.ok(agrees(bench.hub, bench.disk.objects), "the node does not follow");
        assert.deepEqual(bench.hub.statuses.get("uid-web"), { phase: "Failed" });
        assert.equal(bench.disk.statuses.size, 0);
        assert.deepEqual(
          bench.log.entries.filter(({ message }) => message.includes("session failed")),
          [],
        );
      }),
      { numRuns: RUNS },
    );
  });
}
