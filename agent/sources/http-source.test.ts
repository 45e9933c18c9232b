import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { type AddressInfo, createServer as createRawServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import { samplePod } from "@picolet/test/support/unit/store/store-samples.ts";
import fc from "fast-check";
import { MAX_TEXT_BYTES } from "./http-fetch.ts";
import { HttpSource, type HttpSourceInit } from "./http-source.ts";

const CHECK = seconds(20);
const TIME_LIMIT = seconds(60);
const WAIT_LIMIT_MS = 60_000;

const podJson = (name: string, image = "busybox:1"): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: { containers: [{ name: "app", image }] },
});
const listOf = (...names: string[]): string =>
  JSON.stringify({ apiVersion: "v1", kind: "PodList", items: names.map((name) => podJson(name)) });

/** Tells when the source has done its look and waits for the next. */
class LookingClock implements Clock {
  readonly time = new VirtualClock();
  readonly pauses = new WatchSource<readonly Millis[]>([]);

  monotonic(): ReturnType<Clock["monotonic"]> {
    return this.time.monotonic();
  }

  wall(): Date {
    return this.time.wall();
  }

  sleep(duration: Millis, signal: AbortSignal): Promise<void> {
    const slept = this.time.sleep(duration, signal);
    if (duration !== TIME_LIMIT) this.pauses.set([...this.pauses.current, duration]);
    return slept;
  }
}

class Bench implements AsyncDisposable {
  readonly clock = new LookingClock();
  readonly store: MemoryDesiredStore;
  readonly events = new RecordedEvents();
  readonly source: HttpSource;
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;
  #looks = 0;

  constructor(url: string, init: Partial<HttpSourceInit> = {}, store = new MemoryDesiredStore()) {
    this.store = store;
    const { clock, events } = this;
    this.source = new HttpSource(
      { clock, random: { next: () => 0.5 }, log: new RecordedLog(), store, events },
      { url, headers: {}, checkFrequency: CHECK, nodeName: "n", caFiles: [], ...init },
    );
    this.#done = endOfRun(this.source.run(this.#stop.signal));
  }

