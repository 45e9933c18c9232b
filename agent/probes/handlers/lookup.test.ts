import assert from "node:assert/strict";
import { test } from "node:test";
import { addressesIn } from "./lookup.ts";

test("names are found in a hosts file as the system finds them", () => {
  const hosts =
    "127.0.0.1\tlocalhost\n# 10.0.0.9 gone\n10.0.0.1 gateway.lan Gateway # the way out\nfd00::1  gateway\n\nbroken\n";
  assert.deepEqual(addressesIn(hosts, "GATEWAY"), [
    { address: "10.0.0.1", family: 4 },
    { address: "fd00::1", family: 6 },
  ]);
  assert.deepEqual(addressesIn(hosts, "localhost"), [{ address: "127.0.0.1", family: 4 }]);
  for (const name of ["gone", "the", "10.0.0.1", "broken", ""]) assert.deepEqual(addressesIn(hosts, name), [], name);
});
