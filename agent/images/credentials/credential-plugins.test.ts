/** Real programs, made here, run as plugins. */
import assert from "node:assert/strict";
import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, millis, seconds } from "@picolet/protocol/ports.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { CredentialPlugins, parseAnswer } from "./credential-plugins.ts";
import type { CredentialProvider } from "./credential-provider-config.ts";

const V1 = "credentialprovider.kubelet.k8s.io/v1";
const { signal } = new AbortController();
const IMAGE = "eu.registry.example/team/app";

const provider = (change: Partial<CredentialProvider> = {}): CredentialProvider => ({
  name: "plugin",
  matchImages: ["*.registry.example"],
  defaultCacheDuration: millis(0),
  apiVersion: V1,
  args: [],
  env: [],
  tokenAttributes: undefined,
  ...change,
});

const answer = (change: object = {}): string =>
  JSON.stringify({
    kind: "CredentialProviderResponse",
    apiVersion: V1,
    cacheKeyType: "Registry",
    auth: { "*.registry.example": { username: "user", password: "password" } },
    ...change,
  });

class Bench {
  readonly folder = new TempFolder();
  readonly clock = new VirtualClock();
  readonly objects = new TestClusterObjects(this.clock);
  readonly failures: string[] = [];

  constructor(t: TestContext) {
    t.after(() => this.folder[Symbol.dispose]());
  }

  /** A shell script; each run adds its input to `input` and a line to `runs`. */
  program(body: string, name = "plugin"): void {
    const path = this.folder.at(name);
    writeFileSync(path, `#!/bin/sh\ncat > "${path}.input"\necho "ran $*" >> "${path}.runs"\n${body}\n`);
    chmodSync(path, 0o755);
  }

  says(text: string, name?: string): void {
    this.program(`cat <<'END'\n${text}\nEND`, name);
  }

  get runs(): string[] {
    const path = this.folder.at("plugin.runs");
    return existsSync(path) ? readFileSync(path, "utf8").trimEnd().split("\n") : [];
  }

  get input(): unknown {
    return JSON.parse(readFileSync(this.folder.at("plugin.input"), "utf8"));
  }

  plugins(providers: readonly CredentialProvider[], clock: Clock = this.clock): CredentialPlugins {
    return new CredentialPlugins({ clock, objects: this.objects }, { providers, binDir: this.folder.path });
  }

  /** `user:password` of each. */
  async found(plugins: CredentialPlugins, image = IMAGE, pod = desired(podOf())): Promise<string[]> {
    const failed = (plugin: string, why: string): void => void this.failures.push(`${plugin}: ${why}`);
    const found = await plugins.lookUp(image, pod, failed, signal);
    return found.map(({ credentials: { username, password } }) => `${username}:${password}`);
  }
}

test("a plugin is asked for its images alone, with its arguments and environment, and answers for them", async (t) => {
  const bench = new Bench(t);
  bench.program(
    `cat <<END\n${answer({ auth: { "*.registry.example": { username: "$USER_NAME", password: "p" } } })}\nEND`,
  );
  const plugins = bench.plugins([provider({ args: ["get", "it"], env: [{ name: "USER_NAME", value: "robot" }] })]);
  assert.deepEqual(await bench.found(plugins), ["robot:p"]);
  assert.deepEqual(bench.input, { kind: "CredentialProviderRequest", apiVersion: V1, image: IMAGE });
  assert.deepEqual(await bench.found(plugins, "other.example/app"), []);
  assert.deepEqual(bench.runs, ["ran get it"]);
  assert.deepEqual(bench.failures, []);
});

for (const [cacheKeyType, image, isCached] of [
  ["Image", IMAGE, true],
  ["Image", `${IMAGE}2`, false],
  ["Registry", `${IMAGE}2`, true],
  ["Registry", "us.registry.example/team/app", false],
  ["Global", "us.registry.example/team/app", true],
] as const) {
  test(`an answer for ${cacheKeyType} is ${isCached ? "" : "not "}taken for ${image}`, async (t) => {
    const bench = new Bench(t);
    bench.says(answer({ cacheKeyType, cacheDuration: "1m" }));
    const plugins = bench.plugins([provider()]);
    await bench.found(plugins);
    assert.deepEqual(await bench.found(plugins, image), ["user:password"]);
    assert.equal(bench.runs.length, isCached ? 1 : 2);
    await bench.clock.advance(seconds(61));
    await bench.found(plugins);
    assert.equal(bench.runs.length, isCached ? 2 : 3, "it has run out");
  });
}

test("the configuration's duration holds where the answer has none, and 0s is never kept", async (t) => {
  const bench = new Bench(t);
  bench.says(answer());
  const kept = bench.plugins([provider({ defaultCacheDuration: seconds(60) })]);
  for (let time = 0; time < 3; time += 1) await bench.found(kept);
  assert.equal(bench.runs.length, 1);
  bench.says(answer({ cacheDuration: "0s" }));
  const never = bench.plugins([provider({ defaultCacheDuration: seconds(60) })]);
  for (let time = 0; time < 3; time += 1) await bench.found(never);
  assert.equal(bench.runs.length, 4);
});

test("several plugins: more specific credentials first, and one that fails does not stand in the way", async (t) => {
  const bench = new Bench(t);
  bench.says(answer());
  bench.says(answer({ auth: { "eu.registry.example/team": { username: "team", password: "p" } } }), "second");
  bench.program("echo no such account >&2; exit 3", "broken");
  const names = ["plugin", "broken", "second"];
  const plugins = bench.plugins(names.map((name) => provider({ name })));
  assert.deepEqual(await bench.found(plugins), ["team:p", "user:password"]);
  assert.deepEqual(bench.failures, [
    `broken: error execing credential provider plugin broken for image ${IMAGE}: exit status 3: no such account`,
  ]);
});

