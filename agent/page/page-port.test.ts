import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingHttpHeaders } from "node:http";
import { request } from "node:http";
import { request as secureRequest } from "node:https";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { type KubeletUser, unauthorized } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type PodAction, podActionOf, podActionRequest } from "@picolet/protocol/page/pod-actions.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { ReviewParams } from "@picolet/protocol/tunnel/stream.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { HubReviews } from "../kubelet-server/hub-reviews.ts";
import { type PageAccess, pageAccess } from "./page-access.ts";
import type { PageAnswer } from "./page-answers.ts";
import { MAX_CONNECTIONS, PagePort } from "./page-port.ts";
import { MAX_STREAMS, PageServer, type PageServerInit } from "./page-server.ts";
import { PAGE_REVIEWS, type PageReviews, PageUsers } from "./page-users.ts";

type Asked = { readonly status: number; readonly text: string; readonly headers: IncomingHttpHeaders };

const text = (body: PageAnswer["body"], isStream = false): PageAnswer => ({
  ...{ status: 200, contentType: "text/plain; charset=utf-8", body, isStream },
});

/** Tokens are users' names; a right is `USER SUBRESOURCE` or `USER pods/NAMESPACE`. */
class Rights implements PageReviews {
  readonly rights = new Set(["admin page", "admin pods/shop", "viewer proxy", "changer pods/shop"]);
  readonly asked: string[] = [];
  isAway = false;

  async userOfToken(token: string): Promise<KubeletUser | undefined> {
    this.asked.push(token);
    if (this.isAway) throw unauthorized(new PicoletError("unavailable", "there is no session"));
    return token === "unknown" ? undefined : { name: token, groups: [] };
  }

  async allows({ name }: KubeletUser, question: Parameters<PageReviews["allows"]>[1]): Promise<boolean> {
    const right = "podsIn" in question ? `pods/${question.podsIn}` : question.subresource;
    return this.rights.has(`${name} ${right}`);
  }
}

class Page implements AsyncDisposable {
  readonly reviews = new Rights();
  /** The changes that were let through: who wants what. */
  readonly changes: string[] = [];
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly port: PagePort;
  readonly access: PageAccess | undefined;
  opened = 0;
  unloaded = 0;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(
    answer: (url: string, signal: AbortSignal) => Promise<PageAnswer> = async (url) => text([url]),
    init: Partial<PageServerInit> = {},
    reviews: PageReviews = this.reviews,
  ) {
    const { clock, log } = this;
    this.access = init.access;
    const open = async (): Promise<PageServer> => {
      this.opened += 1;
      const users = new PageUsers({ reviews, clock }, { nodeName: "board-1" });
      const change = async (action: PodAction, user: string): Promise<PageAnswer> => {
        this.changes.push(`${user}: ${action.verb} ${action.namespace}/${action.name}`);
        return text(["done"]);
      };
      return await PageServer.open({ answer, change, users, log }, { names: ["board-1"], access: undefined, ...init });
    };
    const unload = (): void => {
      this.unloaded += 1;
    };
    this.port = new PagePort({ open, unload, clock, log }, { address: "127.0.0.1", port: 0 });
    this.#running = endOfRun(this.port.run(this.#stop.signal));
  }

  async listening(): Promise<number> {
    while (this.port.port === undefined) await this.clock.settle();
    return this.port.port;
  }

