import assert from "node:assert/strict";
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { request as httpsRequest } from "node:https";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { KubeletUser } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { counter, metricsText } from "@picolet/protocol/metrics/metrics.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { type FrontProxy, MetricsAccess, type MetricsQuestion } from "./metrics-access.ts";
import { type MetricsHandler, MetricsServer, textHandler } from "./metrics-server.ts";
import { usageApi } from "./usage-api.ts";

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

type Client = { readonly cert: string; readonly key: string };

const TABLE = [counter<undefined>("x_total", "X.", [], () => [{ labels: [], value: 1 }])];
const metrics = textHandler("/metrics", (format) => metricsText(TABLE, undefined, format));

const podMetrics = (namespace: string, name: string, app: string): KubeObject => ({
  apiVersion: "metrics.k8s.io/v1beta1",
  kind: "PodMetrics",
  metadata: { namespace, name, labels: { app } },
});
const PODS = [podMetrics("default", "a", "web"), podMetrics("default", "b", "db"), podMetrics("other", "c", "web")];
const usage = usageApi({
  usage: {
    node: () => undefined,
    nodes: () => [],
    pod: (namespace, name) => PODS.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name),
    pods: (namespace) => PODS.filter(({ metadata }) => namespace === "" || metadata.namespace === namespace),
  },
  missing: () => 2,
  parseSelector: (text) => (labels) => text === "" || text === `app=${labels.app}`,
});

/** A secure metrics port with a CA of users and one of a front proxy. */
class Bench implements AsyncDisposable {
  readonly users = new TlsAuthority("users");
  readonly front = new TlsAuthority("front proxy");
  readonly frontProxy = new WatchSource<FrontProxy>({
    ca: this.front.ca,
    allowedNames: ["front-proxy-client"],
    userHeaders: ["x-remote-user"],
    groupHeaders: ["x-remote-group"],
    extraPrefixes: ["x-remote-extra-"],
  });
  /** Every question, as `user[groups] question`. */
  readonly questions: string[] = [];
  allows: (user: KubeletUser, question: MetricsQuestion) => boolean = () => true;
  readonly server: MetricsServer;
  port = 0;

  constructor(handlers: readonly MetricsHandler[] = [metrics, usage]) {
    const { certificate, privateKey } = this.users.issueServer();
    const reviews = {
      userOfToken: async (token: string) => (token === "good" ? { name: "scraper", groups: ["g"] } : undefined),
      allows: async (user: KubeletUser, question: MetricsQuestion) => {
        this.questions.push(`${user.name}[${user.groups.join()}] ${JSON.stringify(question)}`);
        return this.allows(user, question);
      },
    };
    const clientCa = new WatchSource(this.users.ca);
    const access = new MetricsAccess({ reviews, clientCa, frontProxy: this.frontProxy, clock: systemClock });
    const tls = new WatchSource({ certificateChain: certificate, privateKey });
    const secure = { tls, access };
    this.server = new MetricsServer({ handlers, secure, clock: systemClock, log: new RecordedLog() });
  }

  async open(): Promise<this> {
    this.port = await this.server.listen({ host: "127.0.0.1", port: 0 });
    return this;
  }

  client(authority: TlsAuthority, name: string): Client {
    const { certificate, privateKey } = authority.issueClient([{ type: "CN", value: name }]);
    return { cert: certificate, key: privateKey };
  }

  ask(path: string, headers: Readonly<Record<string, string | string[]>> = {}, client?: Client): Promise<Answer> {
    const options = { host: "127.0.0.1", port: this.port, path, headers, ca: this.users.ca, agent: false, ...client };
    return answerOf((done) => httpsRequest(options as import("node:https").RequestOptions, done));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]();
  }
}

function answerOf(
  ask: (done: (response: import("node:http").IncomingMessage) => void) => import("node:http").ClientRequest,
) {
  return new Promise<Answer>((resolve, reject) => {
    const asking = ask((response) => {
      const pieces: Buffer[] = [];
      response.on("data", (piece: Buffer) => pieces.push(piece));
      response.on("end", () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(pieces) }),
      );
    });
    asking.on("error", reject);
    asking.end();
  });
}

