/**
 * Tests of the parsers of a registry's answers: challenges, documents, platforms, addresses; also with random input.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import fc from "fast-check";
import { Authorizer } from "../registry/authorizer.ts";
import { parseChallenges } from "../registry/challenge.ts";
import { networkFailure, printable, registryErrorText } from "../registry/failures.ts";
import { HttpClient } from "../registry/http-client.ts";
import { DEFAULT_PULL_LIMITS } from "../shared/messages/pull-request.ts";
import { platformsOf } from "../shared/oci/platforms.ts";
import { endpointsOf, hostnameOf, isLoopback } from "../shared/oci/registries.ts";
import { parseDocument, parseSignatures, platformOfConfig } from "./manifests.ts";

const challenges = (header: string) =>
  parseChallenges(header).map(({ scheme, parameters }) => [scheme, Object.fromEntries(parameters)]);

test("challenges are read as RFC 9110 writes them", () => {
  const cases: readonly [header: string, expected: unknown][] = [
    ["", []],
    ["Basic", [["basic", {}]]],
    ['BASIC realm="a, b"', [["basic", { realm: "a, b" }]]],
    [
      'Bearer realm="https://a/t",service="s",scope="repository:x:pull,push"',
      [["bearer", { realm: "https://a/t", service: "s", scope: "repository:x:pull,push" }]],
    ],
    [
      'Basic realm="a", Bearer realm="b"',
      [
        ["basic", { realm: "a" }],
        ["bearer", { realm: "b" }],
      ],
    ],
    [
      "Negotiate, Basic realm=plain",
      [
        ["negotiate", {}],
        ["basic", { realm: "plain" }],
      ],
    ],
    [
      "Negotiate YWJj==, Basic realm=x",
      [
        ["negotiate", {}],
        ["basic", { realm: "x" }],
      ],
    ],
    ['Bearer Realm = "say \\"hi\\"" , error = invalid', [["bearer", { realm: 'say "hi"', error: "invalid" }]]],
    ['Bearer realm="first",realm="second"', [["bearer", { realm: "first" }]]],
    ['Bearer realm="open', [["bearer", {}]]],
    [", ,Basic ,", [["basic", {}]]],
  ];
  for (const [header, expected] of cases) assert.deepEqual(challenges(header), expected, header);
});

test("no header makes the reader of challenges do anything but end, and soon", () => {
  const piece = fc.constantFrom("Bearer", "Basic", " ", ",", "=", '"', "\\", "realm", "a", "\t", "é", "==");
  const header = fc.oneof(
    fc.string({ maxLength: 300 }),
    fc.array(piece, { maxLength: 200 }).map((all) => all.join("")),
  );
  fc.assert(
    fc.property(header, (text) => {
      const found = parseChallenges(text);
      assert.ok(found.length <= 16);
      for (const { scheme } of found) assert.match(scheme, /^\S+$/);
    }),
    { numRuns: 2000 },
  );
  for (const unit of ['a="', "a=", "a ", ",", "a,", '\\"', "="]) {
    const before = process.cpuUsage();
    parseChallenges(`Bearer ${unit.repeat(200_000)}`);
    // Measured in CPU time, in microseconds: other processes may use the processor meanwhile.
    assert.ok(process.cpuUsage(before).user < 1_000_000, JSON.stringify(unit));
  }
});

const size = fc.oneof(fc.nat(), fc.double(), fc.string());
const digest = fc.oneof(fc.constant(`sha256:${"a".repeat(64)}`), fc.constant("sha512:00"), fc.string());
const type = fc.constantFrom("application/wasm", "application/vnd.oci.image.layer.v1.tar", "", "x");
const descriptor = fc.record(
  {
    ...{ digest, size, mediaType: fc.oneof(type, fc.integer()), artifactType: type },
    platform: fc.oneof(fc.record({ os: fc.string(), architecture: fc.constantFrom("wasm", "arm64", "") }), fc.string()),
    annotations: fc.oneof(fc.dictionary(fc.string(), fc.string()), fc.constant(null)),
  },
  { requiredKeys: [] },
);
const document = fc.record(
  {
    ...{ schemaVersion: fc.integer(), mediaType: fc.string(), artifactType: type, config: descriptor },
    layers: fc.oneof(fc.array(descriptor, { maxLength: 4 }), fc.anything()),
    manifests: fc.oneof(fc.array(descriptor, { maxLength: 4 }), fc.anything()),
    fsLayers: fc.anything(),
  },
  { requiredKeys: [] },
);

test("no document does anything but be read or refused with a code", () => {
  let read = 0;
  const look = (content: Buffer): void => {
    for (const parse of [parseDocument, parseSignatures, platformOfConfig]) {
      try {
        parse(content);
        read += 1;
      } catch (error) {
        assert.ok(
          isPicoletError(error) && ["corrupt", "invalid", "resource_exhausted"].includes(error.code),
          String(error),
        );
      }
    }
  };
  const text = fc.oneof(
    document.map((each) => JSON.stringify(each) ?? ""),
    fc.json(),
    fc.string(),
  );
  fc.assert(
    fc.property(text, (each) => look(Buffer.from(each))),
    { numRuns: 2000 },
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => look(Buffer.from(bytes))));
  look(Buffer.from('{"__proto__":{"layers":[]},"constructor":1}'));
  look(Buffer.from(`${"[".repeat(100_000)}`));
  assert.ok(read > 100, `${read} were read`);
});

test("platforms are distinguished by this node's architecture", () => {
  const all = ["linux/arm64/v8", "linux/amd64", "wasi/wasm", "windows/arm64"];
  assert.deepEqual(platformsOf(all, "arm64"), { component: true, container: true, platforms: all });
  assert.deepEqual(platformsOf(["linux/amd64"], "x64"), {
    component: false,
    container: true,
    platforms: ["linux/amd64"],
  });
  assert.equal(platformsOf(["windows/amd64", "linux/arm"], "x64").container, false);
  assert.equal(platformsOf(["linux/arm/v7"], "arm").container, true);
  assert.equal(platformsOf(["linux/wasmish"], "x64").component, false);
});

test("a registry is spoken to over HTTPS, but on the loopback and where it is configured", () => {
  const urls = (...args: Parameters<typeof endpointsOf>) => endpointsOf(...args).map(({ url }) => url);
  assert.deepEqual(urls("registry.example:5000", []), ["https://registry.example:5000"]);
  for (const host of ["localhost:5000", "127.0.0.1", "127.8.9.1:80", "[::1]:5000"]) {
    assert.deepEqual(urls(host, []), [`http://${host}`]);
    assert.deepEqual(urls(host, [{ host, caFile: "/ca.pem" }]), [`https://${host}`]);
    assert.deepEqual(urls(host, [{ host, insecure: false }]), [`https://${host}`]);
  }
  assert.deepEqual(urls("127.0.0.1.example", []), ["https://127.0.0.1.example"]);
  assert.deepEqual(urls("a", [{ host: "a", insecure: true, mirrors: ["https://m/x/"] }]), ["https://m/x", "http://a"]);
  assert.deepEqual(urls("b", [{ host: "a", insecure: true }]), ["https://b"]);
  assert.throws(() => endpointsOf("a:99999", []), /no address of a registry/);
});

test("network errors are explained, and a registry's own text is harmless", () => {
  const coded = (code: string): Error => Object.assign(new Error("x"), { code });
  const cases: readonly [error: unknown, text: RegExp][] = [
    [coded("ECONNREFUSED"), /cannot reach r:1: connection refused/],
    [new AggregateError([coded("EHOSTUNREACH")]), /no route to it/],
    [new Error("fetch failed", { cause: coded("CERT_NOT_YET_VALID") }), /check this node's clock/],
    [coded("SELF_SIGNED_CERT_IN_CHAIN"), /wasm\.registries\[\]\.caFile/],
    [coded("ERR_SSL_WRONG_VERSION_NUMBER"), /wasm\.registries\[\]\.insecure/],
    [coded("EODD"), /cannot speak to r:1/],
  ];
  for (const [error, text] of cases) {
    const failure = networkFailure(error, "r:1");
    assert.match(failure.message, text);
    assert.deepEqual([failure.code, failure.retryable], ["unavailable", true]);
  }
  assert.equal(printable("a\u001b[31m\nb\u202e"), "a [31m b");
  assert.equal(printable("x".repeat(1000)).length, 200);
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (body) => {
      assert.match(registryErrorText(body), /^[\x20-\x7e]{0,200}$/);
    }),
  );
});

test("the registry of an image's name is asked by that name, or refused", () => {
  const host = fc.oneof(
    fc.domain(),
    fc.ipV4(),
    fc.ipV6().map((each) => `[${each}]`),
    fc.string(),
  );
  const port = fc.oneof(
    fc.constant(""),
    fc.nat(99_999).map((each) => `:${each}`),
  );
  fc.assert(
    fc.property(host, port, (name, number) => {
      const parsed = parseImageReference(`${name}${number}/app:1`);
      if (!parsed.ok || parsed.reference.kind !== "registry") return;
      const { domain } = parsed.reference;
      try {
        const [own, ...others] = endpointsOf(domain, []);
        const { protocol, pathname, search, username } = new URL(own?.url ?? "");
        assert.deepEqual([others, pathname, search, username], [[], "/", "", ""], domain);
        assert.equal(own?.url, `${protocol}//${domain}`);
        assert.ok(protocol === "https:" || isLoopback(hostnameOf(domain)), domain);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
      }
    }),
    { numRuns: 1000 },
  );
});

test("credentials never leave HTTPS: a token server is as encrypted as its registry", async () => {
  const limits = { ...DEFAULT_PULL_LIMITS };
  await using http = new HttpClient(limits, undefined, { httpProxy: "", httpsProxy: "", noProxy: "" });
  let asked = 0;
  const server = createServer((_, response) => {
    asked += 1;
    response.end('{"token":"t"}');
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const realm = `http://127.0.0.1:${(server.address() as AddressInfo).port}/token`;
  const answer = async (registry: string): Promise<unknown> => {
    const credentials = { username: "me", password: "secret", serverAddress: "" };
    const init = { url: new URL(registry), repository: "app", credentials, credentialsFrom: undefined };
    const authorizer = new Authorizer(http, { ...init, documentTimeoutMs: limits.documentTimeoutMs });
    await authorizer.answer(`Bearer realm="${realm}"`, new AbortController().signal);
    return authorizer.headers;
  };
  try {
    await assert.rejects(answer("https://registry.example"), /sends to a token server that cannot be asked/);
    assert.equal(asked, 0);
    assert.deepEqual(await answer("http://registry.example"), { authorization: "Bearer t" });
  } finally {
    server.close();
  }
});

test("signatures are read as cosign writes them; other documents and too many are not", () => {
  const layer = (more: object = {}, annotations: object = { "dev.cosignproject.cosign/signature": "MEQC" }) => ({
    mediaType: "application/vnd.dev.cosign.simplesigning.v1+json",
    digest: `sha256:${"1".repeat(64)}`,
    size: 250,
    annotations,
    ...more,
  });
  const read = (...layers: readonly object[]) => parseSignatures(Buffer.from(JSON.stringify({ layers })));
  assert.deepEqual(
    read(layer(), layer({ mediaType: "text/plain" }), layer({}, {}), layer({ size: 1_000_000 })).map(
      ({ signature, blob }) => [signature, blob.sizeBytes],
    ),
    [["MEQC", 250]],
  );
  assert.deepEqual(read(layer({}, { "dev.cosignproject.cosign/signature": "A".repeat(2000) })), []);
  assert.throws(() => read(...Array.from({ length: 33 }, () => layer())), /33 signatures, more than 32/);
  assert.throws(() => read(layer({ digest: "sha256:1" })), /a digest is no SHA-256/);
});

const blob = (mediaType: string) => ({ mediaType, digest: `sha256:${"a".repeat(64)}`, size: 1 });
const SPIN_LAYER = "application/vnd.wasm.content.layer.v1+wasm";

test("what Spin and wasmCloud make of one component is that component, and the rest is said to be theirs", () => {
  const read = (config: string, ...layers: string[]) =>
    parseDocument(Buffer.from(JSON.stringify({ config: blob(config), layers: layers.map(blob) }))).kind;
  const spin = "application/vnd.fermyon.spin.application.v1+config";
  assert.equal(read(spin, SPIN_LAYER), "artifact");
  assert.throws(() => read(spin, SPIN_LAYER, SPIN_LAYER), /a Spin application of several components/);
  assert.throws(() => read(spin, SPIN_LAYER, "application/vnd.wasm.content.layer.v1+data"), /a Spin application/);
  const actor = "application/vnd.wasmcloud.actor.archive.config";
  assert.equal(read(actor, "application/vnd.module.wasm.content.layer.v1+wasm"), "artifact");
  const provider = "application/vnd.wasmcloud.provider.archive";
  assert.throws(() => read(`${provider}.config`, `${provider}.layer.v1+par`), /a capability provider of wasmCloud/);
});