  async ask(path: string, headers: Record<string, string> = {}, method = "GET"): Promise<Asked> {
    const port = await this.listening();
    const send = this.access === undefined ? request : secureRequest;
    return await new Promise((resolve, reject) => {
      const options = { host: "127.0.0.1", port, path, method, headers, agent: false, rejectUnauthorized: false };
      const sent = send(options, (response) => {
        let body = "";
        response.on("data", (chunk: Buffer) => {
          body += chunk.toString();
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text: body, headers: response.headers }));
        response.on("error", reject);
      });
      sent.on("error", reject);
      sent.end();
    });
  }

  async connect(): Promise<Socket> {
    const socket = connect(await this.listening(), "127.0.0.1");
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

test("until a client comes the page is a socket alone, and it is again a minute after the last", async () => {
  await using page = new Page();
  await page.listening();
  assert.deepEqual([page.opened, page.port.isLoaded], [0, false]);
  assert.equal((await page.ask("/page/x")).text, "/page/x");
  assert.deepEqual([page.opened, page.port.isLoaded], [1, true]);
  await page.clock.settle();
  await page.clock.advance(seconds(59));
  assert.equal(page.port.isLoaded, true);
  while (page.port.isLoaded) await page.clock.advance(seconds(60));
  assert.equal(page.unloaded, 1);
  assert.equal((await page.ask("/page/y")).text, "/page/y");
  assert.equal(page.opened, 2);
});

test("every answer tells browsers to run nothing but the page's own files", async () => {
  await using page = new Page();
  for (const path of ["/page/", "/page/data/status", "/nothing", "/"]) {
    const { headers } = await page.ask(path);
    const policy = String(headers["content-security-policy"]);
    assert.match(policy, /^default-src 'none'; script-src 'self'; .*frame-ancestors 'none'; require-trusted-types-for/);
    assert.doesNotMatch(policy, /unsafe/);
    assert.equal(headers["x-content-type-options"], "nosniff");
    assert.equal(headers["x-frame-options"], "DENY");
    assert.equal(headers["cross-origin-resource-policy"], "same-origin");
    assert.equal(headers["access-control-allow-origin"], undefined);
  }
});

const REFUSED: readonly (readonly [what: string, headers: Record<string, string>, method: string, status: number])[] = [
  ["a name that was pointed here", { host: "evil.example" }, "GET", 421],
  ["a name that begins like ours", { host: "board-1.evil.example:4194" }, "GET", 421],
  ["an address within a name", { host: "127.0.0.1.evil.example" }, "GET", 421],
  ["another site's script", { "sec-fetch-site": "cross-site" }, "GET", 403],
  ["a page of the same machine's other port", { "sec-fetch-site": "same-site" }, "GET", 403],
  ["a form of another site", {}, "POST", 405],
  ["a deletion", {}, "DELETE", 405],
];

for (const [what, headers, method, status] of REFUSED) {
  test(`it refuses ${what}`, async () => {
    await using page = new Page();
    assert.equal((await page.ask("/page/data/status", headers, method)).status, status);
  });
}

test("its own names and addresses are taken", async () => {
  await using page = new Page();
  for (const host of ["localhost:1", "127.0.0.1", "[::1]:4194", "192.168.7.9:80", "board-1", "BOARD-1:4194"])
    assert.equal((await page.ask("/page/data/status", { host })).status, 200, host);
  assert.equal((await page.ask("/page/data/status", { "sec-fetch-site": "same-origin" })).status, 200);
  assert.equal((await page.ask("/", {}, "HEAD")).headers.location, "/page/");
  assert.equal((await page.ask("/metrics")).status, 404);
});

test("no host header that is no address and none of its names is taken", () => {
  const names = ["board-1"];
  return import("@picolet/protocol/page/page-headers.ts").then(({ isOwnHost }) => {
    fc.assert(
      fc.property(fc.domain(), (domain) => {
        fc.pre(domain !== "localhost" && domain !== "board-1");
        assert.equal(isOwnHost(domain, names), false);
        assert.equal(isOwnHost(`${domain}:4194`, names), false);
      }),
    );
    fc.assert(fc.property(fc.string(), (any) => typeof isOwnHost(any, names) === "boolean"));
  });
});

test("on the network it asks for the token, by TLS, and keeps both", async () => {
  using folder = new TempFolder();
  const access = await pageAccess(folder.at("page"), "board-1");
  assert.deepEqual(await pageAccess(folder.at("page"), "board-1"), access);
  await using page = new Page(undefined, { access });
  assert.equal((await page.ask("/page/")).status, 200);
  for (const headers of [{}, bearer("unknown"), { authorization: access.token }])
    assert.equal((await page.ask("/page/data/status", headers)).status, 401, JSON.stringify(headers));
  page.reviews.isAway = true;
  for (const token of [`${access.token}x`, access.token.toUpperCase()])
    assert.equal((await page.ask("/page/data/status", bearer(token))).status, 401, token);
  assert.equal((await page.ask("/page/data/status", bearer(access.token))).status, 200);
});

const RESTART = "/page/data/pods/shop/web-board-1/restart";
const DELETE = "/page/data/pods/shop/web-board-1";
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });

test("a user who may delete the pods of a namespace restarts and deletes there", async () => {
  await using page = new Page();
  assert.equal((await page.ask(RESTART, bearer("admin"), "POST")).text, "done");
  const headers = { ...bearer("admin"), "sec-fetch-site": "same-origin", "content-length": "0" };
  assert.equal((await page.ask(DELETE, headers, "DELETE")).status, 200);
  assert.deepEqual(page.changes, ["admin: restart shop/web-board-1", "admin: delete shop/web-board-1"]);
  // The answers are kept for a while.
  assert.deepEqual(page.reviews.asked, ["admin"]);
});

