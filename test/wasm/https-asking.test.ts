/** Requests by https: real components in real processes, and TLS servers on the loopback. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer, type RequestListener } from "node:http";
import { createServer } from "node:https";
import { createServer as createTcpServer, type Server } from "node:net";
import { type TestContext, test } from "node:test";
import type { TLSSocket, TlsOptions } from "node:tls";
import { makeAuthority } from "@picolet/hub/identity/certificate-authority.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { TlsAuthority } from "../support/unit/identity/tls-authority.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { type WasmBench, wasmBench } from "../support/wasm/wasm-bench.ts";
import type { WasmPodOptions, WasmRuntimeOptions } from "../support/wasm/wasm-runtime.ts";

const authority = new TlsAuthority();
const DAY_MS = 86_400_000;
const NEVER = new AbortController().signal;
/** Lets a component wait for a server of this process on a busy machine. */
const PATIENT = { name: "FIRST_BYTE_MS", value: "25000" };
const MODES = ["isolated", "dense"] as const;

const folder = new TempFolder();
process.once("exit", () => folder[Symbol.dispose]());
const caFile = folder.at("ca.pem");
writeFileSync(caFile, authority.ca);

async function portOf(context: TestContext, server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => server.close());
  return (server.address() as { port: number }).port;
}

const fine: RequestListener = (_, response) => void response.end("fine");

/** Starts a server with a certificate of this authority, unless `more` says otherwise. */
const tlsPort = (context: TestContext, more: TlsOptions = {}, listener = fine): Promise<number> => {
  const { privateKey, certificate } = authority.issueServer();
  const server = createServer({ key: privateKey, cert: certificate, ...more }, listener);
  // A client that goes away in the handshake is no fault.
  server.on("tlsClientError", () => undefined);
  return portOf(context, server);
};

interface Said {
  readonly out: string[];
  readonly err: string[];
}

interface Asking {
  readonly network: string;
  readonly args: readonly string[];
  readonly mode?: (typeof MODES)[number];
  readonly env?: readonly { readonly name: string; readonly value: string }[];
  readonly container?: WasmPodOptions["container"];
}

/** The output of `http-client.c` for these requests, in a pod with this network. */
async function asks(made: WasmBench, { network, args, mode = "isolated", env = [], container }: Asking): Promise<Said> {
  const annotations = { "wasm.picolet.io/network": network, "wasm.picolet.io/mode": mode };
  await using pod = await made.pod("http-client.c", {
    annotations,
    ...(container === undefined ? {} : { container }),
    // A log of its own.
    name: randomUUID(),
  });
  const started = await pod.start({ args, env: [...env, PATIENT] });
  const { exitCode, message, reason } = await pod.exit(started.id);
  assert.equal(exitCode, 0, `${reason}: ${message}`);
  const lines = await pod.lines(started, 1);
  const of = (stream: string): string[] => lines.filter((each) => each.stream === stream).map(({ text }) => text);
  return { out: of("stdout"), err: of("stderr") };
}

const trusting = (context: TestContext, more: WasmRuntimeOptions = {}): Promise<WasmBench> =>
  wasmBench(context, { caFile, ...more });

const get = (host: string, port: number, path = "/"): string[] => ["GET", "https", `${host}:${port}`, path, "-"];

for (const mode of MODES) {
  test(`a server of the node's own authority is asked, by name and by address (${mode})`, async (context) => {
    const heard: string[] = [];
    const port = await tlsPort(context, {}, (request, response) => {
      const { servername, alpnProtocol } = request.socket as TLSSocket & { servername?: string | false };
      heard.push(`${request.method} ${request.url} ${request.headers.host} ${servername || "no name"} ${alpnProtocol}`);
      response.end("fine");
    });
    const { out, err } = await asks(await trusting(context), {
      network: `https://localhost:${port}; https://127.0.0.1:${port}`,
      args: [...get("localhost", port, "/named"), ...get("127.0.0.1", port)],
      mode,
    });
    assert.deepEqual(out, ["200 fine", "200 fine"]);
    assert.deepEqual(err, []);
    assert.deepEqual(heard, [
      `GET /named localhost:${port} localhost http/1.1`,
      `GET / 127.0.0.1:${port} no name http/1.1`,
    ]);
  });
}

