/** wasi:http's resources called as jco's glue calls them; what goes over connections is shown with real components. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEFAULT_HTTP_OPTIONS, parseHttpOptions, serveOptions } from "../grants/http-options.ts";
import { LoopWaiter } from "../resources/event-loop.ts";
import { Failure } from "../resources/failure.ts";
import { Handles } from "../resources/handles.ts";
import { Poller } from "../resources/polling.ts";
import { httpErrorCode } from "./error-code.ts";
import type { Fields } from "./fields.ts";
import { httpContext, httpImports } from "./http.ts";
import type { OutgoingRequest, OutgoingResponse, RequestOptions } from "./messages.ts";
import { noOutgoing } from "./outgoing.ts";
import { contentLength, methodOf, parseAuthority } from "./request-line.ts";

type Made<T> = new (...args: never[]) => T;
interface Types {
  readonly Fields: (new () => Fields) & { fromList(entries: readonly (readonly [string, Uint8Array])[]): Fields };
  readonly OutgoingRequest: new (headers: Fields) => OutgoingRequest;
  readonly OutgoingResponse: new (headers: Fields) => OutgoingResponse;
  readonly RequestOptions: Made<RequestOptions>;
}

function types(): Types {
  const waiter = new LoopWaiter({ now: () => 0n, after: () => () => undefined });
  const context = httpContext({
    handles: new Handles(),
    poller: new Poller(waiter, () => undefined),
    wallNow: () => 0,
  });
  return httpImports(context, noOutgoing)["wasi:http/types"] as unknown as Types;
}

const bytes = (text: string): Uint8Array => Buffer.from(text, "latin1");
const failsWith = (payload: unknown) => (error: unknown) => {
  assert.ok(error instanceof Failure);
  assert.deepEqual(error.payload, payload);
  return true;
};

test("header fields are found in any case, and keep their order", () => {
  const { Fields } = types();
  const fields = Fields.fromList([
    ["X-A", bytes("1")],
    ["b", bytes("2")],
    ["x-a", bytes("3")],
  ]);
  assert.ok(fields instanceof Fields);
  assert.deepEqual(fields.get("x-A").map(String), [bytes("1"), bytes("3")].map(String));
  assert.equal(fields.has("B"), true);
  fields.set("x-a", [bytes("4")]);
  fields.append("c", bytes(""));
  assert.deepEqual(
    fields.entries().map(([name, value]) => `${name}=${Buffer.from(value)}`),
    ["b=2", "x-a=4", "c="],
  );
  const copy = fields.clone();
  fields.delete("b");
  assert.deepEqual([fields.has("b"), copy.has("b"), fields.get("none")], [false, true, []]);
});

test("invalid header fields and those of the host are refused", () => {
  const { Fields, OutgoingRequest } = types();
  const fields = new Fields();
  for (const name of ["", "a b", "ü", "a:", "a\n"]) {
    assert.throws(() => fields.append(name, bytes("x")), failsWith({ tag: "invalid-syntax" }), name);
  }
  for (const value of ["a\r\nb: c", "\0", "\x7f"]) {
    assert.throws(() => fields.set("a", [bytes(value)]), failsWith({ tag: "invalid-syntax" }));
    assert.throws(() => Fields.fromList([["a", bytes(value)]]), failsWith({ tag: "invalid-syntax" }));
  }
  for (const name of ["Connection", "keep-alive", "host", "Transfer-Encoding", "upgrade", "proxy-connection"]) {
    assert.throws(() => fields.set(name, [bytes("x")]), failsWith({ tag: "forbidden" }), name);
    assert.throws(() => Fields.fromList([[name, bytes("x")]]), failsWith({ tag: "forbidden" }), name);
  }
  const sent = new OutgoingRequest(fields).headers();
  assert.throws(() => sent.append("a", bytes("b")), failsWith({ tag: "immutable" }));
  assert.throws(() => sent.delete("a"), failsWith({ tag: "immutable" }));
  assert.throws(() => sent.append("a b", bytes("b")), failsWith({ tag: "invalid-syntax" }));
});

test("header fields have a limit, and their numbers are used again", () => {
  const { Fields } = types();
  const many = new Fields();
  for (let each = 0; each < 256; each += 1) many.append("a", bytes("b"));
  assert.throws(() => many.append("a", bytes("b")), WebAssembly.RuntimeError);
  const large = new Fields();
  assert.throws(() => large.set("a", [Buffer.alloc(70_000, "x")]), WebAssembly.RuntimeError);
  for (let each = 0; each < 5000; each += 1) new Fields()[Symbol.dispose]();
});

test("a message accepts valid values alone, and gives its body once", () => {
  const { Fields, OutgoingRequest, OutgoingResponse } = types();
  const request = new OutgoingRequest(new Fields());
  assert.deepEqual([request.method(), request.scheme(), request.authority()], [{ tag: "get" }, undefined, undefined]);
  request.setMethod({ tag: "other", val: "PURGE" });
  request.setAuthority("[2001:db8::1]:8080");
  request.setPathWithQuery("/a?b");
  for (const refuse of [
    () => request.setMethod({ tag: "other", val: "A B" }),
    () => request.setScheme({ tag: "other", val: "1:" }),
    () => request.setAuthority("a/b"),
    () => request.setAuthority("user@host"),
    () => request.setAuthority("host:65536"),
    () => request.setPathWithQuery("/a b"),
    () => request.setPathWithQuery("/a\r\nx: y"),
    () => request.setPathWithQuery("/a#b"),
  ]) {
    assert.throws(refuse, failsWith(undefined), String(refuse));
  }
  request.body();
  assert.throws(() => request.body(), failsWith(undefined));
  const response = new OutgoingResponse(new Fields());
  response.setStatusCode(204);
  assert.equal(response.statusCode(), 204);
  assert.throws(() => response.setStatusCode(99), failsWith(undefined));
});

test("a body with another length than announced is not complete", () => {
  const { Fields, OutgoingResponse } = types();
  const { OutgoingBody } = types() as unknown as { OutgoingBody: { finish(body: unknown, trailers: undefined): void } };
  const bodyOf = () => new OutgoingResponse(Fields.fromList([["Content-Length", bytes("3")]])).body();
  const short = bodyOf();
  const stream = short.write();
  stream.write(bytes("ab"));
  assert.throws(() => OutgoingBody.finish(short, undefined), WebAssembly.RuntimeError);
  stream[Symbol.dispose]();
  assert.throws(() => OutgoingBody.finish(short, undefined), failsWith({ tag: "HTTP-response-body-size", val: 2n }));
  const long = bodyOf();
  assert.throws(() => long.write().write(bytes("abcd")), Failure);
  const right = bodyOf();
  const whole = right.write();
  whole.write(bytes("abc"));
  whole[Symbol.dispose]();
  OutgoingBody.finish(right, undefined);
});

test("lines of requests are read strictly", () => {
  assert.deepEqual(methodOf("GET"), { tag: "get" });
  assert.deepEqual(methodOf("get"), { tag: "other", val: "get" });
  assert.deepEqual(parseAuthority("[::1]:80"), { host: "::1", port: 80 });
  assert.deepEqual(parseAuthority("a.example"), { host: "a.example", port: undefined });
  for (const text of ["", ":80", "a:0", "a:99999", "a@b", "a/b", "[::1", "a b"])
    assert.equal(parseAuthority(text), undefined, text);
  assert.equal(contentLength([]), undefined);
  assert.equal(contentLength(["5", "5"]), 5);
  for (const values of [["5", "6"], ["-1"], ["0x5"], ["5,5"], [""]]) assert.equal(contentLength(values), null);
});

test("errors of Node have the codes of the interface", () => {
  const withCode = (code: string) => httpErrorCode(Object.assign(new Error(code), { code })).tag;
  assert.equal(withCode("ECONNREFUSED"), "connection-refused");
  assert.equal(withCode("HPE_INVALID_CONSTANT"), "HTTP-protocol-error");
  assert.equal(withCode("CERT_HAS_EXPIRED"), "TLS-certificate-error");
  assert.equal(withCode("DEPTH_ZERO_SELF_SIGNED_CERT"), "TLS-certificate-error");
  assert.equal(withCode("ERR_SSL_WRONG_VERSION_NUMBER"), "TLS-protocol-error");
  assert.equal(withCode("ESOMETHING"), "internal-error");
});

test("the annotation is parsed, and all its mistakes are reported", () => {
  assert.deepEqual(parseHttpOptions("port=8080; instances=2\ntimeout=5s, max-body=1Ki; waiting=0"), {
    options: { port: 8080, instances: 2, waiting: 0, timeoutMs: 5000, maxBodyBytes: 1024 },
    problems: [],
  });
  assert.deepEqual(parseHttpOptions("").options, DEFAULT_HTTP_OPTIONS);
  const { problems } = parseHttpOptions("port=0; instances=x; constructor=1; timeout; max-body=-1; colour=red");
  assert.deepEqual(
    problems.map((each) => each.split(":")[0]),
    ["port", "instances", "constructor", "timeout", "max-body", "colour"],
  );
  const ports = [{ containerPort: 53, protocol: "UDP" as const }, { containerPort: 8080 }];
  assert.equal(serveOptions(undefined, { ports } as never)?.port, 8080);
  assert.equal(serveOptions(undefined, {}), undefined);
});

test("any authority that is accepted is a valid Host field, can be looked up, and parses to itself", () => {
  const written = fc.oneof(
    fc.string(),
    fc.string({ unit: "binary" }),
    fc.tuple(fc.domain(), fc.nat({ max: 70_000 })).map(([host, port]) => `${host}:${port}`),
    fc.tuple(fc.ipV6(), fc.option(fc.nat())).map(([host, port]) => `[${host}]${port === null ? "" : `:${port}`}`),
    fc.tuple(fc.webAuthority(), fc.string()).map((parts) => parts.join("")),
  );
  fc.assert(
    fc.property(written, (text) => {
      const authority = parseAuthority(text);
      if (authority === undefined) return;
      const { host, port } = authority;
      assert.match(text, /^[!-~]+$/);
      assert.ok(host !== "" && !/[\s@/?#[\]]/.test(host), text);
      assert.ok(port === undefined || (port >= 1 && port <= 65_535), text);
      const shown = host.includes(":") ? `[${host}]` : host;
      assert.deepEqual(parseAuthority(port === undefined ? shown : `${shown}:${port}`), authority);
    }),
    { numRuns: 2_000 },
  );
  for (const text of [
    "a b",
    "a\0b",
    "a\r\nX: y",
    "ü.example",
    "user@host",
    "host:",
    "host:0",
    "host:65536",
    "[]",
    "a:b:c",
    "",
  ])
    assert.equal(parseAuthority(text), undefined, text);
});
