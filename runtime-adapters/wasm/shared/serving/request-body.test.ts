/** Compares a body that arrives in pieces of any size with the same bytes in a row. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { RequestBody } from "./request-body.ts";

const SEED = Number(process.env.PICOLET_SEED ?? 20_261_122);
const READER = { started: () => undefined, taken: () => undefined };
const ANY = Number.MAX_SAFE_INTEGER;

test("pieces of one byte are kept as a few pieces", () => {
  const body = new RequestBody(READER);
  for (let count = 0; count < 65_536; count += 1) body.push(Uint8Array.of(count));
  let pieces = 0;
  while (body.take(ANY) !== undefined) pieces += 1;
  assert.ok(pieces <= 16, `${pieces} pieces`);
});

test("bytes are read as they were written, and buffers that were given away never change", () => {
  const random = seededRandom(SEED);
  const below = (limit: number): number => Math.floor(random.next() * limit);
  for (let round = 0; round < 50; round += 1) {
    const body = new RequestBody(READER);
    const [put, got]: [Buffer[], Buffer[]] = [[], []];
    const given: { readonly bytes: Uint8Array; readonly copy: Buffer }[] = [];
    for (let step = 0; step < 300; step += 1) {
      if (random.next() < 0.6) {
        const piece = Buffer.from(Array.from({ length: below(random.next() < 0.1 ? 9000 : 40) }, () => below(256)));
        put.push(piece);
        body.push(Uint8Array.from(piece));
      } else {
        const bytes = body.take(1 + below(random.next() < 0.3 ? 9000 : 30));
        if (bytes === undefined) continue;
        given.push({ bytes, copy: Buffer.from(bytes) });
        got.push(Buffer.from(bytes));
      }
      assert.equal(body.available, Buffer.concat(put).length - Buffer.concat(got).length);
    }
    for (let rest = body.take(ANY); rest !== undefined; rest = body.take(ANY)) got.push(Buffer.from(rest));
    assert.ok(Buffer.concat(put).equals(Buffer.concat(got)), `round ${round} of seed ${SEED}`);
    for (const { bytes, copy } of given) assert.ok(copy.equals(bytes));
  }
});
