/** The server without a component: what it makes of bytes, beside what `node:http` makes of the same. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, METHODS, type Server } from "node:http";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { after, before, beforeEach, describe, test } from "node:test";
import type { Random } from "@picolet/protocol/ports.ts";
import { fixedPort } from "@picolet/test/support/unit/machine/fixed-port.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { DEFAULT_HTTP_OPTIONS } from "../grants/http-options.ts";
import { FieldList, Fields } from "../http/fields.ts";
import { httpContext } from "../http/http.ts";
import type { HttpContext } from "../http/http-context.ts";
import { IncomingBody } from "../http/incoming-body.ts";
import { OutgoingResponse, ResponseOutparam } from "../http/messages.ts";
import { OutgoingBody } from "../http/outgoing-body.ts";
import { isHostField, methodText } from "../http/request-line.ts";
import { Handles } from "../resources/handles.ts";
import { BlockingWaiter, Poller } from "../resources/polling.ts";
import type { Exchange } from "./exchange.ts";
import { HttpServer } from "./http-server.ts";
import { type NodePrivateApi, privateParts } from "./node-parts.ts";
import { PublicParts } from "./public-parts.ts";
import { serveMemory } from "./serve-memory.ts";

const SEED = Number(process.env.PICOLET_SEED ?? 20_261_122);
const CASES = Number(process.env.PICOLET_HTTP_CASES ?? 400);
const HOST = "127.0.0.1";
const MAX_BODY = 4096;

/** The request as a handler sees it: everything that a smuggled request would change. */
interface Seen {
  readonly method: string;
  readonly path: string;
  readonly marks: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
}

const marksOf = (flat: readonly string[]): string[] =>
  flat.flatMap((each, at) => (at % 2 === 0 && /^x-/i.test(each) ? [`${each}=${flat[at + 1]}`] : []));

/** Stands where a component would, with the host's own resources. */
async function answered(context: HttpContext, exchange: Exchange): Promise<void> {
  const request = exchange.request(context);
  const marks = marksOf(
    request
      .headers()
      .entries()
      .flatMap(([name, value]) => [name, Buffer.from(value).toString("latin1")]),
  );
  const body = request.consume();
  const stream = body.stream();
  const chunks: Uint8Array[] = [];
  try {
    for (;;) {
      const bytes = stream.read(65_536n);
      if (bytes.length > 0) chunks.push(bytes);
      else
        await new Promise<void>((resolve) => {
          const { readiness } = stream.subscribe();
          readiness?.onReady?.(resolve);
          if (readiness?.ready() === true) resolve();
        });
    }
  } catch (error) {
    if ((error as { payload?: { tag?: string } }).payload?.tag !== "closed") return void exchange.broken(500);
  }
  stream[Symbol.dispose]();
  const future = IncomingBody.finish(body);
  const told = future.get() as { val: { val: Fields | undefined } } | undefined;
  const trailers =
    told?.val.val?.entries().flatMap(([name, value]) => [name, Buffer.from(value).toString("latin1")]) ?? [];
  const seen: Seen = {
    method: methodText(request.method()) ?? "",
    path: request.pathWithQuery() ?? "",
    marks,
    body: Buffer.concat(chunks).toString("latin1"),
    trailers: marksOf(trailers),
  };
  ourSeen.push(seen);
  const response = new OutgoingResponse(context, new Fields(context, new FieldList(), false));
  const out = response.body();
  ResponseOutparam.set(new ResponseOutparam(context, exchange), { tag: "ok", val: response });
  const writer = out.write();
  writer.write(Buffer.from(JSON.stringify(seen)));
  writer[Symbol.dispose]();
  OutgoingBody.finish(out, undefined);
  exchange.returned();
}

const ourSeen: Seen[] = [];
const theirSeen: Seen[] = [];
let ourPort = 0;
let theirPort = 0;

interface Servers {
  readonly ours: HttpServer;
  readonly theirs: Server;
  readonly ourPort: number;
  readonly theirPort: number;
}