test("whom nobody trusts, who is another, and whose time is over or to come is refused, and the log says which", async (context) => {
  const expired = authority.issueServerFor(["127.0.0.1"], new Date(Date.now() - 5 * DAY_MS));
  const early = authority.issueServerFor(["127.0.0.1"], new Date(Date.now() + 0.5 * DAY_MS));
  const alone = makeAuthority("itself", { days: 1, now: new Date() });
  const stranger = new TlsAuthority("another").issueServer();
  const elsewhere = authority.issueServerFor(["127.0.0.9", "example.test"]);
  const servers = [
    { key: expired.privateKey, cert: expired.certificate },
    { key: early.privateKey, cert: early.certificate },
    { key: alone.key.export({ type: "pkcs8", format: "pem" }).toString(), cert: alone.certificate },
    { key: stranger.privateKey, cert: stranger.certificate },
    { key: elsewhere.privateKey, cert: elsewhere.certificate },
  ];
  const ports = await Promise.all(servers.map((each) => tlsPort(context, each)));
  const [stale = 0, young = 0, self = 0, unknown = 0, other = 0] = ports;
  const right = await tlsPort(context);
  const { out, err } = await asks(await trusting(context), {
    network: [...ports, right]
      .flatMap((port) => [`https://127.0.0.0/8:${port}`, `https://localhost:${port}`])
      .join(";"),
    args: [
      ...ports.flatMap((port) => get("127.0.0.1", port)),
      ...get("localhost", other),
      // Told once.
      ...get("localhost", other),
      ...get("127.0.0.1", right),
    ],
  });
  assert.deepEqual(out, [...Array.from({ length: 7 }, () => "TLS-certificate-error"), "200 fine"]);
  const no = (port: number, host = "127.0.0.1"): string => `picolet: no TLS with ${host} port ${port}: its certificate`;
  const untrusted =
    "is not signed by an authority that this node trusts: name the authority in wasm.http.caFile of the node";
  assert.deepEqual(err, [
    `${no(stale)} has expired, by this node's clock`,
    `${no(young)} is not valid yet: check this node's clock`,
    `${no(self)} ${untrusted}`,
    `${no(unknown)} ${untrusted}`,
    `${no(other)} is for another host`,
    `${no(other, "localhost")} is for another host`,
  ]);
});

test("a node without the authority trusts its servers as little as anybody's", async (context) => {
  const port = await tlsPort(context);
  const said = await asks(await wasmBench(context), {
    network: `https://127.0.0.1:${port}`,
    args: get("127.0.0.1", port),
  });
  assert.deepEqual(said.out, ["TLS-certificate-error"]);
});

test("while the node's clock has not been set no certificate is taken, and the log says why", async (context) => {
  // The agent knows of a day that the clock has not seen yet, as after a hub has told it the time.
  const wall = (): Date => new Date(Date.now() + 30 * DAY_MS);
  const clock = Object.create(systemClock, { wall: { value: wall } }) as typeof systemClock;
  const { privateKey: key, certificate: cert } = authority.issueServerFor(
    ["127.0.0.1"],
    new Date(Date.now() + DAY_MS / 2),
  );
  const port = await tlsPort(context, { key, cert });
  const made = await trusting(context, { clock });
  const { out, err } = await asks(made, { network: `https://127.0.0.1:${port}`, args: get("127.0.0.1", port) });
  assert.deepEqual(out, ["TLS-certificate-error"]);
  const why = "this node's clock has not been set, so that no certificate can be judged";
  assert.deepEqual(err, [`picolet: no TLS with 127.0.0.1 port ${port}: ${why}`]);
});

test("what goes wrong in a handshake has its error code", async (context) => {
  const old = await tlsPort(context, { minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers: "DEFAULT:@SECLEVEL=0" });
  const wantsClient = await tlsPort(context, { requestCert: true, rejectUnauthorized: true });
  const speaksH2 = await tlsPort(context, { ALPNProtocols: ["h2"] });
  const plain = await portOf(context, createHttpServer(fine));
  const closes = await portOf(
    context,
    createTcpServer((socket) => void socket.on("error", () => undefined).once("data", () => socket.end())),
  );
  const resets = await portOf(
    context,
    createTcpServer((socket) => void socket.on("error", () => undefined).once("data", () => socket.resetAndDestroy())),
  );
  const babbles = await portOf(
    context,
    createTcpServer((socket) => {
      // The record of a handshake, and nonsense in it.
      const nonsense = Buffer.concat([Buffer.from([22, 3, 3, 0, 64]), Buffer.alloc(64, 0xff)]);
      socket.on("error", () => undefined).once("data", () => socket.end(nonsense));
    }),
  );
  const ports = [old, wantsClient, speaksH2, plain, closes, resets, babbles];
  const { out, err } = await asks(await trusting(context), {
    network: ports.map((port) => `https://127.0.0.1:${port}`).join(";"),
    args: ports.flatMap((port) => get("127.0.0.1", port)),
  });
  assert.deepEqual(out, [
    "TLS-alert-received 70 protocol version",
    "TLS-alert-received 116 certificate required",
    "TLS-alert-received 120 no application protocol",
    "TLS-protocol-error",
    "connection-terminated",
    "connection-terminated",
    "TLS-protocol-error",
  ]);
  assert.deepEqual(err, []);
});

