import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseImageReference } from "./image-reference.ts";

const SHA = "a".repeat(64);

for (const [text, canonical] of [
  ["busybox", "docker.io/library/busybox:latest"],
  ["busybox:1.36", "docker.io/library/busybox:1.36"],
  ["library/busybox", "docker.io/library/busybox:latest"],
  ["docker.io/busybox", "docker.io/library/busybox:latest"],
  ["index.docker.io/busybox", "docker.io/library/busybox:latest"],
  ["user/app:v1", "docker.io/user/app:v1"],
  ["localhost/app", "localhost/app:latest"],
  ["localhost:5000/app", "localhost:5000/app:latest"],
  ["localhost:5000/app:v1", "localhost:5000/app:v1"],
  ["[::1]:5000/app", "[::1]:5000/app:latest"],
  ["Registry/app", "Registry/app:latest"],
  ["registry.example/pause:3.10", "registry.example/pause:3.10"],
  ["ghcr.io/a/b/c-d__e.f:Tag_1.2-3", "ghcr.io/a/b/c-d__e.f:Tag_1.2-3"],
  [`busybox@sha256:${SHA}`, `docker.io/library/busybox@sha256:${SHA}`],
  [`busybox:1@sha256:${SHA}`, `docker.io/library/busybox:1@sha256:${SHA}`],
  ["file:///srv/a b%20c.wasm", "file:///srv/a b%20c.wasm"],
] as const) {
  test(`${text.slice(0, 40)} means ${canonical.slice(0, 50)}`, () => {
    const result = parseImageReference(text);
    assert.ok(result.ok, JSON.stringify(result));
    assert.equal(result.reference.canonical, canonical);
    assert.deepEqual(parseImageReference(canonical), result);
  });
}

test("a reference with a digest alone has no tag", () => {
  const result = parseImageReference(`busybox@sha256:${SHA}`);
  assert.deepEqual(result, {
    ok: true,
    reference: {
      kind: "registry",
      domain: "docker.io",
      repository: "library/busybox",
      tag: undefined,
      digest: `sha256:${SHA}`,
      canonical: `docker.io/library/busybox@sha256:${SHA}`,
    },
  });
});

for (const [text, problem] of [
  ["", /it is empty/],
  ["BusyBox", /must be lowercase/],
  ["a/BusyBox", /must be lowercase/],
  ["busybox:", /invalid tag format/],
  ["busybox:a b", /invalid tag format/],
  [`busybox:${"a".repeat(129)}`, /invalid tag format/],
  ["busy box", /bad repository name/],
  ["/busybox", /bad repository name/],
  ["a//b", /bad repository name/],
  ["a/b/", /bad repository name/],
  ["-a/b", /bad repository name/],
  ["a.-b/c", /bad registry name/],
  ["https://docker.io/busybox", /has no scheme/],
  [SHA, /64 hexadecimal digits/],
  ["busybox@sha256:abc", /invalid checksum digest format/],
  [`busybox@sha256:${"a".repeat(63)}`, /has 64 hexadecimal digits/],
  [`busybox@sha256:${"A".repeat(64)}`, /invalid checksum digest format/],
  [`busybox@md5:${"a".repeat(32)}`, /unsupported digest algorithm/],
  [`busybox@constructor:${"a".repeat(64)}`, /unsupported digest algorithm/],
  [`docker.io/${"a".repeat(256)}`, /not be more than 255/],
  ["a".repeat(2000), /more than 1024/],
  ["file://app.wasm", /three slashes/],
  ["file:///srv/app", /end in \.wasm/],
  ["file:///srv/../etc/app.wasm", /'\.\.'/],
  ["file:///a\0.wasm", /NUL/],
  [`file:///${"a".repeat(4096)}.wasm`, /more than 4096/],
] as const) {
  test(`${JSON.stringify(text.slice(0, 30))} is refused: ${problem.source}`, () => {
    const result = parseImageReference(text);
    assert.ok(!result.ok);
    assert.match(result.problem, problem);
  });
}

test("no text makes the parser throw, and an accepted one is accepted in canonical form", () => {
  const similar = fc.string({ unit: fc.constantFrom(..."abcAB019.:/@-_[]") });
  fc.assert(
    fc.property(fc.oneof(fc.string(), similar), (text) => {
      const result = parseImageReference(text);
      if (result.ok) assert.deepEqual(parseImageReference(result.reference.canonical), result);
    }),
    { numRuns: 2000 },
  );
});
