/** Access to registries: Basic, token servers, identity tokens, and the messages of a refusal. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import type { ImageCredentials } from "@picolet/runtime-contract/runtime-adapter.ts";
import { artifact, digestOf } from "../support/unit/images/oci-content.ts";
import { testComponent } from "../support/wasm/components.ts";
import { PullBench } from "../support/wasm/pull-bench.ts";

const component = readFileSync(await testComponent("exit-42.wat"));
const ID = digestOf(component);
const ME: ImageCredentials = { username: "me", password: "secret", serverAddress: "" };
const SECRET = { credentials: ME, credentialsFrom: "secret shop/pull" };

interface TokenRequest {
  readonly line: string;
  readonly authorization: string | undefined;
  readonly body: string;
}

/** Gives the user `me` a token; each is good for `uses` requests. */
class TokenServer implements AsyncDisposable {
  readonly requests: TokenRequest[] = [];
  readonly #server: Server;
  readonly #uses = new Map<string, number>();
  answer: (request: TokenRequest, response: ServerResponse) => void = ({ authorization, body }, response) => {
    const isMe = authorization === `Basic ${Buffer.from("me:secret").toString("base64")}`;
    const isHolder = new URLSearchParams(body).get("refresh_token") === "identity";
    if (!isMe && !isHolder) return void response.writeHead(401).end('{"errors":[{"message":"who are you"}]}');
    const token = `token-${this.#uses.size + 1}`;
    this.#uses.set(token, 0);
    response.end(JSON.stringify(isHolder ? { access_token: token } : { token, expires_in: 60 }));
  };

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(context: TestContext): Promise<TokenServer> {
    const server = createServer();
    const tokens = new TokenServer(server);
    server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      let body = "";
      request.setEncoding("utf8").on("data", (text: string) => {
        body += text;
      });
      request.once("end", () => {
        const { authorization } = request.headers;
        const told = { line: `${request.method} ${request.url}`, authorization, body };
        tokens.requests.push(told);
        tokens.answer(told, response);
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    context.after(() => tokens[Symbol.asyncDispose]());
    return tokens;
  }

  get realm(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/token`;
  }

  /** Requires a token that is still valid. */
  guard(bench: PullBench, uses: number): void {
    const { realm } = this;
    bench.registry.intercept = ({ headers, url = "" }, response) => {
      const token = (headers.authorization ?? "").replace(/^Bearer /, "");
      const used = this.#uses.get(token);
      if (used !== undefined && used < uses) {
        this.#uses.set(token, used + 1);
        return false;
      }
      const scope = `repository:${/^\/v2\/(.*)\/(?:manifests|blobs)\//.exec(url)?.[1]}:pull`;
      const challenge = `Bearer realm="${realm}",service="the \\"registry\\"",scope="${scope}"`;
      return Boolean(response.writeHead(401, { "www-authenticate": challenge }).end());
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

async function start(context: TestContext): Promise<{ readonly bench: PullBench; readonly tokens: TokenServer }> {
  const bench = await PullBench.create();
  context.after(() => bench[Symbol.asyncDispose]());
  bench.registry.add(artifact(component), [component], "1");
  return { bench, tokens: await TokenServer.start(context) };
}

function basic(bench: PullBench): void {
  bench.registry.intercept = ({ headers }, response) => {
    if (headers.authorization === `Basic ${Buffer.from("me:secret").toString("base64")}`) return false;
    const told = '{"errors":[{"code":"UNAUTHORIZED","message":"\\u001b[31mno entry"}]}';
    return Boolean(response.writeHead(401, { "WWW-Authenticate": 'Basic realm="test"' }).end(told));
  };
}

test("a registry that asks for a user and a password gets them, once it has asked", async (context) => {
  const { bench } = await start(context);
  basic(bench);
  assert.equal((await bench.pull("app:1", SECRET)).id, ID);
  assert.equal(bench.registry.authorizations[0], undefined);
});

test("who is not let in is told by host, by status, and by the secret that was tried", async (context) => {
  const { bench, tokens } = await start(context);
  basic(bench);
  const { address } = bench.registry;
  const wrong = { ...SECRET, credentials: { ...ME, password: "wrong" } };
  const elsewhere = { ...SECRET, credentials: { ...ME, serverAddress: "https://registry.invalid" } };
  await bench.refuses(
    "app:1",
    "permission_denied",
    new RegExp(`${address} does not let .* \\(401\\), tried as "me" of secret shop/pull`),
    wrong,
  );
  await bench.refuses("app:1", "permission_denied", /\(401\), tried without credentials/);
  await bench.refuses("app:1", "permission_denied", /tried without credentials/, elsewhere);
  assert.ok(!bench.registry.authorizations.includes(`Basic ${Buffer.from("me:secret").toString("base64")}`));
  tokens.guard(bench, 9);
  await bench.refuses("app:1", "permission_denied", /\(401\), tried as "me" of secret shop\/pull: who are you/, wrong);
  bench.registry.intercept = (_, response) => Boolean(response.writeHead(403).end());
  await bench.refuses("app:1", "permission_denied", /\(403\), tried as "me" of secret shop\/pull$/, SECRET);
  bench.registry.intercept = () => false;
  await bench.refuses(
    "app:none",
    "not_found",
    new RegExp(`${address} has no manifest none: MANIFEST_UNKNOWN: manifest unknown`),
  );
});

test("a token server gives a token for this repository, and another one when that has run out", async (context) => {
  const { bench, tokens } = await start(context);
  tokens.guard(bench, 1);
  assert.equal((await bench.pull("team/app:1", SECRET)).id, ID);
  const query = "service=the+%22registry%22&scope=repository%3Ateam%2Fapp%3Apull&account=me";
  assert.deepEqual(
    tokens.requests.map(({ line }) => line),
    [`GET /token?${query}`, `GET /token?${query}`],
  );
  assert.ok(bench.registry.authorizations.includes("Bearer token-2"));
  assert.ok(
    !bench.registry.authorizations.some((each) => each?.startsWith("Basic")),
    "the password is for the token server",
  );
});

test("an identity token is exchanged for one, a registry's own is sent as it is", async (context) => {
  const { bench, tokens } = await start(context);
  tokens.guard(bench, 9);
  const identity = { username: "", password: "", serverAddress: "", identityToken: "identity" };
  assert.equal((await bench.pull("app:1", { credentials: identity })).id, ID);
  const [request] = tokens.requests;
  assert.equal(request?.line, "POST /token");
  const form = new URLSearchParams(request?.body);
  assert.deepEqual([form.get("grant_type"), form.get("scope")], ["refresh_token", "repository:app:pull"]);
  bench.registry.intercept = () => false;
  const own = { username: "", password: "", serverAddress: "", registryToken: "own" };
  await bench.pull("app:1", { credentials: own });
  assert.equal(bench.registry.authorizations.at(-1), "Bearer own");
});

test("an identity token goes nowhere but to the token server that was named", async (context) => {
  const { bench, tokens } = await start(context);
  await using thief = await TokenServer.start(context);
  tokens.guard(bench, 9);
  const location = thief.realm.replace("127.0.0.1", "localhost");
  tokens.answer = (_, response) => void response.writeHead(307, { location }).end();
  const identity = { username: "", password: "", serverAddress: "", identityToken: "identity" };
  await bench.refuses("app:1", "failed", /redirects what is for it alone to localhost:/, { credentials: identity });
  assert.deepEqual(thief.requests, []);
});

test("a token server that gives none, or stands where nothing is encrypted that should be, is named", async (context) => {
  const { bench, tokens } = await start(context);
  tokens.guard(bench, 9);
  const answers: readonly [answer: (response: ServerResponse) => void, code: string, text: RegExp][] = [
    [(response) => response.end("{}"), "failed", /gives no token for/],
    [(response) => response.end('{"token":"a\\nb"}'), "failed", /gives no token for/],
    [(response) => response.end("<html>"), "corrupt", /is no JSON/],
    [(response) => response.end("x".repeat(300_000)), "resource_exhausted", /the token of .* is larger than/],
    [(response) => response.writeHead(500).end(), "unavailable", /cannot answer now \(500\)/],
  ];
  for (const [answer, code, text] of answers) {
    tokens.answer = (_, response) => answer(response);
    await bench.refuses("app:1", code, text, SECRET);
  }
  for (const realm of ["", "ftp://127.0.0.1/", "no url"]) {
    const challenge = { "www-authenticate": `Bearer realm="${realm}"` };
    bench.registry.intercept = (_, response) => Boolean(response.writeHead(401, challenge).end());
    await bench.refuses("app:1", "failed", /token server that cannot be asked/, SECRET);
  }
});