async function start(parts: NodePrivateApi): Promise<Servers> {
  const ourPort = await fixedPort();
  const sleeper = { now: () => process.hrtime.bigint(), sleep: () => undefined };
  const poller = new Poller(new BlockingWaiter(sleeper), () => undefined);
  const pool = {
    isBusy: false,
    tick: () => undefined,
    take: (exchange: Exchange) =>
      void answered(httpContext({ handles: new Handles(), poller, wallNow: () => 0 }), exchange),
  };
  const ours = new HttpServer(
    {
      ...{ parts, pool, memory: serveMemory(undefined), isTight: () => false },
      ...{ now: () => performance.now(), wallNow: Date.now },
    },
    { ...DEFAULT_HTTP_OPTIONS, maxBodyBytes: MAX_BODY, port: ourPort },
  );
  const theirs = createServer(
    { maxHeaderSize: 16_384, requireHostHeader: true, insecureHTTPParser: false },
    async (request, response) => {
      const { method = "", url = "", rawHeaders, httpVersion, headers } = request;
      const coding = headers["transfer-encoding"];
      if (coding !== undefined && (httpVersion !== "1.1" || !/^chunked$/i.test(coding))) {
        response.writeHead(501, { connection: "close" }).end();
        return;
      }
      // Node checks only that the field is present. The table below checks its value.
      const absolute = /^https?:\/\/([^/?]*)\/?(.*)$/i.exec(url);
      const hosts = [headers.host, absolute?.[1]].filter((each) => each !== undefined);
      if (!hosts.every(isHostField) || absolute?.[1] === "") {
        response.writeHead(400, { connection: "close" }).end();
        return;
      }
      const body = await text(request.setEncoding("latin1")).catch(() => undefined);
      if (body === undefined) return;
      const seen: Seen = {
        method,
        path: absolute === null ? url : `/${absolute[2]}`,
        marks: marksOf(rawHeaders),
        body,
        trailers: marksOf(request.rawTrailers),
      };
      theirSeen.push(seen);
      response.end(JSON.stringify(seen));
    },
  );
  theirs.listen(0, HOST);
  await once(theirs, "listening");
  return { ours, theirs, ourPort, theirPort: (theirs.address() as { port: number }).port };
}

function stop({ ours, theirs }: Servers): void {
  ours.close();
  theirs.close();
}

/** Everything that comes back for these pieces, until the server hangs up. */
async function said(port: number, pieces: readonly Buffer[]): Promise<string> {
  const socket: Socket = connect({ port, host: HOST, noDelay: true, allowHalfOpen: true });
  const chunks: Buffer[] = [];
  const over = new Promise<void>((resolve) => {
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket
      .once("error", () => resolve())
      .once("close", () => resolve())
      .once("end", () => resolve());
  });
  await once(socket, "connect").catch(() => undefined);
  for (const piece of pieces) {
    socket.write(piece);
    await new Promise((resolve) => setImmediate(resolve));
  }
  socket.end();
  await over;
  socket.destroy();
  return Buffer.concat(chunks).toString("latin1");
}

/** The statuses of all responses. */
const statuses = (said: string): string[] =>
  [...said.matchAll(/HTTP\/1\.1 (\d{3}) [A-Z]/g)].map(([, status]) => status ?? "");

const LINES: readonly string[] = [
  ...[
    "content-length: 5",
    "Content-Length: 5",
    "content-length: 0",
    "content-length: 5, 5",
    "content-length: +5",
    "content-length: -1",
  ],
  ...[
    "content-length: 0x5",
    "content-length: 99999999999999999999",
    "content-length:\t5",
    "content-length: 5 ",
    "content-length:",
  ],
  ...[
    "transfer-encoding: chunked",
    "Transfer-Encoding: CHUNKED",
    "transfer-encoding: gzip, chunked",
    "transfer-encoding: chunked, gzip",
  ],
  ...[
    "transfer-encoding: identity",
    "transfer-encoding : chunked",
    "transfer-encoding: xchunked",
    "transfer-encoding:\vchunked",
    " transfer-encoding: chunked",
  ],
  ...[
    "connection: close",
    "connection: keep-alive",
    "Connection: upgrade",
    "connection: close, x",
    "keep-alive: timeout=5",
  ],
  ...["expect: 100-continue", "x-a: 1", "x-b: \u00fc", "x-c: a\x00b", "x-d: a\x01b", "x-e : 1", "x f: 1", "x-g"],
  ...[
    "x-h: 1\r\n folded",
    "x-i: 1\r\n\tfolded",
    "x-j: 1\rx-k: 2",
    "x-l: 1\nx-m: 2",
    ": nameless",
    "x-n:",
    `x-o: ${"y".repeat(5000)}`,
  ],
];
const TARGETS = [
  "/",
  "/a?b=c",
  "*",
  "http://h/p",
  ...["https://h", "http://h?q", "http://u@h/p", "http:///p", "http://h:x/", "http://%zz/"],
  "/\u00e9",
  "/a b",
  "",
  "a",
  "/%00",
  "//x",
  "/a#b",
];
const VERSIONS = ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "http/1.1", "HTTP/1.1 ", ""];
const BODIES = [
  ...[
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;ext=1\r\nhello\r\n0\r\nx-t: 1\r\n\r\n",
    "5\nhello\n0\n\n",
    "0\r\n\r\n",
    "00005\r\nhello\r\n0\r\n\r\n",
  ],
  ...[
    "5 \r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello",
    "fffffffffffffffff\r\n",
    "5\r\nhelloGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "0\r\ntransfer-encoding: x\r\n\r\n",
  ],
];
const EOLS = ["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n"];