for (const mode of MODES) {
  test(`a component that is served asks by https too (${mode})`, async (context) => {
    const right = await tlsPort(context);
    const { privateKey: key, certificate: cert } = new TlsAuthority("a stranger").issueServer();
    const wrong = await tlsPort(context, { key, cert });
    const made = await trusting(context);
    const port = await fixedPort();
    await using pod = await made.pod("http-asks.c", {
      name: randomUUID(),
      annotations: {
        "wasm.picolet.io/network": `https://127.0.0.1:${right}; https://127.0.0.1:${wrong}`,
        "wasm.picolet.io/mode": mode,
      },
      container: { ports: [{ containerPort: port }] },
    });
    const served = await pod.start();
    const answer = async (asked: number): Promise<string> =>
      (await fetch(`http://127.0.0.1:${port}/127.0.0.1:${asked}`)).text();
    // wasi:http's error code 13 is TLS-certificate-error, 15 HTTP-request-denied.
    assert.deepEqual(await Promise.all([right, wrong, right, 1].map(answer)), ["200", "error 013", "200", "error 015"]);
    const [told] = await pod.text(served, 1);
    assert.match(
      told ?? "",
      new RegExp(`^picolet: no TLS with 127.0.0.1 port ${wrong}: its certificate is not signed by an authority`),
    );
  });
}

test("whatever a server answers a handshake with, the component is told a code and goes on", async (context) => {
  const random = seededRandom(7);
  const upTo = (limit: number): number => Math.floor(random.next() * limit);
  const noise = (length: number): Buffer => Buffer.from(Array.from({ length }, () => upTo(256)));
  // Records of a handshake, alerts and data, of the length that they say, of another, and no records at all.
  const record = (): Buffer => {
    const body = noise(upTo(300));
    const length = upTo(3) === 0 ? upTo(65_536) : body.length;
    return Buffer.concat([Buffer.from([20 + upTo(5), 3, upTo(5), length >> 8, length & 255]), body]);
  };
  const port = await portOf(
    context,
    createTcpServer((socket) => {
      socket
        .on("error", () => undefined)
        .once("data", () => {
          for (let left = upTo(4); left > 0; left -= 1) socket.write(upTo(4) === 0 ? noise(upTo(100)) : record());
          socket.end();
        });
    }),
  );
  const right = await tlsPort(context);
  const requests = Array.from({ length: 60 }, () => get("127.0.0.1", port));
  const { out } = await asks(await trusting(context), {
    network: `https://127.0.0.1:${port}; https://127.0.0.1:${right}`,
    args: [...requests.flat(), ...get("127.0.0.1", right)],
  });
  assert.equal(out.length, 61);
  assert.equal(out.at(-1), "200 fine");
  const codes = /^(TLS-protocol-error|connection-terminated|TLS-alert-received \d+ [a-z ]+)$/;
  for (const line of out.slice(0, -1)) assert.match(line, codes);
});

test("a connection is used again, and after it its session, by the same host alone", async (context) => {
  const heard: string[] = [];
  const { privateKey: key, certificate: cert } = authority.issueServerFor(["127.0.0.1"]);
  const port = await tlsPort(context, { key, cert }, (request, response) => {
    const { remotePort = 0 } = request.socket;
    heard.push(`${remotePort} ${(request.socket as TLSSocket).isSessionReused()}`);
    if (request.url === "/bye") response.setHeader("Connection", "close");
    response.end("fine");
  });
  const paths = ["/one", "/two", "/bye", "/three", "/four"];
  const { out } = await asks(await trusting(context), {
    network: `https://127.0.0.1:${port}; https://localhost:${port}`,
    // The same server by another name, which its certificate does not have.
    args: [...paths.flatMap((path) => get("127.0.0.1", port, path)), ...get("localhost", port)],
  });
  assert.deepEqual(out, [...paths.map(() => "200 fine"), "TLS-certificate-error"]);
  const [first = "", , , fourth = ""] = heard.map((each) => each.split(" ")[0] ?? "");
  const fresh = `${first} false`;
  const resumed = `${fourth} true`;
  assert.notEqual(first, fourth);
  assert.deepEqual(heard, [fresh, fresh, fresh, resumed, resumed]);
});

