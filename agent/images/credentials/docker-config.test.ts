import assert from "node:assert/strict";
import { test } from "node:test";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { parseDockerConfig } from "./docker-config.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const json = (auths: unknown): string => JSON.stringify({ auths, HttpHeaders: { "User-Agent": "x" } });

test("user and password, plain or together, and tokens", () => {
  const auths = {
    "plain.example": { username: "u", password: "p:w", email: "e@example" },
    "joined.example": { auth: base64("u:p:w") },
    "bare.example": { auth: base64("u:pw1").replace(/=+$/, "") },
    "both.example": { username: "x", password: "y", auth: base64("u:p") },
    "token.example": { identitytoken: "identity", registrytoken: "registry" },
    "empty.example": {},
    "null.example": null,
  };
  const expected = {
    "plain.example": { username: "u", password: "p:w" },
    "joined.example": { username: "u", password: "p:w" },
    "bare.example": { username: "u", password: "pw1" },
    "both.example": { username: "u", password: "p" },
    "token.example": { username: "", password: "", identityToken: "identity", registryToken: "registry" },
    "empty.example": { username: "", password: "" },
    "null.example": { username: "", password: "" },
  };
  const entries = Object.entries(expected).map(([location, credentials]) => ({
    location,
    credentials: { ...credentials, serverAddress: "" },
  }));
  assert.deepEqual(parseDockerConfig(json(auths), "config.json"), entries);
  assert.deepEqual(parseDockerConfig(JSON.stringify(auths), ".dockercfg"), entries);
});

test("a file without credentials has none", () => {
  for (const text of ["{}", '{"auths":null}', '{"auths":{}}', '{"credsStore":"desktop"}']) {
    assert.deepEqual(parseDockerConfig(text, "config.json"), []);
  }
});

for (const [text, problem] of [
  ["not json secret", "it is not JSON"],
  ["", "it is not JSON"],
  ["[]", "it is no JSON object"],
  ["null", "it is no JSON object"],
  ['{"auths":[]}', "auths is no JSON object"],
  [json({ "a.example": "secret" }), "entry 1 is no JSON object"],
  [json({ "a.example": { username: 5 } }), "username of entry 1 is no text"],
  [json({ "a.example": {}, "b.example": { auth: "secret!" } }), "auth of entry 2 is not base64"],
  [json({ "a.example": { auth: base64("secret") } }), "auth of entry 1 is not base64 of user:password"],
  [json(Object.fromEntries(Array.from({ length: 1025 }, (_, i) => [`r${i}`, {}]))), "more than 1024 registries"],
  [" ".repeat(1024 * 1024 + 1), "it is larger than 1048576 bytes"],
] as const) {
  test(`what is wrong is said without what is secret: ${problem}`, () => {
    assert.throws(
      () => parseDockerConfig(text, "config.json"),
      (error) =>
        isPicoletError(error, "invalid") &&
        describeError(error).includes(problem) &&
        !/secret/.test(describeError(error)),
    );
  });
}

test("whatever is in a file, it is read or refused, and what Docker writes is read", () => {
  const anything = fc.oneof(fc.string(), fc.json(), fc.jsonValue().map(json));
  fc.assert(
    fc.property(anything, fc.constantFrom("config.json" as const, ".dockercfg" as const), (text, format) => {
      try {
        for (const { credentials } of parseDockerConfig(text, format))
          assert.equal(typeof credentials.username, "string");
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"));
      }
    }),
    { numRuns: 1000 },
  );
  const user = fc.string().filter((text) => !text.includes(":"));
  fc.assert(
    fc.property(user, fc.string(), (username, password) => {
      const text = json({ "a.example": { auth: base64(`${username}:${password}`) } });
      const [entry] = parseDockerConfig(text, "config.json");
      assert.deepEqual(entry?.credentials, { username, password, serverAddress: "" });
    }),
  );
});
