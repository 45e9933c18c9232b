import assert from "node:assert/strict";
import { test } from "node:test";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { contextPrimitive, der, derSequence } from "@picolet/protocol/pki/der.ts";
import { EXTENSION, type Extension, subjectAltName } from "@picolet/protocol/pki/extensions.ts";
import { requestWithExtensions } from "@picolet/test/support/unit/identity/sample-certificate-requests.ts";
import { readRequest } from "./certificate-authority.ts";
import { alternativeNamesOf, refuseHubNames } from "./serving-request.ts";

const dns = (...names: readonly string[]) => subjectAltName({ dns: names, addresses: [] });
const raw = (...names: readonly Uint8Array[]) => {
  return { oid: EXTENSION.subjectAltName, critical: false, value: derSequence(...names) };
};
const namesOf = (...extensions: readonly Extension[]) =>
  alternativeNamesOf(readRequest(requestWithExtensions("system:node:a", extensions)));

test("the alternative names of a request are read, with those that are neither name nor address counted", () => {
  const addresses = [addressBytes("10.0.0.7"), addressBytes("fd00::7")];
  const names = namesOf(subjectAltName({ dns: ["board-1", "board-1.farm.example"], addresses }));
  assert.deepEqual(names.dns, ["board-1", "board-1.farm.example"]);
  assert.deepEqual(
    names.addresses.map((each) => Buffer.from(each)),
    addresses.map((each) => Buffer.from(each)),
  );
  const text = new TextEncoder().encode("x:y");
  const others = [1, 6, 8].map((tag) => der(contextPrimitive(tag), text));
  assert.deepEqual(namesOf(raw(...others)).others, ["Email", "URI", "Other"]);
  assert.deepEqual(namesOf(), { dns: [], addresses: [], others: [] });
});

test("malformed alternative names are refused", () => {
  const invalid = { code: "invalid" };
  for (const name of ["", "a b", "10.0.0.7", "a..b", "-a", "a\0.example", "*", "a.*.b", "é", `${"a".repeat(64)}.b`]) {
    assert.throws(() => namesOf(dns(name)), invalid, JSON.stringify(name));
  }
  assert.throws(() => namesOf(raw(der(contextPrimitive(7), Uint8Array.of(1, 2, 3)))), invalid);
  assert.throws(() => namesOf(raw(Uint8Array.of(0x82, 0x7f))), invalid);
  const twice = requestWithExtensions("system:node:a", [dns("a")], [dns("b")]);
  assert.throws(() => alternativeNamesOf(readRequest(twice)), { ...invalid, message: /twice/ });
});

test("names and addresses of the hub are refused, also behind a wildcard", () => {
  const own = ["hub.example", "*.tunnel.example", "192.0.2.1", "2001:db8::1"];
  const refused = { code: "permission_denied", message: /is the hub's own/ };
  const check = (names: readonly string[], addresses: readonly string[] = []): void =>
    refuseHubNames({ dns: names, addresses: addresses.map(addressBytes) }, own);
  for (const name of ["hub.example", "HUB.example.", "*.example", "a.tunnel.example", "kubernetes.default.svc"]) {
    assert.throws(() => check(["board-1", name]), refused, name);
  }
  for (const address of ["192.0.2.1", "2001:db8:0::1"]) assert.throws(() => check([], [address]), refused, address);
  check(["board-1", "board-1.example", "a.b.tunnel.example", "*.farm.example"], ["192.0.2.2", "2001:db8::2"]);
});
