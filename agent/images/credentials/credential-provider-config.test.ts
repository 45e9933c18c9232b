import assert from "node:assert/strict";
import { test } from "node:test";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { parseCredentialProviders } from "./credential-provider-config.ts";

const HEAD = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n";
const V1 = "credentialprovider.kubelet.k8s.io/v1";
const provider = (fields: string): string =>
  `${HEAD}providers: [{name: p, matchImages: ["*.example"], defaultCacheDuration: 1m, apiVersion: ${V1}${fields}}]`;
const parse = (...texts: readonly string[]) =>
  parseCredentialProviders(texts.map((text, index) => ({ path: `/etc/${index}.yaml`, text })));

test("a configuration with everything in it, and one with the least", () => {
  const tokens = "{serviceAccountTokenAudience: reg, cacheType: ServiceAccount, requireServiceAccount: false}";
  const full = provider(`, args: [get], env: [{name: A, value: b}], tokenAttributes: ${tokens}`);
  const least = provider("")
    .replace("name: p", "name: q")
    .replace("1m", '"0"')
    .replace("config.k8s.io/v1", "config.k8s.io/v1beta1");
  assert.deepEqual(parse(full, least), [
    {
      name: "p",
      matchImages: ["*.example"],
      defaultCacheDuration: 60_000,
      apiVersion: V1,
      args: ["get"],
      env: [{ name: "A", value: "b" }],
      tokenAttributes: {
        serviceAccountTokenAudience: "reg",
        cacheType: "ServiceAccount",
        requireServiceAccount: false,
      },
    },
    {
      name: "q",
      matchImages: ["*.example"],
      defaultCacheDuration: 0,
      apiVersion: V1,
      args: [],
      env: [],
      tokenAttributes: undefined,
    },
  ]);
});

for (const [texts, problem] of [
  [[""], /^cannot use \/etc\/0\.yaml: /],
  [["{"], /^cannot use \/etc\/0\.yaml: /],
  [[provider("").replace("CredentialProviderConfig", "Pod")], /kind: /],
  [[provider("").replace("config.k8s.io/v1", "config.k8s.io/v2")], /apiVersion: /],
  [[`${HEAD}providers: []`], /providers: Required value: at least 1 item in plugins is required/],
  [[provider(", nope: 1")], /nope/],
  [[provider("").replace("name: p", "name: a/b")], /providers\[0\]\.name: Invalid value: "a\/b"/],
  [[provider("").replace("name: p", "name: ..")], /providers\[0\]\.name: Invalid value: "\.\."/],
  [[provider(""), provider("")], /^cannot use \/etc\/1\.yaml: providers\[0\]\.name: Duplicate value: "p"/],
  [
    [provider("").replace('matchImages: ["*.example"]', "matchImages: []")],
    /at least 1 item in matchImages is required/,
  ],
  [[provider("").replace("defaultCacheDuration: 1m, ", "")], /defaultCacheDuration: Required value/],
  [[provider("").replace("1m", "-1m")], /must be greater than or equal to 0/],
  [[provider("").replace("1m", "soon")], /must be a duration/],
  [[provider("").replace(V1, `${V1}gamma1`)], /apiVersion: Unsupported value/],
  [
    [provider(", tokenAttributes: {requireServiceAccount: true}")],
    /serviceAccountTokenAudience: Required value.*cacheType: Required/,
  ],
  [
    [
      provider(
        ", tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}",
      ).replace(V1, `${V1}beta1`),
    ],
    /tokenAttributes is only supported for credentialprovider\.kubelet\.k8s\.io\/v1 API version/,
  ],
  [
    [
      provider(
        ", tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [k]}",
      ),
    ],
    /requiredServiceAccountAnnotationKeys: Forbidden: is not supported by picolet/,
  ],
  [["x".repeat(300_000)], /Too long/],
] as const) {
  test(`is refused: ${problem.source}`, () => {
    assert.throws(
      () => parse(...texts),
      (error) => isPicoletError(error, "invalid") && problem.test(describeError(error)),
    );
  });
}

test("whatever is in the file, it is read or refused", () => {
  const shaped = fc
    .jsonValue()
    .map((value) =>
      JSON.stringify({ apiVersion: "kubelet.config.k8s.io/v1", kind: "CredentialProviderConfig", providers: [value] }),
    );
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), shaped), (text) => {
      try {
        parse(text);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), describeError(error));
      }
    }),
    { numRuns: 500 },
  );
});
