import assert from "node:assert/strict";
import { test } from "node:test";
import { NODES, PODS, SECRETS, type WatchEvent } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import {
  answer,
  KubeWireServer,
  statusBody,
  type WireHandler,
} from "@picolet/test/support/unit/kubernetes/kube-wire-server.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import type { ClusterCredentials } from "./cluster-access.ts";
import { HttpKubeClient } from "./http-kube-client.ts";
import { KubeTransport, type KubeTransportInit } from "./kube-transport.ts";

const { signal } = new AbortController();
const POD = { namespace: "default", name: "web" };
const pod = (resourceVersion: string): Record<string, unknown> => ({ metadata: { ...POD, resourceVersion } });

async function started(handler: WireHandler, init: KubeTransportInit = {}) {
  const server = await KubeWireServer.start(handler);
  const components = {
    access: server.access({ authorization: "Bearer t" }),
    clock: systemClock,
    random: seededRandom(1),
  };
  const transport = new KubeTransport(components, init);
  return {
    server,
    client: new HttpKubeClient(transport),
    [Symbol.asyncDispose]: async (): Promise<void> => {
      await transport[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function all(events: AsyncIterable<WatchEvent>): Promise<WatchEvent[]> {
  const found: WatchEvent[] = [];
  for await (const event of events) found.push(event);
  return found;
}

const line = (type: string, object: unknown): string => `${JSON.stringify({ type, object })}\n`;

test("every call goes to its path, as whom it is made, with its options", async () => {
  await using at = await started((_request, response) =>
    answer(response, 200, { kind: "Pod", apiVersion: "v1", ...pod("1") }),
  );
  const node = at.client.as("system:node:a", ["system:nodes", "system:authenticated"]);
  await at.client.get(PODS, POD, signal);
  await node.patch(PODS, POD, "strategic", { status: {} }, { subresource: "status", fieldManager: "hub" }, signal);
  await at.client.create(
    NODES,
    { namespace: "", name: "" },
    { metadata: { generateName: "n-" } },
    { dryRun: true },
    signal,
  );
  await at.client.create(PODS, POD, { target: {} }, { subresource: "binding" }, signal);
  await node.delete(PODS, POD, { gracePeriodSeconds: 0, uid: "u" }, signal);
  const seen = at.server.requests.map(({ method, path, query }) => `${method} ${path} ${query}`.trim());
  assert.deepEqual(seen, [
    "GET /api/v1/namespaces/default/pods/web",
    "PATCH /api/v1/namespaces/default/pods/web/status fieldManager=hub",
    "POST /api/v1/nodes dryRun=All",
    "POST /api/v1/namespaces/default/pods/web/binding",
    "DELETE /api/v1/namespaces/default/pods/web",
  ]);
  const [get, patch, , , remove] = at.server.requests;
  assert.equal(get?.headers.authorization, "Bearer t");
  assert.equal(get?.headers["impersonate-user"], undefined);
  assert.equal(patch?.headers["impersonate-user"], "system:node:a");
  assert.equal(patch?.headers["impersonate-group"], "system:nodes, system:authenticated");
  assert.equal(patch?.headers["content-type"], "application/strategic-merge-patch+json");
  assert.deepEqual((remove?.body as { preconditions?: unknown } | undefined)?.preconditions, { uid: "u" });
  assert.ok(at.server.connections <= 2, "connections are kept");
});

test("a name cannot lead to another path", async () => {
  await using at = await started((_request, response) => answer(response, 200, {}));
  await assert.rejects(at.client.get(PODS, { namespace: "default", name: ".." }, signal), (error) =>
    isPicoletError(error, "invalid"),
  );
  await at.client.get(PODS, { namespace: "a/../b", name: "x?y#z" }, signal);
  assert.equal(at.server.requests[0]?.path, "/api/v1/namespaces/a%2F..%2Fb/pods/x%3Fy%23z");
});

for (const [code, reason, expected, retryable] of [
  [404, "NotFound", "not_found", false],
  [409, "AlreadyExists", "already_exists", false],
  [409, "Conflict", "conflict", false],
  [410, "Gone", "conflict", false],
  [422, "Invalid", "invalid", false],
  [403, "Forbidden", "permission_denied", false],
  [401, "Unauthorized", "permission_denied", false],
  [413, "RequestEntityTooLarge", "resource_exhausted", false],
  [500, "InternalError", "unavailable", true],
  [503, "ServiceUnavailable", "unavailable", true],
  [504, "Timeout", "deadline_exceeded", true],
] as const) {
  test(`${code} ${reason} is ${expected}`, async () => {
    await using at = await started((_request, response) =>
      answer(response, code, statusBody(code, reason, "the cause")),
    );
    await assert.rejects(at.client.get(PODS, POD, signal), (error) => {
      assert.ok(isPicoletError(error, expected));
      assert.equal(error.retryable, retryable);
      assert.equal(error.reason, code === 410 ? "Expired" : reason);
      assert.match(String((error.cause as Error).message), /the cause/);
      return true;
    });
  });
}

test("a 429 is obeyed and the call made again", async () => {
  await using at = await started((_request, response) => {
    if (at.server.requests.length < 3)
      answer(response, 429, statusBody(429, "TooManyRequests"), { "retry-after": "0" });
    else answer(response, 200, pod("1"));
  });
  await at.client.create(PODS, POD, {}, {}, signal);
  assert.equal(at.server.requests.length, 3);
});

test("a credential that was refused is requested again, once", async () => {
  await using at = await started((request, response) => {
    if (request.headers.authorization === "Bearer new") answer(response, 200, pod("1"));
    else answer(response, 401, statusBody(401, "Unauthorized"));
  });
  let token = "old";
  const access = {
    ...at.server.access(),
    credentials: async () => ({ tls: { ca: at.server.authority.ca }, headers: { authorization: `Bearer ${token}` } }),
    refused: () => {
      token = "new";
    },
  };
  await using transport = new KubeTransport({ access, clock: systemClock, random: seededRandom(1) });
  await new HttpKubeClient(transport).get(PODS, POD, signal);
  assert.equal(at.server.requests.length, 2);
});

test("credentials that cannot be read for a moment are no reason to stop, and new ones are used from then on", async () => {
  await using at = await started((_request, response) => answer(response, 200, pod("1")));
  const other = at.server.authority.ca.replace(/\n$/, "");
  let found: (() => ClusterCredentials) | undefined = () => ({
    tls: { ca: at.server.authority.ca },
    headers: { authorization: "1" },
  });
  const clock = new VirtualClock();
  const access = {
    ...at.server.access(),
    credentials: async () => {
      if (found === undefined) throw new Error("no such file");
      return found();
    },
  };
  const transport = new KubeTransport({ access, clock, random: seededRandom(1) });
  const client = new HttpKubeClient(transport);
  const asked = async (): Promise<unknown> => {
    await client.get(PODS, POD, signal);
    return at.server.requests.at(-1)?.headers.authorization;
  };
  assert.equal(await asked(), "1");
  found = undefined;
  await clock.advance(seconds(11));
  assert.equal(await asked(), "1");
  found = () => ({ tls: { ca: other }, headers: { authorization: "2" } });
  await clock.advance(seconds(11));
  assert.equal(await asked(), "2");
  assert.ok(at.server.connections > 1, "other certificates are other connections");
  await transport[Symbol.asyncDispose]();
  await assert.rejects(asked(), (error) => isPicoletError(error, "unavailable"));
});

test("a server of another authority is not spoken to", async () => {
  await using at = await started((_request, response) => answer(response, 200, pod("1")));
  const other = await KubeWireServer.start((_request, response) => answer(response, 200, pod("1")));
  await using _ = other;
  const access = { ...other.access(), server: at.server.url };
  await using transport = new KubeTransport({ access, clock: systemClock, random: seededRandom(1) });
  await assert.rejects(new HttpKubeClient(transport).get(PODS, POD, signal), (error) =>
    isPicoletError(error, "unavailable"),
  );
  assert.equal(at.server.requests.length, 0);
});

test("an answer that does not come ends at the deadline, a caller that gives up at once", async () => {
  await using at = await started(() => undefined, { requestTimeout: millis(50) });
  await assert.rejects(at.client.get(PODS, POD, signal), (error) => isPicoletError(error, "deadline_exceeded"));
  const caller = new AbortController();
  const asked = at.client.get(PODS, POD, caller.signal);
  caller.abort();
  await assert.rejects(asked, (error) => isPicoletError(error, "cancelled"));
});

test("what is no JSON, and what is too much of it, is an error and nothing else", async () => {
  await using at = await started((request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    if (request.path.endsWith("web")) response.end("<html>");
    else {
      const piece = Buffer.alloc(8 << 20, 32);
      for (let index = 0; index < 9; index += 1) response.write(piece);
      response.end();
    }
  });
  await assert.rejects(at.client.get(PODS, POD, signal), (error) => isPicoletError(error, "corrupt"));
  await assert.rejects(at.client.list(PODS, {}, signal), (error) => isPicoletError(error, "resource_exhausted"));
});

test("a list comes in pages whose items have their kind", async () => {
  await using at = await started((request, response) => {
    const isFirst = request.query.get("continue") === null;
    const metadata = isFirst ? { resourceVersion: "7", continue: "more" } : { resourceVersion: "7" };
    answer(response, 200, { metadata, items: isFirst ? [pod("1")] : null });
  });
  const first = await at.client.list(SECRETS, { limit: 1, metadataOnly: true, labelSelector: "a in (b,c)" }, signal);
  const { continue: token } = first;
  assert.deepEqual([first.items[0]?.kind, first.resourceVersion, token], ["Secret", "7", "more"]);
  const rest = await at.client.list(SECRETS, { continue: "more" }, signal);
  assert.deepEqual(rest, { items: [], resourceVersion: "7", continue: undefined });
  assert.equal(at.server.requests[0]?.query.get("labelSelector"), "a in (b,c)");
  assert.match(at.server.requests[0]?.headers.accept ?? "", /as=PartialObjectMetadataList.*,application\/json$/);
});

test("a watch yields whole events however they are cut on the way", async () => {
  const object = { kind: "Pod", apiVersion: "v1", metadata: { ...POD, resourceVersion: "5" }, text: "grün ✓" };
  const stream = Buffer.from(
    line("ADDED", object) + line("BOOKMARK", { metadata: { resourceVersion: "9" } }) + line("DELETED", object),
  );
  for (const size of [1, 7, stream.length]) {
    await using at = await started(async (_request, response) => {
      response.writeHead(200);
      for (let start = 0; start < stream.length; start += size) {
        response.write(stream.subarray(start, start + size));
        if (size > 1) await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
    });
    const events = await all(at.client.watch(PODS, { resourceVersion: "4" }, signal));
    assert.deepEqual(events, [
      { type: "ADDED", object },
      { type: "BOOKMARK", resourceVersion: "9" },
      { type: "DELETED", object },
    ]);
    assert.equal(at.server.requests[0]?.query.get("allowWatchBookmarks"), "true");
  }
});

test("the error that a watch ends with is thrown with its reason", async () => {
  await using at = await started((_request, response) => {
    response.writeHead(200).end(line("ERROR", statusBody(410, "Expired", "too old resource version")));
  });
  await assert.rejects(
    all(at.client.watch(PODS, {}, signal)),
    (error) => isPicoletError(error) && error.reason === "Expired",
  );
});

test("a watch that is refused, cut or left reports it", async () => {
  await using at = await started((request, response) => {
    if (request.query.get("fieldSelector") === "bad") answer(response, 403, statusBody(403, "Forbidden"));
    else response.writeHead(200).write(line("ADDED", { metadata: { name: "a", resourceVersion: "1" } }));
  });
  const refused = all(at.client.watch(PODS, { fieldSelector: "bad" }, signal));
  await assert.rejects(refused, (error) => isPicoletError(error, "permission_denied"));
  const cut = (async () => {
    for await (const _ of at.client.watch(PODS, {}, signal)) at.server.cut();
  })();
  await assert.rejects(cut, (error) => isPicoletError(error, "unavailable"));
  const caller = new AbortController();
  const left = (async () => {
    for await (const _ of at.client.watch(PODS, {}, caller.signal)) caller.abort();
  })();
  await assert.rejects(left, (error) => isPicoletError(error, "cancelled"));
});

test("a line without an end is refused before it fills the memory", async () => {
  const piece = Buffer.alloc(1 << 20, 97);
  await using at = await started((_request, response) => {
    response.writeHead(200);
    const more = (): void => {
      while (!response.destroyed && response.write(piece));
    };
    response.on("drain", more);
    more();
  });
  await assert.rejects(all(at.client.watch(PODS, {}, signal)), (error) => isPicoletError(error, "resource_exhausted"));
});

test("any watch stream gives events or a PicoletError", async () => {
  let body: Uint8Array = new Uint8Array();
  await using at = await started((_request, response) => void response.writeHead(200).end(body));
  const valid = line("MODIFIED", { metadata: { name: "a", resourceVersion: "2" } });
  const pieces = fc.oneof(
    fc.constant(Buffer.from(valid)),
    fc.json().map((text) => Buffer.from(`${text}\n`)),
    fc.json().map((text) => Buffer.from(`{"type":"ADDED","object":${text}}\n`)),
    fc.uint8Array({ maxLength: 60 }),
    fc.tuple(fc.nat(valid.length), fc.constant(valid)).map(([at_, text]) => Buffer.from(text.slice(at_))),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(pieces, { maxLength: 8 }), async (parts) => {
      body = Buffer.concat(parts);
      try {
        for (const event of await all(at.client.watch(PODS, {}, signal))) {
          if (event.type === "BOOKMARK") assert.equal(typeof event.resourceVersion, "string");
          else assert.equal(typeof event.object.metadata.name, "string");
        }
      } catch (error) {
        assert.ok(isPicoletError(error), String(error));
      }
    }),
    { numRuns: 150 },
  );
});