test("a token's user reads what it has the right to, and no other caller anything", async () => {
  await using bench = await new Bench().open();
  const good = { authorization: "Bearer good" };
  const answer = await bench.ask("/metrics", good);
  assert.deepEqual([answer.status, answer.headers["content-type"]], [200, "text/plain; version=0.0.4; charset=utf-8"]);
  assert.equal(String(answer.body), "# HELP x_total X.\n# TYPE x_total counter\nx_total 1\n");
  assert.deepEqual(bench.questions, ['scraper[g] {"verb":"get","path":"/metrics"}']);
  const open = await bench.ask("/metrics", { ...good, accept: "application/openmetrics-text;version=1.0.0,*/*;q=0.1" });
  assert.match(String(open.body), /# EOF\n$/);
  const zipped = await bench.ask("/metrics", { ...good, "accept-encoding": "gzip" });
  assert.equal(String(gunzipSync(zipped.body)), String(answer.body));
  assert.equal((await bench.ask("/metrics")).status, 401);
  assert.equal((await bench.ask("/metrics", { authorization: "Bearer bad" })).status, 401);
  assert.equal((await bench.ask("/nothing", good)).status, 404);
  await using strict = await new Bench().open();
  strict.allows = () => false;
  const refused = await strict.ask("/metrics", good);
  assert.deepEqual([refused.status, String(refused.body)], [403, 'User "scraper" cannot get path "/metrics"\n']);
});

test("the front proxy says for whom it asks; no other certificate can", async () => {
  await using bench = await new Bench().open();
  let users = 0;
  const path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/a";
  const asked =
    '{"verb":"get","group":"metrics.k8s.io","version":"v1beta1","resource":"pods","namespace":"default","name":"a"}';
  const who = async (client: Client | undefined): Promise<string | number> => {
    bench.questions.length = 0;
    users += 1;
    // Answers about a user are kept for a while.
    const remote = { "x-remote-user": `eve${users}`, "x-remote-group": ["one", "two"] };
    const { status } = await bench.ask(path, remote, client);
    return status === 200
      ? (bench.questions[0]?.replace(` ${asked}`, "").replace(/^eve\d+/, "eve") ?? "nobody was asked for")
      : status;
  };
  assert.equal(await who(bench.client(bench.front, "front-proxy-client")), "eve[one,two,system:authenticated]");
  assert.equal(await who(bench.client(bench.front, "another")), 401);
  assert.equal(await who(bench.client(bench.users, "front-proxy-client")), "front-proxy-client[system:authenticated]");
  assert.equal(await who(bench.client(new TlsAuthority("front proxy"), "front-proxy-client")), 401);
  assert.equal(await who(undefined), 401);
  // No list of names: any certificate of its CA, unless users have certificates of the same one.
  const { current } = bench.frontProxy;
  bench.frontProxy.set({ ...current, allowedNames: [] });
  assert.equal(await who(bench.client(bench.front, "another")), "eve[one,two,system:authenticated]");
  bench.frontProxy.set({ ...current, allowedNames: [], ca: bench.users.ca });
  assert.equal(await who(bench.client(bench.users, "mallory")), "mallory[system:authenticated]");
  bench.frontProxy.set({ ...current, ca: "" });
  assert.equal(await who(bench.client(bench.front, "front-proxy-client")), 401);
});

test("a user that is passed on without groups is authenticated, as an API server that reads discovery is", async () => {
  await using bench = await new Bench().open();
  const front = bench.client(bench.front, "front-proxy-client");
  const groupsOf = async (name: string, groups: readonly string[]): Promise<string | undefined> => {
    bench.questions.length = 0;
    const path = "/apis/metrics.k8s.io/v1beta1";
    const remote = { "x-remote-user": name, ...(groups.length > 0 && { "x-remote-group": [...groups] }) };
    assert.equal((await bench.ask(path, remote, front)).status, 200);
    return bench.questions[0]?.split(" ")[0];
  };
  assert.equal(await groupsOf("system:kube-aggregator", []), "system:kube-aggregator[system:authenticated]");
  assert.equal(await groupsOf("eve", ["system:authenticated"]), "eve[system:authenticated]");
  assert.equal(await groupsOf("system:anonymous", []), "system:anonymous[]");
  const unknown = ["system:unauthenticated"];
  assert.equal(await groupsOf("system:anonymous", unknown), "system:anonymous[system:unauthenticated]");
});

test("a user's extra is passed on to the review, and users who differ in it are reviewed apart", async () => {
  await using bench = await new Bench().open();
  const seen: unknown[] = [];
  bench.allows = ({ extra }) => {
    seen.push(extra);
    return extra?.["example.com/scope"]?.includes("view") === true;
  };
  const front = bench.client(bench.front, "front-proxy-client");
  const statusWith = async (headers: Readonly<Record<string, string | string[]>>): Promise<number> =>
    (await bench.ask("/apis/metrics.k8s.io/v1beta1", { "x-remote-user": "eve", ...headers }, front)).status;
  assert.equal(await statusWith({ "X-Remote-Extra-Example.com%2Fscope": ["view", "list"] }), 200);
  assert.equal(await statusWith({ "x-remote-extra-example.com%2fscope": "none", "x-remote-extra-100%": "x" }), 403);
  assert.equal(await statusWith({}), 403);
  const scope = "example.com/scope";
  assert.deepEqual(seen, [{ [scope]: ["view", "list"] }, { [scope]: ["none"], "100%": ["x"] }, undefined]);
});

test("metrics.k8s.io: discovery, lists by namespace and selectors, one object, and Status for what is wrong", async () => {
  await using bench = await new Bench().open();
  const base = "/apis/metrics.k8s.io/v1beta1";
  const get = async (path: string) => {
    const { status, body } = await bench.ask(`${base}${path}`, { authorization: "Bearer good" });
    return { status, json: JSON.parse(String(body)) as Record<string, unknown> };
  };
  const names = async (path: string): Promise<unknown> =>
    ((await get(path)).json.items as KubeObject[]).map(({ metadata }) => metadata.name);
  assert.deepEqual(
    ((await get("")).json.resources as { name: string }[]).map(({ name }) => name),
    ["nodes", "pods"],
  );
  assert.equal((await bench.ask("/apis/metrics.k8s.io", { authorization: "Bearer good" })).status, 200);
  assert.deepEqual(await names("/pods"), ["a", "b", "c"]);
  assert.deepEqual(await names("/namespaces/default/pods"), ["a", "b"]);
  assert.deepEqual(await names("/pods?labelSelector=app%3Dweb"), ["a", "c"]);
  assert.deepEqual(await names("/pods?fieldSelector=metadata.name%3Db"), ["b"]);
  assert.deepEqual(await names("/nodes"), []);
  const { headers } = await bench.ask(`${base}/nodes`, { authorization: "Bearer good" });
  assert.match(String(headers.warning), /^299 - "2 boards are left out: .* another replica of the hub"$/);
  const missing = await get("/namespaces/default/pods/none");
  assert.deepEqual(
    [missing.status, missing.json.kind, missing.json.message],
    [404, "Status", 'pods.metrics.k8s.io "none" not found'],
  );
  for (const [path, status] of [
    ["/secrets", 404],
    ["/nodes/a/b", 404],
    ["/namespaces/default/nodes", 404],
    ["/pods?fieldSelector=spec.nodeName%3Da", 400],
    ["/pods?watch=true", 400],
  ] as const)
    assert.equal((await get(path)).status, status, path);
  assert.equal((await bench.ask(`${base}/namespaces/%E0%A4%A/pods`, { authorization: "Bearer good" })).status, 400);
});

test("metrics.k8s.io has an OpenAPI document whose references and kinds are there", async () => {
  await using bench = await new Bench().open();
  const { status, body } = await bench.ask("/openapi/v2", { authorization: "Bearer good" });
  assert.equal(status, 200);
  assert.deepEqual(bench.questions, ['scraper[g] {"verb":"get","path":"/openapi/v2"}']);
  const text = String(body);
  const { swagger, paths, definitions } = JSON.parse(text) as {
    swagger: string;
    paths: Record<string, { get: { operationId: string; responses: object } }>;
    definitions: Record<string, { properties: object }>;
  };
  assert.equal(swagger, "2.0");
  const operations = Object.values(paths).map(({ get }) => get.operationId);
  assert.equal(new Set(operations).size, 5);
  for (const [, name = ""] of text.matchAll(/"#\/definitions\/([^"]+)"/g)) assert.ok(definitions[name], name);
  const served = { ...PODS[0], timestamp: "", window: "", containers: [] };
  const described = definitions["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"]?.properties ?? {};
  assert.deepEqual(Object.keys(described).toSorted(), Object.keys(served).toSorted());
});

test("one user's slow answers take no place of another's", async () => {
  const release = Promise.withResolvers<void>();
  const begun: (() => void)[] = [];
  const slow: MetricsHandler = async ({ url, response }) => {
    if (url.pathname !== "/slow") return false;
    begun.shift()?.();
    await release.promise;
    response.end("done");
    return true;
  };
  await using bench = await new Bench([slow, metrics]).open();
  const token = { authorization: "Bearer good" };
  const started = Array.from({ length: 8 }, () => new Promise<void>((resolve) => begun.push(resolve)));
  const answers = Array.from({ length: 8 }, () => bench.ask("/slow", token));
  await Promise.all(started);
  assert.equal((await bench.ask("/metrics", token)).status, 429);
  assert.equal((await bench.ask("/metrics", {}, bench.client(bench.users, "other"))).status, 200);
  release.resolve();
  for (const { status } of await Promise.all(answers)) assert.equal(status, 200);
  assert.equal((await bench.ask("/metrics", token)).status, 200);
});

test("on loopback no one is asked, but a page that calls itself by another name gets nothing", async () => {
  const server = new MetricsServer({
    handlers: [metrics],
    secure: undefined,
    clock: systemClock,
    log: new RecordedLog(),
  });
  const port = await server.listen({ host: "127.0.0.1", port: 0 });
  const ask = (method: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> =>
    answerOf((done) => httpRequest({ host: "127.0.0.1", port, path: "/metrics", method, headers, agent: false }, done));
  assert.equal((await ask("GET")).status, 200);
  assert.equal((await ask("GET", { host: `localhost:${port}` })).status, 200);
  assert.equal((await ask("GET", { host: "rebound.example" })).status, 403);
  assert.equal((await ask("POST")).status, 400);
  await server[Symbol.asyncDispose]();
});