const oneOf = (random: Random, of: readonly string[]): string => of[Math.floor(random.next() * of.length)] ?? "";

function requestText(random: Random): string {
  const isPlain = random.next() < 0.5;
  const eol = isPlain ? "\r\n" : oneOf(random, EOLS);
  const method = oneOf(random, ["GET", "POST", "PUT", "HEAD", "OPTIONS", "PURGE", "get", "G@T", "PATCH", "DELETE"]);
  const target = isPlain ? "/plain" : oneOf(random, TARGETS);
  const version = isPlain ? "HTTP/1.1" : oneOf(random, VERSIONS);
  const lines = random.next() < 0.95 ? ["host: x"] : [];
  for (let count = Math.floor(random.next() * 4); count > 0; count -= 1) lines.push(oneOf(random, LINES));
  const [head] = [`${method} ${target} ${version}`];
  return `${head}${eol}${lines.join(eol)}${eol}${eol}${oneOf(random, BODIES)}`;
}

function pieces(random: Random): Buffer[] {
  let bytes = Buffer.from(
    Array.from({ length: 1 + Math.floor(random.next() * 4) }, () => requestText(random)).join(""),
    "latin1",
  );
  for (let count = random.next() < 0.3 ? 1 + Math.floor(random.next() * 3) : 0; count > 0; count -= 1) {
    bytes[Math.floor(random.next() * bytes.length)] = Math.floor(random.next() * 256);
  }
  if (random.next() < 0.2) bytes = bytes.subarray(0, Math.floor(random.next() * bytes.length));
  const cut = Math.floor(random.next() * bytes.length);
  return random.next() < 0.5 ? [bytes] : [bytes.subarray(0, cut), bytes.subarray(cut)];
}

/** What is refused here, and is not, or otherwise, by node:http. */
const REFUSED: readonly (readonly [request: string, statuses: readonly string[]])[] = [
  ["GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", ["400"]],
  ["GET / HTTP/1.0\r\nhost: x\r\nhost: x\r\n\r\n", ["400"]],
  ["GET / HTTP/1.1\r\nhost: a b\r\n\r\n", ["400"]],
  ["GET / HTTP/1.1\r\nhost: user@x\r\n\r\n", ["400"]],
  ["GET / HTTP/1.1\r\nhost: x/y\r\n\r\n", ["400"]],
  ["GET / HTTP/1.0\r\nhost: x:y\r\n\r\n", ["400"]],
  ["GET / HTTP/1.1\r\nhost: [::1\r\n\r\n", ["400"]],
  ["GET / HTTP/1.1\r\nhost: %zz\r\n\r\n", ["400"]],
  ['GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost: x,"\r\n\r\n', ["200", "400"]],
  [
    ["", "x", "X-1.example:", "x.example:80", "127.0.0.1:8080", "[::1]", "[v1.a:b]:1", "a%20b", "a_b"]
      .map((host) => `GET / HTTP/1.1\r\nhost: ${host}\r\n\r\n`)
      .join(""),
    Array.from({ length: 9 }, () => "200"),
  ],
  ["GET http://x/ HTTP/1.1\r\nhost: x\r\n\r\n", ["200"]],
  ["GET http://user@x/ HTTP/1.1\r\nhost: x\r\n\r\n", ["400"]],
  ["GET http:///a HTTP/1.1\r\nhost: x\r\n\r\n", ["400"]],
  ["GET http://x:y/ HTTP/1.1\r\nhost: x\r\n\r\n", ["400"]],
  ["GET / HTTP/1.1\r\n\r\n", ["400"]],
  ["GET / HTTP/2.0\r\nhost: x\r\n\r\n", ["505"]],
  ["CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", ["501"]],
  ["POST / HTTP/1.1\r\nhost: x\r\nexpect: more\r\ncontent-length: 1\r\n\r\na", ["417"]],
  ["POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4097\r\n\r\na", ["413"]],
  [`GET / HTTP/1.1\r\nhost: x\r\nx: ${"y".repeat(17_000)}\r\n\r\n`, ["431"]],
  [`GET / HTTP/1.1\r\nhost: x\r\n${"x: y\r\n".repeat(128)}\r\n`, ["431"]],
  [
    `POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1;${"e".repeat(17_000)}\r\na\r\n0\r\n\r\n`,
    ["413"],
  ],
  ["POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", ["400"]],
  ["POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", ["501"]],
  ["POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", ["501"]],
  // Upgrading is not granted, and what follows is a request like any other.
  [
    "GET /1 HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n",
    ["200", "200"],
  ],
  // Complete requests are answered before the broken one is refused.
  ["GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\nnonsense\r\n\r\n", ["200", "200", "400"]],
];

