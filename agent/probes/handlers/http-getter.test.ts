import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer, type RequestListener } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { test } from "node:test";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { HttpGetter } from "./http-getter.ts";
import type { HttpRequest } from "./http-request.ts";
import { ProbeTimeout } from "./probe-outcome.ts";

/** A server on a port of its own, which is gone with all of its connections when the block ends. */
class Listening implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** How many connections there have been. */
  connections = 0;

  private constructor(server: Server) {
    this.#server = server;
    server.on("connection", (socket: Socket) => {
      this.connections += 1;
      this.#sockets.add(socket);
      // A socket that is not read would never see the other end close.
      socket.on("error", () => undefined).resume();
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  static async of(server: Server): Promise<Listening> {
    const listening = new Listening(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return listening;
  }

  static raw(serve: (socket: Socket) => void): Promise<Listening> {
    return Listening.of(createServer(serve));
  }

  static http(serve: RequestListener): Promise<Listening> {
    return Listening.of(createHttpServer(serve));
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Until no connection is left. */
  async quiet(): Promise<void> {
    const closed = (socket: Socket): Promise<void> => new Promise((resolve) => socket.once("close", () => resolve()));
    await Promise.all([...this.#sockets].map(closed));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }
}

const never = new AbortController().signal;

const requestTo = (port: number, target = "/", given: Partial<HttpRequest> = {}): HttpRequest => ({
  scheme: "http",
  host: "127.0.0.1",
  port,
  target,
  hostHeader: "",
  headers: [["User-Agent", "test"]],
  ...given,
});

const get = (request: HttpRequest, signal = never, getter = new HttpGetter()) => getter.get(request, signal);

async function failureOf(request: HttpRequest, signal = never): Promise<string> {
  const { message } = await get(request, signal).then(
    (answer) => assert.fail(`it answers ${answer.status}`),
    (error: Error) => error,
  );
  return message.replaceAll(/127\.0\.0\.1:\d+/g, "HERE");
}

test("an answer is its status; the connection is closed then", async () => {
  let seen: string[] = [];
  await using server = await Listening.http((request, response) => {
    seen = request.rawHeaders;
    response.writeHead(Number(request.url?.slice(1)));
    response.end("some text");
  });
  for (const status of [200, 204, 299, 400, 404, 500, 503]) {
    const answer = await get(requestTo(server.port, `/${status}`));
    assert.deepEqual(answer, { status, body: "", bodyError: undefined });
  }
  assert.deepEqual(seen, ["Host", `127.0.0.1:${server.port}`, "User-Agent", "test", "Connection", "close"]);
  await server.quiet();
});

test("redirects on the same host are followed, ten requests long, to others not", async () => {
  await using server = await Listening.http((request, response) => {
    const [, path = "", value = ""] = request.url?.split("/") ?? [];
    const location: Record<string, string> = {
      loop: `/loop/${Number(value) + 1}`,
      once: "/200",
      away: "http://elsewhere.example/",
      nowhere: "http://[",
      same: `http://127.0.0.1:${server.port}/200`,
      long: Number(value) < 9 ? `/long/${Number(value) + 1}` : "/200",
    };
    const to = location[path];
    if (to === undefined) response.writeHead(path === "304" ? 304 : path === "silent" ? 302 : 200);
    else response.writeHead(302, { location: to });
    response.end(path === "away" ? "go away" : "");
  });
  const { port } = server;
  for (const path of ["/once", "/same", "/200"]) assert.equal((await get(requestTo(port, path))).status, 200, path);
  assert.deepEqual(await get(requestTo(port, "/away")), { status: 302, body: "go away", bodyError: undefined });
  for (const [path, status] of [
    ["/304", 304],
    ["/silent", 302],
  ] as const) {
    assert.equal((await get(requestTo(port, path))).status, status, path);
  }
  assert.equal(
    await failureOf(requestTo(port, "/nowhere")),
    'Get "http://HERE/nowhere": failed to parse Location header "http://[": invalid URL',
  );
  const before = server.connections;
  assert.equal(await failureOf(requestTo(port, "/loop/0")), 'Get "/loop/10": stopped after 10 redirects');
  assert.equal(server.connections - before, 10);
  assert.equal((await get(requestTo(port, "/long/1"))).status, 200, "nine redirects");
  assert.equal(await failureOf(requestTo(port, "/long/0")), 'Get "/200": stopped after 10 redirects');
});

test("a server that sends without end costs ten KiB", async () => {
  let sent = 0;
  await using server = await Listening.raw((socket) => {
    const piece = Buffer.alloc(16 * 1024, "x");
    socket.write("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
    const pour = (): void => {
      while (!socket.destroyed && socket.write(piece)) sent += piece.length;
    };
    socket.on("drain", pour);
    pour();
  });
  assert.equal((await get(requestTo(server.port))).status, 200);
  await server.quiet();
  // Bounded by the buffers of two sockets; the client takes no more.
  assert.ok(sent < 16 * 1024 * 1024, `${sent}`);
});

/** The server's behaviour on a connection, and the expected message. */
const MISBEHAVING: Readonly<Record<string, readonly [serve: (socket: Socket) => void, message: string | RegExp]>> = {
  "closes at once": [(socket) => socket.end(), 'Get "http://HERE/": EOF'],
  resets: [
    (socket) => socket.once("data", () => socket.resetAndDestroy()),
    'Get "http://HERE/": read tcp HERE->HERE: read: connection reset by peer',
  ],
  "speaks no HTTP": [
    (socket) => socket.write("SSH-2.0-OpenSSH_9.2p1\r\n"),
    'Get "http://HERE/": net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-OpenSSH_9.2p1"',
  ],
  "closes within the head": [
    (socket) => socket.end("HTTP/1.1 200 OK\r\nCont"),
    'Get "http://HERE/": net/http: HTTP/1.x transport connection broken: unexpected EOF',
  ],
  "sends headers without end": [
    (socket) => {
      const piece = `X-Header: ${"y".repeat(8000)}\r\n`.repeat(8);
      const pour = (): void => {
        while (!socket.destroyed && socket.write(piece));
      };
      socket.write("HTTP/1.1 200 OK\r\n");
      socket.on("drain", pour);
      pour();
    },
    'Get "http://HERE/": net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 262144 bytes; aborted',
  ],
};

for (const [what, [serve, message]] of Object.entries(MISBEHAVING)) {
  test(`a server that ${what}`, async () => {
    await using server = await Listening.raw(serve);
    assert.equal(await failureOf(requestTo(server.port)), message);
    await server.quiet();
  });
}

test("no server", async () => {
  const server = await Listening.raw(() => undefined);
  const { port } = server;
  await server[Symbol.asyncDispose]();
  assert.equal(await failureOf(requestTo(port)), 'Get "http://HERE/": dial tcp HERE: connect: connection refused');
  assert.match(
    await failureOf(requestTo(80, "/", { host: "nowhere.invalid" })),
    /^Get "http:\/\/nowhere\.invalid:80\/": dial tcp: lookup nowhere\.invalid: /,
  );
});

test("a header that cannot be sent never leaves", async () => {
  await using server = await Listening.raw(() => undefined);
  const request = requestTo(server.port, "/", { headers: [["X-A", "a\nb"]] });
  assert.equal(await failureOf(request), 'Get "http://HERE/": net/http: invalid header field value for "X-A"');
  assert.equal(server.connections, 0);
});

test("a server that never answers is left when the time is over, wherever it stops", async () => {
  const wait = "(Client.Timeout exceeded while awaiting headers)";
  for (const [begin, message] of [
    ["", `Get "http://HERE/": context deadline exceeded ${wait}`],
    ["HTTP/1.1 200 OK\r\n", `Get "http://HERE/": context deadline exceeded ${wait}`],
  ] as const) {
    const time = new AbortController();
    await using server = await Listening.raw((socket) => {
      socket.once("data", () => {
        socket.write(begin);
        setImmediate(() => time.abort(new ProbeTimeout()));
      });
    });
    assert.equal(await failureOf(requestTo(server.port), time.signal), message);
    await server.quiet();
  }
});

test("an incomplete body is reported as such", async () => {
  const time = new AbortController();
  await using server = await Listening.raw((socket) => {
    socket.once("data", (request) => {
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
      if (request.toString().startsWith("GET /cut")) socket.end();
      else setImmediate(() => setImmediate(() => time.abort(new ProbeTimeout())));
    });
  });
  const cut = await get(requestTo(server.port, "/cut"));
  assert.deepEqual(cut, { status: 200, body: "", bodyError: "unexpected EOF" });
  const late = await get(requestTo(server.port, "/late"), time.signal);
  assert.equal(late.bodyError, "context deadline exceeded (Client.Timeout or context cancellation while reading body)");
});

test("a connection that does not come to be is left when the time is over", async () => {
  // The address is reserved for documentation (RFC 5737): no host answers, or there is no route.
  const time = new AbortController();
  const waiting = failureOf(requestTo(81, "/", { host: "192.0.2.1" }), time.signal);
  setImmediate(() => time.abort(new ProbeTimeout()));
  assert.match(
    await waiting,
    /dial tcp 192\.0\.2\.1:81: (i\/o timeout \(Client\.Timeout exceeded while awaiting headers\)|connect: )/,
  );
  const over = AbortSignal.abort(new ProbeTimeout());
  await using server = await Listening.raw(() => undefined);
  assert.match(await failureOf(requestTo(server.port), over), /i\/o timeout/);
});

test("https: certificates are not verified, and an answer without TLS is recognized", async () => {
  const { privateKey: key, certificate: cert } = new TlsAuthority("unknown", new Date("2001-01-01")).issueServer();
  await using server = await Listening.of(
    createHttpsServer({ key, cert }, (request, response) => {
      const isAway = request.url === "/away";
      response.writeHead(isAway ? 301 : 200, isAway ? { location: "/200" } : {});
      response.end("x".repeat(9000));
    }),
  );
  const getter = new HttpGetter();
  const secure = { scheme: "https" } as const;
  for (const path of ["/", "/away"]) {
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => get(requestTo(server.port, path, secure), never, getter)),
    );
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200, 200, 200],
    );
  }
  await using plain = await Listening.http((_, response) => response.end());
  const why = 'Get "https://HERE/": http: server gave HTTP response to HTTPS client';
  assert.equal(await failureOf(requestTo(plain.port, "/", secure)), why);
  await using closing = await Listening.raw((socket) => socket.once("data", () => socket.end()));
  assert.equal(await failureOf(requestTo(closing.port, "/", secure)), 'Get "https://HERE/": EOF');
  const time = new AbortController();
  await using hanging = await Listening.raw((socket) => socket.once("data", () => time.abort(new ProbeTimeout())));
  assert.match(
    await failureOf(requestTo(hanging.port, "/", secure), time.signal),
    /context deadline exceeded \(Client/,
  );
  assert.match(await failureOf(requestTo(server.port)), /EOF|reset by peer/, "and the other way round");
});

test("many at once share one buffer and mix up nothing", async () => {
  await using server = await Listening.http((request, response) => {
    response.writeHead(302, { location: "http://elsewhere.example/" });
    response.end(`${request.url} `.repeat(800));
  });
  const getter = new HttpGetter();
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, index) => get(requestTo(server.port, `/${index}`), never, getter)),
  );
  for (const [index, { body }] of answers.entries()) assert.equal(body, `/${index} `.repeat(800));
});
