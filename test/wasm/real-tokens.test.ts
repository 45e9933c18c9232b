/** Pulls from Debian's docker-registry that believes a token server alone: JWTs which it verifies itself. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { ImageCredentials } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { Registry, registryMissing } from "../support/containerd/real-registry.ts";
import { TokenServer } from "../support/containerd/token-server.ts";
import { artifact, digestOf, WASM_CONFIG } from "../support/unit/images/oci-content.ts";
import { padded } from "../support/unit/images/padded-component.ts";
import { testComponent } from "../support/wasm/components.ts";
import { QUICK_PULLS } from "../support/wasm/pull-bench.ts";
import { WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const skip = registryMissing() ?? false;
const NEVER = new AbortController().signal;
const component = readFileSync(await testComponent("exit-42.wat"));
const ME: ImageCredentials = { username: "me", password: "secret", serverAddress: "" };
const SECRET = { credentials: ME, credentialsFrom: "secret shop/pull" };
const REPOSITORY = "team/app";

describe("a real registry that takes tokens alone", { skip }, () => {
  let runtime: WasmRuntime;
  let adapter: WasmAdapter;
  let tokens: TokenServer;
  let registry: Registry;

  before(async () => {
    runtime = await WasmRuntime.create({ pullLimits: QUICK_PULLS });
    adapter = runtime.adapter();
    tokens = await TokenServer.start([ME.username, ME.password]);
    registry = await Registry.start({ tokens: tokens.trust });
    await publish(registry, component);
  });
  after(async () => {
    await using all = new AsyncDisposableStack();
    for (const each of [runtime, adapter, tokens, registry]) if (each !== undefined) all.use(each);
  });

  /** @returns what was asked of the token server meanwhile */
  async function refused(code: string, text: RegExp, options: object = SECRET): Promise<TokenServer["asked"]> {
    const before = tokens.asked.length;
    const pull = adapter.images.pull(`${registry.address}/${REPOSITORY}:1`, options, NEVER);
    await assert.rejects(pull, (error) => {
      assert.match(describeError(error), text);
      return isPicoletError(error) && error.code === code && error.reason === "ErrImagePull";
    });
    return tokens.asked.slice(before);
  }

  test("the right password opens a repository, whatever the tokens are signed with", async () => {
    for (const algorithm of ["ES256", "RS256"] as const) {
      await using server = await TokenServer.start([ME.username, ME.password], algorithm);
      await using own = await Registry.start({ tokens: server.trust });
      await publish(own, component);
      const { id } = await adapter.images.pull(`${own.address}/${REPOSITORY}:1`, SECRET, NEVER);
      assert.equal(id, digestOf(component), algorithm);
      const asked = { scopes: [`repository:${REPOSITORY}:pull`], account: "me", isRight: true };
      assert.deepEqual(server.asked, [asked], "one token for all of a pull");
    }
  });

  test("a wrong password, nobody, and a token that is good for something else are refused by name", async () => {
    const wrong = { ...SECRET, credentials: { ...ME, password: "guess" } };
    const asWho = (who: string): string => `does not let this node in \\(401\\), tried ${who}`;
    const secret = 'as "me" of secret shop/pull';
    await refused(
      "permission_denied",
      new RegExp(`${tokens.address} ${asWho(secret)}: UNAUTHORIZED: wrong user or password`),
      wrong,
    );
    await refused("permission_denied", new RegExp(`${registry.address} ${asWho("without credentials")}: `), {});
    tokens.granted = () => ["repository:team/other:pull"];
    try {
      const asked = await refused(
        "permission_denied",
        new RegExp(`${registry.address} ${asWho(secret)}: insufficient_scope: UNAUTHORIZED: authentication required`),
      );
      assert.ok(asked.length > 0 && asked.length < 3, `${asked.length} tokens`);
    } finally {
      tokens.granted = (scopes) => scopes;
    }
  });

  test("a token that runs out while a blob comes in pieces is fetched anew, and what is here is kept", async () => {
    const large = padded(component, 2_000_000);
    await publish(registry, large, "large");
    await using front = await CuttingFront.start(registry.address);
    tokens.lifeSeconds = 3;
    try {
      const before = tokens.asked.length;
      const { id } = await adapter.images.pull(`${front.address}/${REPOSITORY}:large`, SECRET, NEVER);
      assert.equal(id, digestOf(large));
      assert.ok(tokens.asked.length - before >= 2, "more than one token");
      const [refusedAt, resumedAt] = [401, 206].map((status) => front.ranges.find((each) => each.status === status));
      const from = resumedAt?.start ?? 0;
      // Data in a connection's buffers, some 100 KiB, may be lost with it.
      assert.ok(from > front.cutAt / 2 && from <= front.cutAt, `goes on at ${from} of ${front.cutAt}`);
      assert.equal(refusedAt?.start, from);
    } finally {
      tokens.lifeSeconds = 300;
    }
  });

  test("a token server that is away, talks nonsense or without end is named with its registry", async () => {
    const gone = await TokenServer.start([ME.username, ME.password]);
    const { address } = gone;
    await using other = await Registry.start({ tokens: gone.trust });
    await gone[Symbol.asyncDispose]();
    const pull = adapter.images.pull(`${other.address}/${REPOSITORY}:1`, SECRET, NEVER);
    await assert.rejects(pull, (error) => {
      const named = `cannot reach ${address}, the token server of ${other.address}: connection refused`;
      assert.match(describeError(error), new RegExp(named));
      return isPicoletError(error, "unavailable") && error.retryable;
    });
    const garbage = Buffer.from("\0\x01{{{");
    const answers: readonly [answer: (response: ServerResponse) => void, code: string, text: RegExp][] = [
      [(response) => response.end(garbage), "corrupt", new RegExp(`token of ${tokens.address} is no JSON`)],
      [(response) => response.end('{"token":42}'), "failed", /gives no token for/],
      [(response) => response.end('{"token":"a.b.c"}'), "permission_denied", /does not let this node in \(401\)/],
      [(response) => response.writeHead(503).end(garbage), "unavailable", /cannot answer now \(503\)/],
      [(response) => response.destroy(), "unavailable", new RegExp(`${tokens.address}, the token server of `)],
      [endless, "resource_exhausted", new RegExp(`token of ${tokens.address} is larger than 262144 bytes`)],
    ];
    try {
      for (const [answer, code, text] of answers) {
        tokens.answer = answer;
        await refused(code, text);
      }
    } finally {
      tokens.answer = undefined;
    }
  });
});