const REFUSED_CHANGES: readonly (readonly [
  what: string,
  status: number,
  message: RegExp,
  change: { readonly headers?: Record<string, string>; readonly method?: string; readonly path?: string },
])[] = [
  ["no token", 401, /the token of a user who may delete pods in namespace shop/, { headers: {} }],
  ["a cookie", 401, /the token of a user/, { headers: { cookie: "token=admin" } }],
  ["another scheme", 401, /knows this token/, { headers: { authorization: "Basic admin" } }],
  ["an unknown token", 401, /neither the board nor its hub/, { headers: bearer("unknown") }],
  [
    "a user who may read alone",
    403,
    /viewer may not restart or delete.* delete on pods in namespace shop/,
    {
      headers: bearer("viewer"),
    },
  ],
  ["a user who may not read the page", 403, /get on nodes\/page/, { headers: bearer("changer") }],
  ["another namespace", 403, /namespace other/, { path: "/page/data/pods/other/web" }],
  ["another site", 403, /another site/, { headers: { ...bearer("admin"), "sec-fetch-site": "cross-site" } }],
  ["another port of the machine", 403, /site/, { headers: { ...bearer("admin"), "sec-fetch-site": "same-site" } }],
  ["a name that was pointed here", 421, /host name/, { headers: { ...bearer("admin"), host: "evil.example" } }],
  ["a body", 400, /has no body/, { headers: { ...bearer("admin"), "transfer-encoding": "chunked" } }],
  ["a query", 405, /only reads/, { path: `${DELETE}?gracePeriodSeconds=0` }],
  ["an encoded name", 405, /only reads/, { path: "/page/data/pods/shop/..%2fweb" }],
  ["a restart by DELETE", 405, /only reads/, { path: RESTART }],
  ["all pods", 405, /only reads/, { path: "/page/data/pods/shop" }],
  ["another method", 405, /only reads/, { method: "PUT" }],
  ["a preflight", 405, /only reads/, { method: "OPTIONS" }],
];

for (const [what, status, message, change] of REFUSED_CHANGES) {
  test(`it changes no pod for ${what}`, async () => {
    await using page = new Page();
    const { headers = bearer("admin"), method = "DELETE", path = DELETE } = change;
    const answer = await page.ask(path, headers, method);
    assert.equal(answer.status, status, answer.text);
    const body = JSON.parse(answer.text) as { kind: string; status: string; message: string; code: number };
    assert.deepEqual([body.kind, body.status, body.code], ["Status", "Failure", status]);
    assert.match(body.message, message);
    assert.deepEqual(page.changes, []);
  });
}

