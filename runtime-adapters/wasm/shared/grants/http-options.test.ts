import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEFAULT_HTTP_OPTIONS, parseHttpOptions, serveOptions } from "./http-options.ts";

test("given options are taken, missing ones have their defaults", () => {
  assert.deepEqual(parseHttpOptions("port=8080; instances = 2,waiting=0\ntimeout=5s;max-body=1Ki;"), {
    options: { port: 8080, instances: 2, waiting: 0, timeoutMs: 5_000, maxBodyBytes: 1024 },
    problems: [],
  });
  assert.deepEqual(parseHttpOptions(""), { options: DEFAULT_HTTP_OPTIONS, problems: [] });
});

test("all mistakes are reported at once, with the valid values", () => {
  const { options, problems } = parseHttpOptions(
    "port=0; instances=65; waiting=-1; timeout=2d; max-body=x; tls=on; port=80=90",
  );
  assert.deepEqual(options, DEFAULT_HTTP_OPTIONS);
  assert.deepEqual(problems, [
    'port: must be 1 to 65535, not "0"',
    'instances: must be 1 to 64, not "65"',
    'waiting: must be 0 to 4096, not "-1"',
    'timeout: must be 1s to 86400s, not "2d"',
    'max-body: must be a quantity like 8Mi, not "x"',
    "tls: there is no such option; known are port, instances, waiting, timeout, max-body",
    'port: must be 1 to 65535, not "80=90"',
  ]);
});

test("the container's first TCP port is the default port", () => {
  const ports = [
    { containerPort: 53, protocol: "UDP" },
    { containerPort: 8080 },
    { containerPort: 9090 },
  ] as Parameters<typeof serveOptions>[1]["ports"];
  assert.equal(serveOptions(undefined, { ports })?.port, 8080);
  assert.equal(serveOptions(parseHttpOptions("port=80").options, { ports })?.port, 80);
  assert.equal(serveOptions(parseHttpOptions("instances=2").options, {}), undefined);
});

test("any text gives options within their limits, and no value is both taken and reported", () => {
  const entry = fc.tuple(
    fc.oneof(fc.constantFrom("port", "instances", "waiting", "timeout", "max-body", "__proto__"), fc.string()),
    fc.constantFrom("=", " = ", "", "=="),
    fc.oneof(
      fc.integer().map(String),
      fc.nat().map((number) => `${number}s`),
      fc.constantFrom("1Ki", "-1", "1e99"),
      fc.string(),
    ),
  );
  const text = fc.oneof(
    fc.string({ maxLength: 2_000 }),
    fc.array(entry).map((all) => all.map((each) => each.join("")).join(";")),
  );
  fc.assert(
    fc.property(text, (written) => {
      const { options, problems } = parseHttpOptions(written);
      const { port, instances, waiting, timeoutMs, maxBodyBytes } = options;
      assert.ok(port === undefined || (Number.isInteger(port) && port >= 1 && port <= 65_535));
      assert.ok(Number.isInteger(instances) && instances >= 1 && instances <= 64);
      assert.ok(Number.isInteger(waiting) && waiting >= 0 && waiting <= 4096);
      assert.ok(timeoutMs >= 1_000 && timeoutMs <= 86_400_000);
      assert.ok(maxBodyBytes >= 0 && maxBodyBytes <= Number.MAX_SAFE_INTEGER);
      const entries = written.split(/[;,\n]/).filter((each) => each.trim() !== "");
      assert.ok(written.length > 1024 ? problems.length === 1 : problems.length <= entries.length);
      if (problems.length === entries.length) assert.deepEqual(options, DEFAULT_HTTP_OPTIONS);
    }),
    { numRuns: 2_000 },
  );
});