async function publish(registry: Registry, content: Uint8Array, tag = "1"): Promise<void> {
  await registry.pushContent(REPOSITORY, tag, artifact(content), [content, WASM_CONFIG]);
}

/** Writes until its reader goes. */
function endless(response: ServerResponse): void {
  const chunk = Buffer.alloc(65_536, "x");
  const write = (): void => {
    while (!response.destroyed && response.write(chunk)) {}
  };
  response.on("drain", write);
  response.write('{"token":"');
  write();
}

/**
 * Stands before a registry. It cuts the first blob off in the middle, and passes what follows on when the registry
 * takes the token that it came with no more.
 */
class CuttingFront implements AsyncDisposable {
  readonly ranges: { readonly start: number; readonly status: number | undefined }[] = [];
  cutAt = 0;
  readonly #registry: string;
  readonly #server: Server;

  private constructor(server: Server, registry: string) {
    this.#server = server;
    this.#registry = registry;
  }

  static async start(registry: string): Promise<CuttingFront> {
    const server = createServer();
    const front = new CuttingFront(server, registry);
    server.on("request", (incoming, outgoing) => void front.#pass(incoming, outgoing));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return front;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async #pass({ url = "", headers }: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const start = /^bytes=(\d+)-$/.exec(headers.range ?? "")?.[1];
    if (start !== undefined && this.ranges.length === 0) await this.#untilRefused(url, headers.authorization ?? "");
    const response = await this.#asked(url, headers);
    if (start !== undefined) this.ranges.push({ start: Number(start), status: response.statusCode });
    outgoing.writeHead(response.statusCode ?? 502, response.headers);
    if (url.includes("/blobs/") && response.statusCode === 200 && this.cutAt === 0) {
      const half = Number(response.headers["content-length"]) >> 1;
      for await (const chunk of response as AsyncIterable<Buffer>) {
        const piece = chunk.subarray(0, half - this.cutAt);
        this.cutAt += piece.length;
        await new Promise<void>((resolve) => outgoing.write(piece, () => resolve()));
        if (this.cutAt === half) break;
      }
      outgoing.socket?.end();
    } else response.pipe(outgoing);
  }

  async #untilRefused(url: string, authorization: string): Promise<void> {
    for (let status: number | undefined; status !== 401; ) {
      const response = await this.#asked(url, { authorization, range: "bytes=0-0" });
      response.resume();
      await once(response, "end");
      status = response.statusCode;
    }
  }

  async #asked(path: string, headers: IncomingMessage["headers"]): Promise<IncomingMessage> {
    const asked = request(`http://${this.#registry}${path}`, { headers });
    asked.end();
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    return response;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
