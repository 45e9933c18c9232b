import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import {
  decodeDelivery,
  decodeTelemetryAck,
  encodeDelivery,
  encodeTelemetryAck,
  LengthPrefixedReader,
  readTelemetryParams,
  readTelemetryReply,
} from "./stream-messages.ts";

const delivery = fc.record(
  {
    sequence: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    baseUs: fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
    isEstimated: fc.boolean(),
    batch: fc.uint8Array({ maxLength: 300 }),
  },
  { noNullPrototype: true },
);

test("deliveries come out of the stream as they went in, however it cuts them", () => {
  fc.assert(
    fc.property(
      fc.array(delivery, { maxLength: 6 }),
      fc.infiniteStream(fc.integer({ min: 1, max: 90 })),
      (list, cuts) => {
        const bytes = Buffer.concat(list.map(encodeDelivery));
        const reader = new LengthPrefixedReader();
        const back = [];
        for (let at = 0; at < bytes.length; ) {
          const length = cuts.next().value ?? 1;
          for (const message of reader.push(bytes.subarray(at, at + length))) back.push(decodeDelivery(message));
          at += length;
        }
        assert.deepEqual(back, list);
      },
    ),
  );
});

test("an ack comes back", () => {
  const [message] = new LengthPrefixedReader().push(encodeTelemetryAck(70_000));
  assert.equal(decodeTelemetryAck(message ?? new Uint8Array()), 70_000);
});

test("a length beyond any message is refused before its bytes have come", () => {
  assert.throws(() => new LengthPrefixedReader().push(Uint8Array.of(0, 1, 0, 65)), /a message of 65601 bytes/);
});

test("anything else is refused with `invalid`", () => {
  const refused = (read: () => unknown): void => {
    try {
      read();
    } catch (error) {
      assert.ok(isPicoletError(error, "invalid"), String(error));
      return;
    }
  };
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), fc.anything(), (bytes, value) => {
      refused(() => decodeDelivery(bytes));
      refused(() => decodeTelemetryAck(bytes));
      refused(() => readTelemetryParams(value));
      refused(() => readTelemetryReply(value));
    }),
    { numRuns: 1000 },
  );
  for (const params of [null, {}, { queue: 7 }, { queue: "E0e1e2e3e4e5e6e7" }, { queue: "e0" }]) {
    assert.throws(() => readTelemetryParams(params), /16 hexadecimal digits/);
  }
  for (const reply of [null, {}, { received: -1 }, { received: 1.5 }, { received: "1" }]) {
    assert.throws(() => readTelemetryReply(reply), /no sequence/);
  }
});