for (const [what, text, problem] of [
  ["no JSON", "secret", /it is not JSON/],
  ["nothing", "", /it is not JSON/],
  ["another kind", answer({ kind: "Secret" }), /its kind is not CredentialProviderResponse/],
  ["another version", answer({ apiVersion: `${V1}beta1` }), /its apiVersion is not credentialprovider/],
  ["another cache key", answer({ cacheKeyType: "Pod" }), /its cacheKeyType is none of Image, Registry, Global/],
  ["no duration", answer({ cacheDuration: "soon" }), /its cacheDuration is no duration/],
  ["a password that is none", answer({ auth: { a: { username: "u", password: 5 } } }), /no user and password/],
] as const) {
  test(`an answer with ${what} is refused, without its content`, async (t) => {
    const bench = new Bench(t);
    bench.says(text);
    assert.deepEqual(await bench.found(bench.plugins([provider()])), []);
    assert.match(bench.failures.join(), problem);
    assert.doesNotMatch(bench.failures.join(), /secret/);
  });
}

test("a plugin that hangs is ended after a minute with all that it started, one that never stops writing at once", async (t) => {
  const bench = new Bench(t);
  const running = Promise.withResolvers<void>();
  // The virtual minute passes once the program has asked the clock to be watched.
  const clock: Clock = {
    monotonic: () => bench.clock.monotonic(),
    wall: () => bench.clock.wall(),
    sleep: (duration, stop) => {
      running.resolve();
      return bench.clock.sleep(duration, stop);
    },
  };
  bench.program("sleep 3600 & wait");
  const hung = bench.found(bench.plugins([provider()], clock));
  await running.promise;
  await bench.clock.advance(seconds(60));
  assert.deepEqual(await hung, []);
  assert.match(bench.failures.join(), /it did not end within 60 s/);
  bench.program("yes");
  assert.deepEqual(await bench.found(bench.plugins([provider()], systemClock)), []);
  assert.match(bench.failures.at(-1) ?? "", /it wrote more than 1048576 bytes/);
});

test("a program that is not there, and one that reads nothing", async (t) => {
  const bench = new Bench(t);
  assert.deepEqual(await bench.found(bench.plugins([provider({ name: "absent" })])), []);
  assert.match(bench.failures.join(), /cannot start it: spawn .*absent ENOENT/);
  writeFileSync(bench.folder.at("plugin"), `#!/bin/sh\nexec 0<&-\ncat <<'END'\n${answer()}\nEND\n`, { mode: 0o755 });
  assert.deepEqual(await bench.found(bench.plugins([provider()])), ["user:password"]);
});

test("with token attributes the plugin is given the pod's token, and its answer is that account's", async (t) => {
  const bench = new Bench(t);
  bench.says(answer({ cacheDuration: "1h" }));
  const tokenAttributes = {
    serviceAccountTokenAudience: "registry",
    cacheType: "ServiceAccount",
    requireServiceAccount: true,
  } as const;
  const plugins = bench.plugins([provider({ tokenAttributes })]);
  const shop = desired(podOf({ serviceAccountName: "shop" }, { uid: "api-uid" }));
  assert.deepEqual(await bench.found(plugins, IMAGE, shop), ["user:password"]);
  assert.deepEqual(bench.input, {
    kind: "CredentialProviderRequest",
    apiVersion: V1,
    image: IMAGE,
    serviceAccountToken: "token-1",
  });
  const { audiences, serviceAccount, podUid } = bench.objects.requests[0] ?? {};
  assert.deepEqual([audiences, serviceAccount, podUid], [["registry"], "shop", "api-uid"]);
  await bench.found(plugins, IMAGE, shop);
  assert.equal(bench.runs.length, 1, "the account's answer is kept");
  await bench.found(plugins, IMAGE, desired(podOf({ serviceAccountName: "other" })));
  assert.equal(bench.runs.length, 2, "another account's is not");
  const unnamed = desired(podOf());
  const nameless = { ...unnamed, pod: { ...unnamed.pod, spec: { ...unnamed.pod.spec, serviceAccountName: "" } } };
  assert.deepEqual(await bench.found(plugins, IMAGE, nameless), [], "and one is required");
  bench.says(answer({ auth: { "*.registry.example": { username: "u", password: "token-4" } } }));
  assert.deepEqual(await bench.found(plugins, IMAGE, desired(podOf({ serviceAccountName: "third" }))), []);
  assert.match(bench.failures.join(), /it gave back the service account's token/);
  bench.objects.goOffline();
  assert.deepEqual(await bench.found(plugins, IMAGE, shop), []);
  assert.match(bench.failures.at(-1) ?? "", /no hub is connected/);
});

test("whatever a plugin says, it is taken or refused", () => {
  const shaped = fc
    .record({ cacheKeyType: fc.constantFrom("Image", "Pod"), cacheDuration: fc.jsonValue(), auth: fc.jsonValue() })
    .map((change) => answer(change));
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), shaped), (text) => {
      try {
        for (const { password } of parseAnswer(text, V1).auth) assert.equal(typeof password, "string");
      } catch (error) {
        assert.ok(isPicoletError(error, "corrupt"), describeError(error));
      }
    }),
    { numRuns: 1000 },
  );
});
