import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { findCredentials, matchesImage } from "./keyring.ts";

for (const [glob, image, expected] of [
  ["*.registry.example", "eu.registry.example", true],
  ["eu.*.example", "eu.registry.example", true],
  ["eu.registry.*", "eu.registry.example", true],
  ["*-good.registry.example", "very-good.registry.example/app", true],
  ["[a-e]u.registry.example", "eu.registry.example/app", true],
  ["[^a-e]u.registry.example", "eu.registry.example/app", false],
  ["?u.registry.example", "eu.registry.example/app", false],
  ["a*b*c.example", "aXbXbXc.example/app", true],
  ["a*b*c.example", "aXbX.example/app", false],
  ["*.registry.example/team", "eu.registry.example/team/app", true],
  ["*.registry.example/team", "eu.registry.example/other/app", false],
  ["*.registry.example:5000/team", "eu.registry.example:5000/team/app", true],
  ["*.registry.example:5000", "eu.registry.example:5001/team", false],
  ["eu.*.example/team", "eu.registry.example:5000/team/app", false],
  ["*.registry.example", "registry.example/app", false],
  ["*.*.registry.example", "eu.registry.example/app", false],
  ["*registry.example", "eu.registry.example/app", false],
  ["*registry.example", "my-registry.example/app", true],
  ["k*.example", "quay.example/app", false],
  ["registry.example", "registry.test/app", false],
  ["registry[.example", "registry.example/app", false],
  ["[::1]:5000", "[::1]:5000/app", true],
  ["[::1]:5000", "[::2]:5000/app", false],
  ["", "registry.example/app", false],
] as const) {
  test(`${JSON.stringify(glob)} ${expected ? "is" : "is not"} for ${image}`, () => {
    assert.equal(matchesImage(glob, image), expected);
  });
}

const found = (image: string, ...locations: readonly string[]): readonly string[] =>
  findCredentials(
    locations.map((location) => ({ location, value: location })),
    image,
  );

test("more specific credentials come first, and all that match are given", () => {
  const locations = ["registry.example", "registry.example/team/app", "other.example", "registry.example/team"];
  assert.deepEqual(found("registry.example/team/app", ...locations), [
    "registry.example/team/app",
    "registry.example/team",
    "registry.example",
  ]);
  assert.deepEqual(found("registry.example/app", ...locations), ["registry.example"]);
  assert.deepEqual(found("nowhere.example/app", ...locations), []);
});

test("several credentials of one place keep their order", () => {
  const entries = [1, 2, 3].map((value) => ({ location: "registry.example", value }));
  assert.deepEqual(findCredentials(entries, "registry.example/app"), [1, 2, 3]);
});

for (const location of [
  "https://registry.example",
  "http://registry.example/",
  "https://registry.example/v1/",
  "registry.example/v2/",
]) {
  test(`${location} is the registry as a whole`, () => {
    assert.deepEqual(found("registry.example/team/app", location), [location]);
  });
}

test("Docker's own registry has a place of its own", () => {
  const docker = "https://index.docker.io/v1/";
  for (const image of ["docker.io/library/busybox", "busybox", "team/app", "index.docker.io/team/app"]) {
    assert.deepEqual(found(image, docker), [docker], image);
  }
  assert.deepEqual(found("registry.example/busybox", docker), []);
  // An entry with the exact name is the only result.
  assert.deepEqual(found("docker.io/library/busybox", docker, "docker.io"), ["docker.io"]);
});

test("whatever a location is, looking it up ends soon and gives nothing but what is there", () => {
  const part = fc.stringMatching(/^[a-z*?[\]^\-.:/@%\\]{0,40}$/);
  fc.assert(
    fc.property(
      fc.array(fc.oneof(part, fc.string()), { maxLength: 8 }),
      fc.oneof(part, fc.string()),
      (locations, image) => {
        const given = found(image, ...locations);
        assert.ok(given.every((each) => locations.includes(each)));
      },
    ),
    { numRuns: 2000 },
  );
  const stars = `${"*a".repeat(500)}b`;
  // Processor time: what others take of the machine meanwhile is not the pattern's doing.
  const before = process.cpuUsage();
  assert.equal(matchesImage(stars, "a".repeat(1000)), false);
  assert.ok(process.cpuUsage(before).user < 1_000_000);
});

test("a host without globs is for exactly that host and its paths", () => {
  const label = fc.stringMatching(/^[a-z0-9]{1,8}$/);
  const host = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join("."));
  fc.assert(
    fc.property(host, host, label, (one, other, path) => {
      assert.equal(matchesImage(one, `${one}/${path}`), true);
      assert.equal(matchesImage(one, `${other}/${path}`), one === other);
      assert.equal(matchesImage(`${one}/${path}`, `${one}/${path}/app`), true);
    }),
  );
});
