import assert from "node:assert/strict";
import { test } from "node:test";
import { podIpsInOrder } from "./pod-ips.ts";

test("one address of each family, that of the node's first", () => {
  const both = ["fd00::3", "10.1.2.3", "10.1.2.4"];
  assert.deepEqual(podIpsInOrder(both, ["192.0.2.1", "2001:db8::1"]), ["10.1.2.3", "fd00::3"]);
  assert.deepEqual(podIpsInOrder(both, ["2001:db8::1"]), ["fd00::3", "10.1.2.3"]);
  assert.deepEqual(podIpsInOrder(["fd00::3"], []), ["fd00::3"]);
  assert.deepEqual(podIpsInOrder([], ["192.0.2.1"]), []);
});