  /** The next look is over. @returns the pause after it */
  async looked(): Promise<Millis> {
    this.#looks += 1;
    for await (const pauses of this.clock.pauses.changes(AbortSignal.timeout(WAIT_LIMIT_MS))) {
      const pause = pauses[this.#looks - 1];
      if (pause !== undefined) return pause;
    }
    throw new Error("it never looked");
  }

  /** The time for the next look has come, and it is over. */
  async again(): Promise<Millis> {
    await this.clock.time.advance(this.clock.pauses.current.at(-1) ?? CHECK);
    return await this.looked();
  }

  get wanted(): readonly string[] {
    return [...this.store.desired.current.pods.values()].map(({ pod, source }) => `${pod.metadata.name} ${source}`);
  }

  get problems(): readonly string[] {
    return this.source.problems.current.map(({ source, line, message }) => `${source} ${line ?? "-"} ${message}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }
}

class Site implements AsyncDisposable {
  readonly server: Server;
  readonly asked: IncomingMessage[] = [];
  answer: RequestListener = (_, response) => void response.end();

  constructor(make: (listener: RequestListener) => Server = createServer) {
    this.server = make((request, response) => {
      this.asked.push(request);
      request.on("error", () => undefined);
      response.on("error", () => undefined);
      this.answer(request, response);
    });
  }

  static async start(make?: (listener: RequestListener) => Server): Promise<Site> {
    const site = new Site(make);
    site.server.listen(0, "127.0.0.1");
    await once(site.server, "listening");
    return site;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/pods`;
  }

  says(text: string, headers: Record<string, string> = {}): void {
    this.answer = (_, response) => void response.writeHead(200, headers).end(text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, "close");
  }
}

test("a Pod, a list, and a list of none", async () => {
  await using site = await Site.start();
  site.says("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - {name: app, image: busybox}\n");
  await using bench = new Bench(site.url);
  assert.equal(await bench.looked(), CHECK);
  assert.deepEqual(bench.wanted, ["a-n http"]);
  const [pod] = bench.store.desired.current.pods.values();
  assert.equal(pod?.pod.metadata.annotations?.["kubernetes.io/config.source"], "http");
  assert.equal(pod?.origin, site.url);
  site.says(listOf("b", "c"));
  await bench.again();
  assert.deepEqual(bench.wanted, ["b-n http", "c-n http"]);
  site.says(listOf());
  await bench.again();
  assert.deepEqual(bench.wanted, []);
  assert.deepEqual(bench.problems, []);
});

test("a field that no pod has is warned of as long as the server says it", async () => {
  await using site = await Site.start();
  const misspelt = { ...podJson("a"), spce: {} };
  site.says(JSON.stringify(misspelt));
  await using bench = new Bench(site.url);
  await bench.looked();
  await bench.again();
  assert.deepEqual(bench.wanted, ["a-n http"]);
  assert.deepEqual(
    bench.source.warnings.current.map(({ message }) => message),
    ['unknown field "spce", did you mean "spec"?'],
  );
  assert.deepEqual(bench.problems, []);
  site.says(listOf("a"));
  await bench.again();
  assert.deepEqual(bench.source.warnings.current, []);
});

test("what has not changed is not sent again, and stores nothing", async () => {
  await using site = await Site.start();
  site.answer = (request, response) => {
    const isKnown = request.headers["if-none-match"] === '"1"' && request.headers["if-modified-since"] === "yesterday";
    if (isKnown) response.writeHead(304).end();
    else response.writeHead(200, { etag: '"1"', "last-modified": "yesterday" }).end(listOf("a"));
  };
  await using bench = new Bench(site.url);
  await bench.looked();
  await bench.again();
  await bench.again();
  assert.equal(bench.store.writes, 1);
  assert.deepEqual(
    site.asked.map(({ headers }) => headers["if-none-match"]),
    [undefined, '"1"', '"1"'],
  );
  assert.equal(new Set(site.asked.map(({ socket }) => socket)).size, 1, "one connection");
  assert.deepEqual(bench.wanted, ["a-n http"]);
});

test("a server without tags that says the same stores nothing either", async () => {
  await using site = await Site.start();
  site.says(listOf("a"));
  await using bench = new Bench(site.url);
  await bench.looked();
  const before = bench.store.desired.current;
  await bench.again();
  assert.equal(bench.store.desired.current, before);
});

test("headers go with the request, and what is secret not to another host", async () => {
  await using site = await Site.start();
  await using other = await Site.start();
  site.answer = ({ url }, response) => {
    const location = url === "/pods" ? "moved" : `http://localhost:${other.port}/elsewhere`;
    response.writeHead(302, { location }).end();
  };
  other.says(listOf("a"));
  const headers = { "Metadata-Flavor": ["Google"], "X-Two": ["1", "2"], Authorization: ["Bearer secret"] };
  await using bench = new Bench(site.url, { headers });
  await bench.looked();
  assert.deepEqual(
    site.asked.map((request) => [request.url, request.headers.authorization]),
    [
      ["/pods", "Bearer secret"],
      ["/moved", "Bearer secret"],
    ],
  );
  const [first, second] = [site.asked[0]?.headers, other.asked[0]?.headers];
  assert.deepEqual(
    [first?.["metadata-flavor"], first?.["x-two"], first?.authorization],
    ["Google", "1, 2", "Bearer secret"],
  );
  assert.deepEqual([second?.["metadata-flavor"], second?.authorization], ["Google", undefined]);
  assert.deepEqual(bench.wanted, ["a-n http"]);
});

type Trouble = readonly [answer: (request: IncomingMessage, response: ServerResponse) => void, problem: RegExp];

const TROUBLES: Readonly<Record<string, Trouble>> = {
  "is not there": [(_, response) => void response.writeHead(404).end("no"), /was answered with 404 Not Found/],
  "has fallen over": [(_, response) => void response.writeHead(503).end(), /was answered with 503 Service Unavailable/],
  "says that nothing changed without being asked": [
    (_, response) => void response.writeHead(304).end(),
    /was answered with 304/,
  ],
  "hangs up": [(request) => void request.socket.destroy(), /cannot reach 127.0.0.1:\d+: socket hang up/],
  "cuts its answer short": [
    (request, response) => {
      response.writeHead(200, { "content-length": "1000" }).write("kind: Pod");
      setImmediate(() => request.socket.destroy());
    },
    /the answer was cut short/,
  ],
  "sends nothing": [(_, response) => void response.end(), /holds no pod; to remove all pods, answer with a List/],
  "sends what is no text": [(_, response) => void response.end(Buffer.from([0xff, 0xfe])), /is no text/],
  "sends what is no pod": [(_, response) => void response.end("<html>captive portal</html>"), /Invalid|must be/],
  "sends a bad pod among good ones": [
    (_, response) =>
      void response.end(JSON.stringify({ kind: "List", apiVersion: "v1", items: [podJson("b"), podJson("c", "")] })),
    /items\[1\]\.spec\.containers\[0\]\.image: Required value/,
  ],
  "sends without end": [
    (_, response) => {
      const piece = Buffer.alloc(64 * 1024, " ");
      const send = (): void => {
        if (!response.destroyed) response.write(piece, send);
      };
      send();
    },
    new RegExp(`Too long: may not be more than ${MAX_TEXT_BYTES} bytes`),
  ],
  "sends us round in circles": [
    (_, response) => void response.writeHead(301, { location: "/pods" }).end(),
    /stopped after 10 redirects/,
  ],
  "sends us to a file": [
    (_, response) => void response.writeHead(301, { location: "file:///etc/passwd" }).end(),
    /was redirected to what is no http or https URL/,
  ],
};

for (const [name, [answer, problem]] of Object.entries(TROUBLES)) {
  test(`a server that ${name} changes nothing that runs, and is named`, async () => {
    await using site = await Site.start();
    site.says(listOf("a"));
    await using bench = new Bench(site.url);
    await bench.looked();
    site.answer = answer;
    await bench.again();
    assert.deepEqual(bench.wanted, ["a-n http"]);
    assert.match(bench.problems.join("\n"), problem);
    assert.match(bench.problems[0] ?? "", /^http /);
    assert.match(
      bench.events.lines.join("\n"),
      /^Warning (ManifestsUnavailable|InvalidManifest): http:.*its pods go on as they were/,
    );
    site.says(listOf("b"));
    await bench.again();
    assert.deepEqual(bench.wanted, ["b-n http"]);
    assert.deepEqual(bench.problems, []);
  });
}

test("a server that dribbles is given up after a minute", async () => {
  await using site = await Site.start();
  const begun = Promise.withResolvers<void>();
  site.answer = (_, response) => {
    response.writeHead(200).write("kind");
    begun.resolve();
  };
  await using bench = new Bench(site.url);
  await begun.promise;
  await bench.clock.time.advance(TIME_LIMIT);
  await bench.looked();
  assert.match(bench.problems.join(), /cannot read it within 60 s/);
});

test("a server that is away is asked less and less often", async () => {
  await using site = await Site.start();
  site.answer = (_, response) => void response.writeHead(500).end();
  await using bench = new Bench(site.url);
  const pauses = [await bench.looked()];
  for (let count = 0; count < 6; count += 1) pauses.push(await bench.again());
  assert.deepEqual(
    pauses,
    [20, 40, 80, 160, 300, 300, 300].map((each) => millis(each * 1000)),
  );
  site.says(listOf());
  assert.equal(await bench.again(), CHECK);
  assert.equal(bench.events.lines.length, 1, "it is told once");
});

test("pods of before go on while a server has never been reached since the start", async () => {
  const store = new MemoryDesiredStore();
  store.adopt([samplePod("old-n", { source: "http", origin: "http://x/" })]);
  await using bench = new Bench("http://127.0.0.1:1/pods", {}, store);
  await bench.looked();
  assert.deepEqual(bench.wanted, ["old-n http"]);
  assert.equal(store.desired.current.synced.has("http"), false);
  assert.match(bench.problems.join(), /ECONNREFUSED/);
});

test("a pod that a manifest has is refused, until the manifest is gone", async () => {
  await using site = await Site.start();
  site.says(listOf("taken", "b"), { etag: '"1"' });
  const store = new MemoryDesiredStore();
  store.replace("file", 1, [samplePod("taken-n", { origin: "/m.yaml" })]);
  await using bench = new Bench(site.url, {}, store);
  await bench.looked();
  assert.deepEqual(bench.wanted, ["taken-n file"]);
  assert.match(bench.problems.join(), /metadata.name: Duplicate value: pod default\/taken-n is that of \/m.yaml/);
  store.replace("file", 2, []);
  await bench.again();
  assert.deepEqual(bench.wanted, ["taken-n http", "b-n http"]);
});

test("a disk that is full is said, and tried again", async () => {
  await using site = await Site.start();
  site.says(listOf("a"), { etag: '"1"' });
  const store = new MemoryDesiredStore();
  store.failure = new PicoletError("resource_exhausted", "cannot store the pods");
  await using bench = new Bench(site.url, {}, store);
  await bench.looked();
  assert.match(bench.problems.join(), /cannot store the pods; it will be tried again/);
  store.failure = undefined;
  await bench.again();
  assert.deepEqual(bench.wanted, ["a-n http"]);
});

test("https: whom the system trusts is believed, and nobody else; a password is shown to nobody", async () => {
  using folder = new TempFolder();
  const [trusted, strange] = [new TlsAuthority(), new TlsAuthority("stranger")];
  const caFile = join(folder.path, "ca.crt");
  writeFileSync(caFile, trusted.ca);
  for (const authority of [trusted, strange]) {
    const { privateKey: key, certificate: cert } = authority.issueServer();
    await using site = await Site.start((listener) => createSecureServer({ key, cert }, listener) as unknown as Server);
    site.says(listOf("a"));
    const url = `https://user:secret@127.0.0.1:${site.port}/pods`;
    await using bench = new Bench(url, { caFiles: ["/nonexistent", caFile] });
    await bench.looked();
    assert.deepEqual(bench.wanted, authority === trusted ? ["a-n http"] : []);
    if (authority === strange) assert.match(bench.problems.join(), /self-signed|unable to (get|verify)/);
    else assert.equal(site.asked[0]?.headers.authorization, `Basic ${btoa("user:secret")}`);
    const told = JSON.stringify([
      bench.source.problems.current,
      bench.events.lines,
      [...bench.store.desired.current.pods],
    ]);
    assert.equal(told.includes("secret"), false);
  }
});

test("a header that cannot be sent is a problem, not the end", async () => {
  await using bench = new Bench("http://127.0.0.1:1/", { headers: { "a b": ["c"] } });
  await bench.looked();
  assert.match(bench.problems.join(), /cannot ask 127.0.0.1:1: .*Invalid|must be a valid HTTP token/i);
});

test("whatever a server sends, nothing that runs changes but by a good answer", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 4 }),
      fc.boolean(),
      async (pieces, isHttp) => {
        const server = createRawServer((socket) => {
          socket.on("error", () => undefined);
          if (isHttp) socket.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
          for (const piece of pieces) socket.write(piece);
          socket.end();
        });
        server.listen(0, "127.0.0.1");
        await once(server, "listening");
        try {
          const store = new MemoryDesiredStore();
          store.adopt([samplePod("old-n", { source: "http", origin: "http://x/" })]);
          const { port } = server.address() as AddressInfo;
          await using bench = new Bench(`http://127.0.0.1:${port}/`, {}, store);
          await bench.looked();
          assert.deepEqual(bench.wanted, ["old-n http"]);
          assert.equal(bench.problems.length > 0, true);
        } finally {
          server.close();
        }
      },
    ),
    { numRuns: 60 },
  );
});