test("without its hub a board changes nothing for a user, and is read with its own token", async () => {
  using folder = new TempFolder();
  const access = await pageAccess(folder.at("page"), "board-1");
  await using page = new Page(undefined, { access });
  page.reviews.isAway = true;
  const away = await page.ask(DELETE, bearer("admin"), "DELETE");
  assert.deepEqual([away.status, away.text.includes("cannot be asked now")], [503, true]);
  assert.equal((await page.ask("/page/data/status", bearer("admin"))).status, 401);
  assert.equal((await page.ask("/page/data/status", bearer(access.token))).status, 200);
  const own = await page.ask(DELETE, bearer(access.token), "DELETE");
  assert.deepEqual([own.status, /the board's token only reads/.test(own.text)], [403, true]);
  page.reviews.isAway = false;
  assert.equal((await page.ask("/page/data/status", bearer("viewer"))).status, 200);
  assert.equal((await page.ask("/page/data/status", bearer("changer"))).status, 403);
  assert.equal((await page.ask(DELETE, bearer("admin"), "DELETE")).status, 200);
  assert.deepEqual(page.changes, ["admin: delete shop/web-board-1"]);
});

test("a hub that is too old for changes of pods is named, with what to do", async () => {
  const review = async (params: ReviewParams): Promise<unknown> => {
    if (params.review === "token") return { user: { name: params.token, groups: [] } };
    if (params.review === "access") return { allowed: true };
    throw new PicoletError("invalid", "cannot read the review", { cause: "Invalid discriminator value" });
  };
  await using page = new Page(undefined, {}, new HubReviews({ hub: { review } }));
  const { status, text: body } = await page.ask(DELETE, bearer("admin"), "DELETE");
  assert.equal(status, 501);
  const sentence =
    "the board's hub is too old to say who may restart or delete pods: update the hub, or use edgectl on the board";
  assert.equal((JSON.parse(body) as { message: string }).message, sentence);
  assert.deepEqual(page.changes, []);
});

test("a network that guesses tokens does not have the hub asked without end", async () => {
  await using page = new Page();
  for (let guess = 0; guess < PAGE_REVIEWS.burst; guess += 1)
    assert.equal((await page.ask(DELETE, bearer("unknown"), "DELETE")).status, 401);
  assert.equal((await page.ask(DELETE, bearer("unknown"), "DELETE")).status, 429);
  assert.equal(page.reviews.asked.length, PAGE_REVIEWS.burst);
});

test("the path of a change is a pod's name and nothing else", () => {
  const label = fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?$/);
  const action = fc.record(
    {
      verb: fc.constantFrom("restart" as const, "delete" as const),
      namespace: label,
      name: label,
    },
    { noNullPrototype: true },
  );
  fc.assert(
    fc.property(action, (given) => {
      const { method, path } = podActionRequest(given);
      assert.deepEqual(podActionOf(method, path), given);
      assert.equal(podActionOf("GET", path), undefined);
    }),
  );
  const piece = fc.oneof(fc.string(), fc.constantFrom("/", "..", "%2e", "pods", "restart", "?", "a", "-", "."));
  const near = fc.tuple(piece, piece, piece).map((pieces) => `pods/${pieces.join("/")}`);
  fc.assert(
    fc.property(fc.constantFrom("POST", "DELETE"), fc.oneof(near, fc.string()), (method, path) => {
      const found = podActionOf(method, path);
      if (found === undefined) return;
      assert.equal(podActionRequest(found).path, path);
      // A browser and a server read such a path as it is written.
      assert.equal(new URL(path, "http://board/page/data/").pathname, `/page/data/${path}`);
    }),
    { numRuns: 2000 },
  );
  for (const path of [
    "pods/../x",
    "pods/a/..",
    "pods/a/b/",
    "pods//b",
    "pods/A/b",
    `pods/${"a".repeat(64)}/b`,
    "pods/a/b\n",
  ])
    assert.equal(podActionOf("DELETE", path), undefined, path);
});

test("idle connections make room for a client that asks", async () => {
  await using page = new Page();
  const idle = await Promise.all(Array.from({ length: MAX_CONNECTIONS }, () => page.connect()));
  assert.equal((await page.ask("/page/z")).text, "/page/z");
  for (const socket of idle) socket.destroy();
});

test("streams are bounded, and leave other requests their place", async () => {
  const forever = async function* (signal: AbortSignal) {
    yield "begun\n";
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
  };
  await using page = new Page(async (url, signal) => (url.endsWith("log") ? text(forever(signal), true) : text([url])));
  const streams = await Promise.all(
    Array.from({ length: MAX_STREAMS }, async () => {
      const socket = await page.connect();
      socket.write("GET /page/data/log HTTP/1.1\r\nhost: localhost\r\n\r\n");
      const [head] = (await once(socket, "data")) as [Buffer];
      assert.match(head.toString(), /^HTTP\/1.1 200 /);
      return socket;
    }),
  );
  assert.equal((await page.ask("/page/data/log")).status, 429);
  assert.equal((await page.ask("/page/data/status")).status, 200);
  for (const socket of streams) socket.destroy();
});

test("a client that reads nothing is read nothing ahead for, and is disconnected", async () => {
  let made = 0;
  const endless = async function* () {
    for (;;) {
      made += 1;
      yield Buffer.alloc(64 * 1024);
    }
  };
  await using page = new Page(async (url) => (url.endsWith("log") ? text(endless(), true) : text([url])), {
    unreadTimeoutMs: 200,
  });
  const slow = await page.connect();
  slow.pause();
  slow.write("GET /page/data/log HTTP/1.1\r\nhost: localhost\r\n\r\n");
  // Another client is answered meanwhile.
  assert.equal((await page.ask("/page/data/status")).status, 200);
  while (page.port.connections > 0) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(made < 500, `${made} pieces of 64 KiB were made`);
  slow.destroy();
});

test("what is no request, or too large a one, is cut off and harms no other", async () => {
  await using page = new Page();
  for (const garbage of ["\x16\x03\x01\x02", "GET\r\n\r\n", `GET /page/ HTTP/1.1\r\nx: ${"a".repeat(9000)}\r\n\r\n`]) {
    const socket = await page.connect();
    const closed = once(socket, "close");
    socket.write(garbage);
    await closed;
  }
  assert.equal((await page.ask("/page/")).status, 200);
});
