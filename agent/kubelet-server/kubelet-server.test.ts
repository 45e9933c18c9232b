import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import type { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { request as httpsRequest, type RequestOptions } from "node:https";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { promisify } from "node:util";
import type { KubeletAccessInit } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { IncomingStream, KubeletParams, ReviewParams } from "@picolet/protocol/tunnel/stream.ts";
import { MemoryPairFile } from "@picolet/test/support/unit/identity/memory-pair-file.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { ChannelClient } from "@picolet/test/support/unit/streaming/channel-client.ts";
import fc from "fast-check";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import { HubReviews } from "./hub-reviews.ts";
import { KubeletPort } from "./kubelet-port.ts";
import { KubeletServer, MAX_PENDING, REVIEWS } from "./kubelet-server.ts";
import { ServingTls } from "./serving-tls.ts";

const NOW_MS = Date.now();
const ADMIN = [{ type: "CN", value: "kube-apiserver-kubelet-client" }] as const;

/** Answers each GET with its path, and follows a log for ever. */
function answer(stream: IncomingStream): void {
  const { path } = stream.params as KubeletParams;
  const accepted = stream.accept({ status: 200, contentType: "text/plain" });
  void accepted.write(Buffer.from(path), stream.closed).then(() => accepted.end());
}

interface BenchInit {
  readonly access?: KubeletAccessInit;
  readonly debugging?: boolean;
  readonly hasHub?: boolean;
}

class Bench {
  readonly clock = new VirtualClock(NOW_MS);
  readonly log = new RecordedLog();
  readonly authority = new TlsAuthority("client authority");
  readonly folder = mkdtempSync(join(tmpdir(), "picolet-kubelet-"));
  readonly clientCaFile = join(this.folder, "ca.pem");
  /** Every question that reached the hub. */
  readonly asked: ReviewParams[] = [];
  isOffline = false;
  /** `user verb subresource` that are allowed. */
  readonly rights = new Set<string>();
  readonly own = new MemoryPairFile();
  readonly issued = new MemoryPairFile();
  onPush: PushedPods["replace"] = (text, { dryRun }) => ({
    ok: true,
    answer: { dryRun, items: [{ text }] } as never,
  });
  readonly port: KubeletPort;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor({ access = {}, debugging = true, hasHub = true }: BenchInit) {
    writeFileSync(this.clientCaFile, this.authority.ca);
    const { clock, log } = this;
    const hub = { review: (params: ReviewParams) => this.#review(params) };
    const tls = new ServingTls(
      { clock, own: this.own, issued: this.issued },
      {
        ...{ nodeName: "edge-1", certFile: "", keyFile: "", clientCaFile: this.clientCaFile },
        ...{ minVersion: undefined, ciphers: [], addresses: () => ["127.0.0.1"] },
      },
    );
    let server: KubeletServer | undefined;
    const load = async (): Promise<KubeletServer> => {
      server ??= new KubeletServer(
        {
          streams: { kubelet: answer, logs: answer },
          reviews: new HubReviews({ hub: hasHub ? hub : undefined }),
          pushed: { replace: (text, options) => this.onPush(text, options) },
          ...{ tls, clock, log },
        },
        { nodeName: "edge-1", access, debugging },
      );
      return server;
    };
    this.port = new KubeletPort({ load, clock, log }, { address: "127.0.0.1", port: 0 });
    this.#running = endOfRun(this.port.run(this.#stop.signal));
  }

  static async start(t: TestContext, init: BenchInit = {}): Promise<Bench> {
    const bench = new Bench(init);
    t.after(async () => {
      bench.#stop.abort();
      await bench.#running;
      rmSync(bench.folder, { recursive: true });
    });
    while (bench.port.port === undefined) await new Promise((resolve) => setImmediate(resolve));
    return bench;
  }

  async #review(params: ReviewParams): Promise<unknown> {
    this.asked.push(params);
    if (this.isOffline) throw new PicoletError("unavailable", "there is no connection to a hub");
    if (params.review === "token") return { user: params.token === "good" ? { name: "reader", groups: ["g"] } : null };
    if (params.review !== "access") throw new PicoletError("invalid", "no client asks for a certificate");
    return { allowed: this.rights.has(`${params.user} ${params.verb} ${params.subresource}`) };
  }

  get address() {
    return { host: "127.0.0.1", port: this.port.port ?? 0, rejectUnauthorized: false } as const;
  }

  client(subject: Parameters<TlsAuthority["issueClient"]>[0] = ADMIN, authority = this.authority) {
    const { certificate: cert, privateKey: key } = authority.issueClient(subject);
    return { cert, key };
  }

  async ask(
    path: string,
    options: RequestOptions & { readonly body?: string } = {},
  ): Promise<readonly [number, string]> {
    const { body, ...rest } = options;
    const request = httpsRequest({ ...this.address, path, agent: false, ...rest });
    request.end(body);
    const [response] = (await once(request, "response")) as [IncomingMessage];
    let text = "";
    for await (const piece of response.setEncoding("utf8")) text += String(piece);
    return [response.statusCode ?? 0, text];
  }

  token(path: string, token: string, options: RequestOptions & { readonly body?: string } = {}) {
    return this.ask(path, { ...options, headers: { authorization: `Bearer ${token}` } });
  }
}

test("a client is known by a certificate of the client CA or by a token, and by nothing else", async (t) => {
  const bench = await Bench.start(t);
  bench.rights.add("kube-apiserver-kubelet-client get pods").add("reader get pods");
  assert.deepEqual(await bench.ask("/pods"), [401, "Unauthorized\n"]);
  assert.deepEqual(await bench.ask("/pods", bench.client()), [200, "/pods"]);
  assert.deepEqual(await bench.ask("/pods", bench.client(ADMIN, new TlsAuthority("another"))), [401, "Unauthorized\n"]);
  assert.deepEqual(await bench.token("/pods", "good"), [200, "/pods"]);
  assert.deepEqual(await bench.token("/pods", "bad"), [401, "Unauthorized\n"]);
  assert.deepEqual(await bench.ask("/pods", { headers: { authorization: "Basic Z29vZA==" } }), [401, "Unauthorized\n"]);
});

test("each path needs the right of Kubernetes 1.34, the fine one or nodes/proxy", async (t) => {
  const bench = await Bench.start(t);
  const paths: Readonly<Record<string, string>> = {
    "/pods": "pods",
    "/runningpods/": "pods",
    "/healthz": "healthz",
    "/healthz/syncloop": "healthz",
    "/configz": "configz",
    "/stats/summary": "stats",
    "/metrics": "metrics",
    "/metrics/cadvisor": "metrics",
    "/logs/syslog": "log",
    "/spec": "spec",
    "/anything": "proxy",
  };
  const user = bench.client([{ type: "CN", value: "u" }]);
  for (const [path, subresource] of Object.entries(paths)) {
    bench.rights.clear();
    bench.clock.advance(seconds(301));
    const [status, text] = await bench.ask(path, user);
    assert.equal(status, 403, path);
    assert.match(
      text,
      new RegExp(`^Forbidden \\(user=u, verb=get, resource=nodes, subresource\\(s\\)=\\[${subresource}`),
    );
    bench.clock.advance(seconds(31));
    bench.rights.add(`u get ${subresource}`);
    assert.equal((await bench.ask(path, user))[0], 200, path);
  }
  bench.rights.clear();
  const checkpoint = "/checkpoint/default/web/app";
  bench.rights.add("u create checkpoint").add("u get checkpoint");
  assert.equal((await bench.ask(checkpoint, user))[0], 405);
  // The node answers it, with the reason why there is none.
  assert.deepEqual(await bench.ask(checkpoint, { ...user, method: "POST" }), [200, checkpoint]);
  bench.rights.clear();
  bench.rights.add("u create proxy");
  assert.equal(
    (await bench.ask("/run/a/b/c?cmd=x", { ...user, method: "POST" }))[0],
    400,
    "streams are not offered here",
  );
});

test("answers are cached as a kubelet caches them, and serve while the hub is away", async (t) => {
  const bench = await Bench.start(t);
  bench.rights.add("reader get stats");
  assert.equal((await bench.token("/stats/summary", "good"))[0], 200);
  assert.equal(bench.asked.length, 2);
  bench.isOffline = true;
  bench.clock.advance(seconds(119));
  assert.equal((await bench.token("/stats/summary", "good"))[0], 200);
  assert.equal(bench.asked.length, 2);
  bench.clock.advance(seconds(2));
  const [status, text] = await bench.token("/stats/summary", "good");
  assert.deepEqual([status, text], [401, "Unauthorized: there is no connection to a hub\n"]);
  const [failed, why] = await bench.ask("/stats/summary", bench.client());
  assert.equal(failed, 500);
  assert.match(why, /^Authorization error \(user=kube-apiserver-kubelet-client, verb=get.*no connection to a hub/);
});

test("a node without a hub says so, and serves known clients where the mode is AlwaysAllow", async (t) => {
  const strict = await Bench.start(t, { hasHub: false });
  assert.match((await strict.ask("/pods", strict.client()))[1], /belongs to no hub/);
  const open = await Bench.start(t, { hasHub: false, access: { allowsEverything: true } });
  assert.equal((await open.ask("/pods", open.client()))[0], 200);
  assert.equal((await open.ask("/pods"))[0], 401);
});

test("anonymous requests are allowed only where the configuration says so", async (t) => {
  const bench = await Bench.start(t, { access: { allowsAnonymous: true } });
  assert.match((await bench.ask("/pods"))[1], /^Forbidden \(user=system:anonymous/);
  assert.equal((await bench.token("/pods", "bad"))[0], 401);
  const tokenless = await Bench.start(t, { access: { reviewsTokens: false } });
  assert.equal((await tokenless.token("/pods", "good"))[0], 401);
  assert.equal(tokenless.asked.length, 0);
});

test("without debugging handlers only statistics and health are left", async (t) => {
  const bench = await Bench.start(t, { debugging: false, access: { allowsEverything: true } });
  for (const path of ["/run/a/b/c", "/exec/a/b/c", "/containerLogs/a/b/c", "/runningpods/", "/logs/", "/debug/pprof"]) {
    assert.deepEqual(await bench.ask(path, bench.client()), [405, "Debug endpoints are disabled.\n"], path);
  }
  assert.equal((await bench.ask("/stats/summary", bench.client()))[0], 200);
});

test("pods are pushed with PUT, by users with nodes/proxy", async (t) => {
  const bench = await Bench.start(t);
  const push = { method: "PUT", body: "kind: Pod" };
  assert.equal((await bench.ask("/v1/pushed-pods", push))[0], 401);
  assert.equal((await bench.token("/v1/pushed-pods", "good", push))[0], 403);
  bench.clock.advance(seconds(31));
  bench.rights.add("reader update proxy");
  assert.deepEqual(await bench.token("/v1/pushed-pods?dryRun=true", "good", push), [
    200,
    '{"dryRun":true,"items":[{"text":"kind: Pod"}]}\n',
  ]);
  const [wrong] = await bench.token("/v1/pushed-pods?other=1", "good", push);
  assert.equal(wrong, 400);
  const [large, why] = await bench.token("/v1/pushed-pods", "good", {
    method: "PUT",
    body: "x".repeat(1024 * 1024 + 1),
  });
  assert.equal(large, 429);
  assert.match(why, /the body is larger than 1048576 bytes/);
});

test("curl gets the refusal of a body of several MiB, also where it may not send any", async (t) => {
  const bench = await Bench.start(t);
  const file = join(bench.folder, "body");
  writeFileSync(file, "x".repeat(6 * 1024 * 1024));
  const url = `https://127.0.0.1:${bench.port.port}/v1/pushed-pods`;
  const put = async (...more: readonly string[]): Promise<string> =>
    (await promisify(execFile)("curl", ["-sS", "-k", "-T", file, "-w", "%{http_code}", ...more, url])).stdout;
  assert.match(await put(), /401$/);
  assert.match(await put("-H", "Authorization: Bearer good"), /403$/);
  bench.clock.advance(seconds(31));
  bench.rights.add("reader update proxy");
  for (const form of ["Expect:", "Transfer-Encoding: chunked"])
    assert.match(
      await put("-H", "Authorization: Bearer good", "-H", form),
      /the body is larger than 1048576 bytes"\}\}\n429$/,
    );
});

test("a client that guesses tokens is refused, and clients whose answers are cached are not", async (t) => {
  const bench = await Bench.start(t);
  bench.rights.add("reader get stats");
  assert.equal((await bench.token("/stats/summary", "good"))[0], 200);
  const codes = [];
  for (let guess = 0; guess < REVIEWS.burst; guess += 1)
    codes.push((await bench.token("/stats/summary", `x${guess}`))[0]);
  assert.deepEqual(
    codes.slice(0, -2).filter((code) => code !== 401),
    [],
  );
  assert.equal(codes.at(-1), 429);
  assert.equal((await bench.token("/stats/summary", "good"))[0], 200);
  bench.clock.advance(seconds(1));
  assert.equal((await bench.token("/stats/summary", "another"))[0], 401);
});

test("silent clients take the place of no other", async (t) => {
  const bench = await Bench.start(t, { access: { allowsEverything: true } });
  const { host, port } = bench.address;
  const silent = Array.from({ length: 3 * MAX_PENDING }, () => connectTcp(port, host));
  t.after(() => silent.forEach((each) => void each.destroy()));
  for (const each of silent) each.on("error", () => {}).resume();
  assert.equal((await bench.ask("/pods", bench.client()))[0], 200);
  // The oldest of them give way.
  await Promise.all(silent.slice(0, -MAX_PENDING).map((each) => each.destroyed || once(each, "close")));
});

test("an upgrade is refused with its reason as a Status", async (t) => {
  const bench = await Bench.start(t);
  const url = `wss://127.0.0.1:${bench.port.port}/exec/a/b/c?command=x&output=1`;
  await assert.rejects(ChannelClient.open(url, ["v5.channel.k8s.io"], bench.address), /401 Unauthorized/);
  const known = { ...bench.address, ...bench.client() };
  await assert.rejects(ChannelClient.open(url, ["v5.channel.k8s.io"], known), /403 Forbidden \(user=kube-apiserver/);
});

test("the certificate is the agent's own until it nears its end; a changed client CA counts", async (t) => {
  const bench = await Bench.start(t, { access: { allowsEverything: true } });
  const shown = async (): Promise<X509Certificate> => {
    const socket = connectTls({ ...bench.address });
    await once(socket, "secureConnect");
    const certificate = socket.getPeerX509Certificate();
    socket.destroy();
    assert.ok(certificate);
    return certificate;
  };
  const first = await shown();
  assert.equal(first.checkHost("edge-1"), "edge-1");
  assert.equal(first.checkIP("127.0.0.1"), "127.0.0.1");
  assert.match(bench.own.text ?? "", /BEGIN CERTIFICATE[\s\S]*BEGIN PRIVATE KEY/);
  assert.equal((await shown()).serialNumber, first.serialNumber);
  bench.clock.advance(seconds(340 * 24 * 3600));
  assert.notEqual((await shown()).serialNumber, first.serialNumber);
  const next = new TlsAuthority("next");
  assert.equal((await bench.ask("/pods", bench.client(ADMIN, next)))[0], 401);
  writeFileSync(bench.clientCaFile, next.ca);
  bench.clock.advance(seconds(61));
  assert.equal((await bench.ask("/pods", bench.client(ADMIN, next)))[0], 200);
  writeFileSync(bench.clientCaFile, "broken");
  bench.clock.advance(seconds(61));
  assert.equal((await bench.ask("/pods", bench.client(ADMIN, next)))[0], 200, "the former one serves on");
});

test("any bytes, paths and headers are answered or cut off, and the next client is served", async (t) => {
  const bench = await Bench.start(t, { access: { allowsEverything: true } });
  const { cert, key } = bench.client();
  const raw = async (bytes: Uint8Array, isPlain: boolean): Promise<void> => {
    const options = { ...bench.address, cert, key };
    const socket = isPlain ? connectTcp(options.port, options.host) : connectTls(options);
    socket.on("error", () => {});
    socket.resume();
    socket.end(bytes);
    await new Promise<void>((resolve) => socket.once("close", () => resolve()));
  };
  const piece = fc.oneof(
    fc.constantFrom(
      ...["GET ", "POST ", "PUT /v1/pushed-pods ", "/pods", "/exec/%ff/../a?command=", "//", " HTTP/1.1\r\n", "\r\n"],
      ...["connection: upgrade\r\n", "upgrade: websocket\r\n", "sec-websocket-key: x\r\n", "upgrade: SPDY/3.1\r\n"],
      ...["content-length: 5\r\n", "transfer-encoding: chunked\r\n", "authorization: Bearer \r\n", "host: a\r\n"],
    ),
    fc.string({ maxLength: 30 }),
  );
  const request = fc.oneof(
    fc.array(piece, { maxLength: 12 }).map((parts) => Buffer.from(parts.join(""))),
    fc.uint8Array({ maxLength: 200 }),
  );
  await fc.assert(fc.asyncProperty(request, fc.boolean(), raw), { numRuns: 150 });
  assert.equal((await bench.ask("/pods", { cert, key }))[0], 200);
  assert.deepEqual(
    bench.log.entries.filter(({ level }) => level === "error"),
    [],
  );
});
