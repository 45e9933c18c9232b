import assert from "node:assert/strict";
import { test } from "node:test";
import { podOfContainer } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import fc from "fast-check";
import { containerHash } from "./container-hash.ts";
import type { Container } from "./pod.ts";

function containerOf(fields: Readonly<Record<string, unknown>>): Container {
  const [container] = podOfContainer(fields).spec.containers;
  assert.ok(container);
  return container;
}

/** Containers that run were marked with these: a change here restarts every container on every board. */
for (const [name, fields, hash] of [
  ["the smallest container", {}, "3f9297d0"],
  [
    "one with texts beyond ASCII",
    { env: [{ name: "GREETING", value: "Grüße, 世界 🌍" }], command: ["sh", "-c", 'echo "$GREETING"\n'] },
    "3e894abb",
  ],
] as const) {
  test(`golden: ${name}`, () => assert.equal(containerHash(containerOf(fields)), hash));
}

test("resources change in place and do not count", () => {
  const { resources: _, ...withoutResources } = containerOf({});
  const bare = containerHash(containerOf({}));
  assert.equal(containerHash(containerOf({ resources: { limits: { cpu: 1 } } })), bare);
  assert.equal(containerHash({ ...withoutResources, resources: {} }), bare);
});

for (const [name, fields] of [
  ["image", { image: "example.com/app:2" }],
  ["command", { command: ["x"] }],
  ["order of args", { args: ["b", "a"] }],
  ["environment", { env: [{ name: "A", value: "1" }] }],
  ["probe", { livenessProbe: { tcpSocket: { port: 1 } } }],
  ["a field that we do not know", { future: 1 }],
] as const) {
  test(`another ${name} is another hash`, () => {
    assert.notEqual(containerHash(containerOf(fields)), containerHash(containerOf({ args: ["a", "b"] })));
    assert.notEqual(containerHash(containerOf(fields)), containerHash(containerOf({})));
  });
}

test("fields that are undefined are missing", () => {
  assert.equal(containerHash({ ...containerOf({}), command: undefined }), containerHash(containerOf({})));
});

function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, field]) => [key, reversed(field)]),
  );
}

test("the order of keys does not count, at any depth", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (extra) => {
      const container = { ...containerOf({ env: [{ name: "A", value: "1" }] }), extra };
      const hash = containerHash(container);
      assert.equal(containerHash(reversed(container) as Container), hash);
      assert.match(hash, /^[0-9a-f]{8}$/);
    }),
  );
});
