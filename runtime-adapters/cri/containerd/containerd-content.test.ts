import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { blobsIn } from "./containerd-content.ts";

const digest = (index: number): string => `sha256:${String(index).repeat(64)}`;

test("a manifest's parts are its configuration and its layers, each once", () => {
  const layers = [
    { digest: digest(2), size: 5 },
    { digest: digest(2), size: 5 },
    { digest: digest(3), size: 7 },
  ];
  const manifest = { config: { digest: digest(1), size: 3 }, layers };
  assert.deepEqual(blobsIn(Buffer.from(JSON.stringify(manifest))), [
    { digest: digest(1), size: 3 },
    { digest: digest(2), size: 5 },
    { digest: digest(3), size: 7 },
  ]);
});

test("of a hostile manifest only valid parts are read", () => {
  const part = fc.oneof(
    fc.jsonValue(),
    fc.record({ digest: fc.oneof(fc.constant(digest(1)), fc.string()), size: fc.oneof(fc.integer(), fc.string()) }),
  );
  const document = fc.oneof(fc.jsonValue(), fc.record({ config: part, layers: fc.oneof(part, fc.array(part)) }));
  const bytes = fc.oneof(
    document.map((value) => Buffer.from(JSON.stringify(value))),
    fc.uint8Array().map((each) => Buffer.from(each)),
  );
  fc.assert(
    fc.property(bytes, (content) => {
      for (const blob of blobsIn(content)) assert.ok(/^sha256:1{64}$/.test(blob.digest) && blob.size >= 0);
    }),
  );
});