test("this Node has the private parts", () => {
  assert.notEqual(privateParts(), undefined, "Node has changed: components are served by its public parts");
});

const WAYS: readonly (readonly [name: string, parts: () => NodePrivateApi])[] = [
  ["Node's private parts", () => privateParts() ?? assert.fail("they are not there")],
  ["public parts alone", () => new PublicParts()],
];

for (const [name, parts] of WAYS) {
  describe(name, () => {
    let servers: Servers;
    before(async () => {
      servers = await start(parts());
    });
    // The hooks of all suites may run before the first test does.
    beforeEach(() => {
      ({ ourPort, theirPort } = servers);
    });
    after(() => stop(servers));

    test("random bytes give the same requests and refusals as with node:http", async () => {
      const random = seededRandom(SEED);
      const counts = new Map<string, number>();
      for (let each = 0; each < CASES; each += 1) {
        const bytes = pieces(random);
        const [own, node] = await Promise.all([said(ourPort, bytes), said(theirPort, bytes)]);
        const context = `case ${each} of seed ${SEED}: ${JSON.stringify(Buffer.concat(bytes).toString("latin1").slice(0, 1000))}`;
        // The other server handles them side by side.
        const seen = [ourSeen, theirSeen].map((each) =>
          each
            .splice(0)
            .map((one) => JSON.stringify(one))
            .sort(),
        );
        const [mine = [], others = []] = seen;
        const [refusals, otherRefusals] = [own, node].map((text) => statuses(text).filter((status) => status >= "400"));
        if (refusals?.length === 0) {
          // node:http refuses input behind a request that ends the connection; this server ignores it.
          if (!/^connection: close/im.test(own)) assert.deepEqual(otherRefusals, [], context);
          assert.deepEqual(mine, others, context);
        } else {
          // Here a refusal ends the connection, and the input behind it is ignored too.
          assert.notEqual(otherRefusals?.length, 0, context);
          assert.deepEqual(
            mine.filter((each) => !others.includes(each)),
            [],
            context,
          );
        }
        for (const one of statuses(own)) counts.set(one, (counts.get(one) ?? 0) + 1);
      }
      // It says something of both.
      for (const status of ["200", "400"])
        assert.ok((counts.get(status) ?? 0) > CASES / 10, JSON.stringify([...counts]));
    });

    test("each method of node:http has its name", async () => {
      for (const method of METHODS.filter((each) => each !== "CONNECT")) {
        await said(ourPort, [Buffer.from(`${method} / HTTP/1.1\r\nhost: x\r\n\r\n`)]);
        assert.deepEqual(
          ourSeen.splice(0).map((each) => each.method),
          [method],
        );
      }
    });

    test("invalid requests that llhttp accepts are refused, and end the connection", async () => {
      for (const [request, wanted] of REFUSED) {
        const answer = await said(ourPort, [Buffer.from(request)]);
        assert.deepEqual(statuses(answer), wanted, request.slice(0, 200));
        if (wanted.at(-1) !== "200") assert.match(answer, /\r\nconnection: close\r\n\r\n$/);
      }
      ourSeen.length = 0;
    });

    test("the body of a request to upgrade is no request", async () => {
      const smuggled = "GET /2 HTTP/1.1\r\nhost: smuggled\r\n\r\n";
      const fields = `host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: ${smuggled.length}`;
      for (const cut of [0, 1, smuggled.length]) {
        const whole = Buffer.from(`POST /1 HTTP/1.1\r\n${fields}\r\n\r\n${smuggled}`);
        const at = whole.length - cut;
        const answer = await said(ourPort, [whole.subarray(0, at), whole.subarray(at)]);
        assert.equal(statuses(answer)[0], "200");
        assert.deepEqual(
          ourSeen.splice(0).map(({ path, body }) => ({ path, body })),
          [{ path: "/1", body: smuggled }],
        );
      }
    });

    test("clients without chunks get a length, and a connection is kept on request", async () => {
      const old = await said(ourPort, [
        Buffer.from("GET /1 HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\n"),
      ]);
      assert.match(
        old,
        /connection: keep-alive\r\n\r\n\{[^}]*\/1[^}]*\}HTTP[^{]*connection: close\r\n\r\n\{[^}]*\/2[^}]*\}$/,
      );
      ourSeen.length = 0;
    });
  });
}
