/**
 * Ways to registries: by HTTPS with a private authority, and through proxies, which receive only their own credentials.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { TlsAuthority } from "../support/unit/identity/tls-authority.ts";
import { ConnectProxy } from "../support/unit/images/connect-proxy.ts";
import { artifact, digestOf } from "../support/unit/images/oci-content.ts";
import { ScriptedRegistry } from "../support/unit/images/scripted-registry.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { testComponent } from "../support/wasm/components.ts";
import { PullBench, QUICK_PULLS } from "../support/wasm/pull-bench.ts";
import type { WasmRuntimeOptions } from "../support/wasm/wasm-runtime.ts";

const component = readFileSync(await testComponent("exit-42.wat"));
const ID = digestOf(component);
const ME = {
  credentials: { username: "me", password: "secret", serverAddress: "" },
  credentialsFrom: "secret shop/pull",
};
const MY_SECRET = Buffer.from("me:secret").toString("base64");
/** No resolver knows it: a client that reaches it has gone through the proxy. */
const NAME = "registry.test";

const folder = new TempFolder();
const authority = new TlsAuthority("private authority");
const caFile = folder.at("ca.pem");
writeFileSync(caFile, authority.ca);
process.once("exit", () => folder[Symbol.dispose]());

async function bench(
  context: TestContext,
  how: "https" | "http",
  options: (registry: ScriptedRegistry) => WasmRuntimeOptions,
): Promise<PullBench> {
  const registry = await ScriptedRegistry.start(how === "https" ? authority.issueServer(NAME) : undefined);
  registry.add(artifact(component), [component], "1");
  const made = await PullBench.create(options(registry), registry);
  context.after(() => made[Symbol.asyncDispose]());
  return made;
}

async function proxyBefore(context: TestContext): Promise<ConnectProxy> {
  const proxy = await ConnectProxy.start();
  context.after(() => proxy[Symbol.asyncDispose]());
  return proxy;
}

const portOf = ({ address }: { readonly address: string }): number => Number(address.split(":")[1]);

/** Lets in who says who they are. */
function guard({ registry }: PullBench): void {
  registry.intercept = ({ headers }, response) => {
    if (headers.authorization === `Basic ${MY_SECRET}`) return false;
    return Boolean(response.writeHead(401, { "WWW-Authenticate": 'Basic realm="test"' }).end());
  };
}

test("a registry with a private authority is pulled from where caFile names it, and from nobody else's", async (context) => {
  const trusting = await bench(context, "https", ({ address }) => ({ registries: [{ host: address, caFile }] }));
  guard(trusting);
  assert.equal((await trusting.pull("app:1", ME)).id, ID);
  const doubting = await bench(context, "https", ({ address }) => ({
    registries: [{ host: address, insecure: false }],
  }));
  await doubting.refuses(
    "app:1",
    "unavailable",
    new RegExp(
      `cannot reach ${doubting.registry.address}: its certificate is not signed by an authority .*registries\\[\\]\\.caFile`,
    ),
  );
  assert.deepEqual(doubting.registry.requests, [], "nothing was said to it");
  const other = folder.at("other.pem");
  writeFileSync(other, new TlsAuthority("another authority").ca);
  const misled = await bench(context, "https", ({ address }) => ({ registries: [{ host: address, caFile: other }] }));
  await misled.refuses("app:1", "unavailable", /its certificate is not signed by an authority/);
  const gone = await bench(context, "https", ({ address }) => ({
    registries: [{ host: address, caFile: "/none.pem" }],
  }));
  await gone.refuses("app:1", "invalid", /cannot read the authority \/none\.pem of wasm\.registries/);
});

test("an encrypted registry is reached through a tunnel, and the proxy learns its own password alone", async (context) => {
  const proxy = await proxyBefore(context);
  proxy.user = "board:pr%oxy";
  const made = await bench(context, "https", () => ({
    registries: [{ host: NAME, caFile }],
    proxies: { httpProxy: "", httpsProxy: `http://board:pr%25oxy@${proxy.address}`, noProxy: "" },
  }));
  guard(made);
  proxy.places.set(`${NAME}:443`, portOf(made.registry));
  const image = await made.adapter.images.pull(`${NAME}/app:1`, ME, new AbortController().signal);
  assert.equal(image.id, ID);
  assert.deepEqual([...new Set(proxy.asked)], [`CONNECT ${NAME}:443`]);
  assert.ok(!proxy.headers.some((each) => each.includes(MY_SECRET)), "the registry's password");
  assert.ok(made.registry.authorizations.includes(`Basic ${MY_SECRET}`));
});

test("a plain registry is reached through a proxy too, and what noProxy names is not", async (context) => {
  const proxy = await proxyBefore(context);
  const made = await bench(context, "http", () => ({
    registries: [{ host: NAME, insecure: true }],
    proxies: { httpProxy: proxy.address, httpsProxy: "", noProxy: "other.test" },
  }));
  proxy.places.set(`${NAME}:80`, portOf(made.registry));
  const pull = (name: string): Promise<unknown> => made.adapter.images.pull(name, {}, new AbortController().signal);
  await pull(`${NAME}/app:1`);
  assert.match(proxy.asked[0] ?? "", /^GET http:\/\/registry\.test\/v2\/app\/manifests\/1$/);
  const before = proxy.asked.length;
  await made.pull("app:1");
  assert.equal(proxy.asked.length, before, "the loopback is nobody's to proxy");
});

test("what keeps a proxy from helping is told with its name and without its password", async (context) => {
  const proxy = await proxyBefore(context);
  const { address } = proxy;
  const asking = (connectTimeoutMs: number): Promise<PullBench> =>
    bench(context, "https", () => ({
      registries: [{ host: NAME, caFile }],
      proxies: { httpProxy: "", httpsProxy: `http://board:wrong@${address}`, noProxy: "" },
      pullLimits: { ...QUICK_PULLS, connectTimeoutMs },
    }));
  const patient = await asking(30_000);
  const refused = async (why: string, made = patient): Promise<void> => {
    const pulled = made.adapter.images.pull(`${NAME}/app:1`, ME, new AbortController().signal);
    await assert.rejects(pulled, (error: Error) => {
      const { message } = (error.cause ?? error) as Error;
      assert.match(
        `${error.message} ${message}`,
        new RegExp(`cannot reach ${NAME} through the proxy http://${address}: ${why}`),
      );
      assert.doesNotMatch(`${error.message} ${message}`, /wrong/);
      return true;
    });
  };
  proxy.user = "board:right";
  await refused("it wants a user and a password, or others \\(407\\)");
  proxy.user = undefined;
  proxy.refusal = 403;
  await refused("it refuses \\(403\\)");
  proxy.refusal = undefined;
  await refused("it refuses \\(502\\)");
  proxy.isSilent = true;
  await refused("it did not answer in time", await asking(500));
  await proxy[Symbol.asyncDispose]();
  await refused("connection refused");
});
