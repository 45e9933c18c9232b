import assert from "node:assert/strict";
import { isIP } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { ipProblems } from "./name-rules.ts";

for (const [address, valid] of [
  ["0.0.0.0", true],
  ["255.255.255.255", true],
  ["256.1.1.1", false],
  ["1.2.3", false],
  ["1.2.3.4.", false],
  ["01.2.3.4", false],
  ["::", true],
  ["::1", true],
  ["1::", true],
  ["fe80::1%eth0", false],
  ["1:2:3:4:5:6:7:8", true],
  ["1:2:3:4:5:6:7::", true],
  ["1:2:3:4:5:6:7:8:9", false],
  ["1::2::3", false],
  ["1::2:3:4:5:6:7", true],
  ["1::2:3:4:5:6:7:8", false],
  [":::", false],
  ["::ffff:1.2.3.4", true],
  ["1:2:3:4:5:6:1.2.3.4", true],
  ["1:2:3:4:5:6:7:1.2.3.4", false],
  ["1.2.3.4::", false],
  ["12345::", false],
  [":1", false],
  ["1:", false],
  ["", false],
] as const) {
  test(`${JSON.stringify(address)} is ${valid ? "an" : "no"} IP address`, () => {
    assert.equal(ipProblems(address).length === 0, valid);
  });
}

test("addresses are judged as Node judges them, zones aside", () => {
  const similar = fc.string({ unit: fc.constantFrom(..."0123456789abf:."), maxLength: 24 });
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6(), similar), (address) => {
      assert.equal(ipProblems(address).length === 0, isIP(address) !== 0, address);
    }),
    { numRuns: 5000 },
  );
});