for (const mode of MODES) {
  test(`who never answers in a handshake is given up when the time for connecting is over (${mode})`, async (context) => {
    const silent = await portOf(
      context,
      createTcpServer((socket) => void socket.on("error", () => undefined).resume()),
    );
    const mute = await tlsPort(context, {}, () => undefined);
    const { out } = await asks(await trusting(context), {
      network: `https://127.0.0.1:${silent}; https://127.0.0.1:${mute}`,
      args: [...get("127.0.0.1", silent), ...get("127.0.0.1", mute)],
      env: [
        { name: "CONNECT_MS", value: "300" },
        { name: "FIRST_BYTE_MS", value: "301" },
      ],
      mode,
    });
    // The second has shaken hands, and says nothing then; on a busy machine that may have taken its time too.
    assert.equal(out[0], "connection-timeout");
    assert.match(out[1] ?? "", /^(HTTP-response-timeout|connection-timeout)$/);
  });
}

test("rules for https name host, port and method, and those of other protocols are none", async (context) => {
  const port = await tlsPort(context);
  const here = `127.0.0.1:${port}`;
  const { out } = await asks(await trusting(context), {
    network: `GET https://127.0.0.1:${port}; tcp://127.0.0.2:${port}; http://127.0.0.3:${port}; https://127.0.0.4:1`,
    args: [
      ...get("127.0.0.1", port),
      ...["POST", "https", here, "/", "x"],
      ...["GET", "http", here, "/", "-"],
      ...["127.0.0.2", "127.0.0.3", "127.0.0.4", "localhost"].flatMap((host) => get(host, port)),
    ],
  });
  assert.deepEqual(out, ["200 fine", ...Array.from({ length: 6 }, () => "HTTP-request-denied")]);
});

test("bodies larger than its memory go both ways, as fast as the slower end takes them", async (context) => {
  const bytes = 64 * MEBIBYTE;
  const port = await tlsPort(context, {}, async (request, response) => {
    let received = 0;
    for await (const chunk of request) {
      received += (chunk as Buffer).length;
      // Slower than the sender.
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (request.method === "POST") response.end(`got ${received}`);
    else response.end(Buffer.alloc(bytes, "x"));
  });
  const here = `127.0.0.1:${port}`;
  const { out } = await asks(await trusting(context), {
    network: `https://${here}`,
    args: [...["POST", "https", here, "/", `=${bytes}`], ...get("127.0.0.1", port)],
    container: { resources: { limits: { memory: "40Mi" } } },
  });
  assert.deepEqual(out, [`200 got ${bytes}`, `200 ${bytes} bytes`]);
});

test("the file is read when a container starts: what is wrong with it is said, and changes are seen", async (context) => {
  const own = new TempFolder();
  context.after(() => own[Symbol.dispose]());
  const path = own.at("authorities.pem");
  const port = await tlsPort(context);
  const made = await wasmBench(context, { caFile: path });
  const network = `https://127.0.0.1:${port}`;
  const asking = (): Promise<Said> => asks(made, { network, args: get("127.0.0.1", port) });
  const refused = (why: string): Promise<void> =>
    assert.rejects(asking(), {
      code: "invalid",
      reason: "CreateContainerConfigError",
      message: `cannot use the authorities in ${path} (wasm.http.caFile): ${why}`,
    });
  const notes = async (): Promise<readonly string[] | undefined> => (await made.adapter.status(NEVER)).notes;
  const missing = "there is no such file; put them there, or name none";
  // It was checked before its first use.
  assert.deepEqual(await notes(), [
    `components that ask by https cannot start: cannot use the authorities in ${path} (wasm.http.caFile): ${missing}`,
  ]);
  assert.equal(made.runtime.log.entries.filter(({ level }) => level === "error").length, 1);
  await refused(missing);
  // No other client needs it.
  const plain = await portOf(context, createHttpServer(fine));
  const others = { network: `http://127.0.0.1:${plain}`, args: ["GET", "http", `127.0.0.1:${plain}`, "/", "-"] };
  assert.deepEqual((await asks(made, others)).out, ["200 fine"]);
  writeFileSync(path, "authorities come here\n");
  await refused("it holds no certificate: PEM begins with -----BEGIN CERTIFICATE-----");
  writeFileSync(path, new TlsAuthority("the last one").ca);
  assert.deepEqual((await asking()).out, ["TLS-certificate-error"]);
  assert.deepEqual(await notes(), []);
  writeFileSync(path, `the next one:\n${new TlsAuthority("the last one").ca}${authority.ca}`);
  assert.deepEqual((await asking()).out, ["200 fine"]);
  rmSync(path);
  mkdirSync(path);
  await refused("it is no file");
});
