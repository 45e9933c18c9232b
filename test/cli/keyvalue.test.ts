/** edgectl keyvalue against the agent's API and the store that components use, on a real file. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import type { KeyvalueBuckets } from "@picolet/agent/core/store/keyvalue-buckets.ts";
import { KeyvalueService, type NamedBucket } from "@picolet/agent/store/keyvalue/keyvalue-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import fc from "fast-check";
import { KEYVALUE_PEER } from "../store/keyvalue-peer.ts";
import { CapturedTerminal, EdgectlBench, type Outcome } from "../support/unit/agent/edgectl-bench.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

/** Every byte there is: no text. */
const BINARY = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
const QUOTA = { maxBytes: 2_000_000, maxKeys: 2000 };

class Bench {
  readonly folder = new TempFolder();
  readonly path = this.folder.at("wasm", "keyvalue.db");
  readonly log = new RecordedLog();
  /** `default/b` is the bucket of KEYVALUE_PEER. */
  readonly named = new Map<string, readonly NamedBucket[]>([
    ["default/b", [{ pod: "p", grant: { name: "b", ...QUOTA } }]],
  ]);
  readonly service = new KeyvalueService(
    {
      clock: systemClock,
      log: this.log,
      namedBy: (namespace, bucket) => this.named.get(`${namespace}/${bucket}`) ?? [],
      isClockSet: () => true,
      onDamage: () => undefined,
    },
    { path: this.path },
  );
  readonly edgectl: EdgectlBench;

  private constructor(edgectl: EdgectlBench) {
    this.edgectl = edgectl;
  }

  static async start(t: TestContext): Promise<Bench> {
    let bench: Bench | undefined;
    const keyvalue = async (): Promise<KeyvalueBuckets> => {
      if (bench === undefined) throw new Error("asked before it began");
      return bench.service.administration();
    };
    bench = new Bench(await EdgectlBench.start(t, { keyvalue }));
    t.after(() => bench?.[Symbol.dispose]());
    return bench;
  }

  /** A line of words; `{}` stands for each of `values` in turn. */
  run(line: string, values: readonly string[] = [], terminal = new CapturedTerminal()): Promise<Outcome> {
    const rest = [...values];
    return this.edgectl.run(
      line.split(" ").map((word) => (word === "{}" ? (rest.shift() ?? "") : word)),
      terminal,
    );
  }

  async did(line: string, ...values: readonly string[]): Promise<string> {
    const { code, out, error } = await this.run(line, values);
    assert.deepEqual([code, error], [0, ""], line);
    return out;
  }

  /** Reads a value as a component does. */
  async found(key: string): Promise<string | undefined> {
    const { value, bytes } = await this.service.call(KEYVALUE_PEER, "get", { value: { bucket: "b", key }, bytes: [] });
    return value === true ? Buffer.from(bytes[0] ?? []).toString("latin1") : undefined;
  }

  async set(key: string, value: string): Promise<void> {
    await this.service.call(KEYVALUE_PEER, "set", { value: { bucket: "b", key }, bytes: [Buffer.from(value)] });
  }

  [Symbol.dispose](): void {
    this.service[Symbol.dispose]();
    this.folder[Symbol.dispose]();
  }
}

test("asking makes no file, and says what is not there", async (t) => {
  const bench = await Bench.start(t);
  assert.deepEqual(await bench.run("keyvalue list"), { code: 0, out: "", error: "No buckets found\n" });
  for (const line of ["kv list b", "kv get b k", "kv rm b k", "kv drop b --yes", "kv set other k v"]) {
    const { code, error } = await bench.run(line);
    assert.equal(code, 1, line);
    assert.match(error, /^edgectl: there is no bucket default\/(b|other); edgectl keyvalue list shows/, line);
  }
  assert.equal(existsSync(bench.path), false);
  assert.match(await bench.did("kv set b k v"), /^set k of b to 1 B\n$/);
  assert.equal(await bench.found("k"), "v", "a bucket that a pod names is made");
});

test("what a component keeps is listed with its size, quota and pods, and what is set it finds", async (t) => {
  const bench = await Bench.start(t);
  await bench.set("sample/1", "x".repeat(2000));
  await bench.set("sample/2", "");
  await bench.set("Zimt", "1");
  const [line = "", row = ""] = (await bench.did("kv list -o wide")).split("\n");
  assert.match(line, /^NAMESPACE +BUCKET +KEYS +SIZE +QUOTA +USED +PODS$/);
  assert.match(row, /^default +b +3 +2\.0 KiB +2000 keys, 1\.9 MiB +\d{4}-\d\d-\d\d +p$/);
  assert.equal(await bench.did("kv list b"), "KEY       SIZE\nZimt      1 B\nsample/1  2.0 KiB\nsample/2  0 B\n");
  const first = await bench.run("kv list default/b --prefix sample/ --limit 1");
  assert.deepEqual(
    [first.out, first.error],
    ["KEY       SIZE\nsample/1  2.0 KiB\n", "There are more: --after sample/1\n"],
  );
  const second = JSON.parse(await bench.did("kv list b --prefix sample/ --after sample/1 -o json")) as unknown;
  assert.deepEqual(second, { items: [{ key: "sample/2", bytes: 0 }], next: null });
  await bench.did("kv set b {} {}", "key with spaces & =", "valu\u00e9");
  assert.equal(await bench.found("key with spaces & ="), Buffer.from("valu\u00e9").toString("latin1"));
  await bench.did("kv rm b Zimt sample/1");
  assert.equal(await bench.found("Zimt"), undefined);
  assert.deepEqual(await bench.run("kv rm b Zimt"), {
    ...{ code: 1, out: "", error: 'edgectl: cannot delete key "Zimt" of default/b: there is no such key\n' },
  });
});

test("more keys than one answer has are listed all", async (t) => {
  const bench = await Bench.start(t);
  const keys = Array.from({ length: 1500 }, (_, n) => `k${String(n).padStart(4, "0")}`);
  for (let at = 0; at < keys.length; at += 500) {
    const value = { bucket: "b", keys: keys.slice(at, at + 500) };
    await bench.service.call(KEYVALUE_PEER, "set-many", {
      value,
      bytes: Array.from({ length: 500 }, () => Buffer.of(1)),
    });
  }
  const all = JSON.parse(await bench.did("kv list b --limit 5000 -o json")) as { items: { key: string }[]; next: null };
  assert.deepEqual([all.items.map(({ key }) => key), all.next], [keys, null]);
  const some = await bench.run("kv list b --no-headers");
  assert.deepEqual([some.out.split("\n").length - 1, some.error], [1000, "There are more: --after k0999\n"]);
});

test("values go in and out byte for byte, by argument, file and standard input", async (t) => {
  const bench = await Bench.start(t);
  const file = bench.folder.at("value");
  writeFileSync(file, BINARY);
  await bench.did("kv set b binary --file {}", file);
  assert.equal(await bench.found("binary"), BINARY.toString("latin1"));
  const piped = new CapturedTerminal({ columns: undefined });
  assert.equal((await bench.run("kv get b binary", [], piped)).code, 0);
  assert.deepEqual(piped.bytes, BINARY);
  const shown = await bench.run("kv get b binary");
  assert.deepEqual([shown.code, shown.out], [1, ""], "a terminal is not shown what could change its settings");
  assert.match(shown.error, /256 bytes of no text: -o FILE/);
  await bench.did("kv get b binary -o {}", join(bench.folder.path, "copy"));
  assert.deepEqual(readFileSync(bench.folder.at("copy")), BINARY);
  bench.edgectl.input = Readable.from([Buffer.from("from "), Buffer.from("a pipe\n")]);
  await bench.did("kv set b piped");
  assert.equal(await bench.did("kv get b piped"), "from a pipe\n");
  await bench.did("kv set b empty {}", "");
  assert.equal(await bench.found("empty"), "");
  await bench.did("kv set b negative -- -5");
  assert.equal(await bench.did("kv get b negative"), "-5");
});

test("the limits are those of components", async (t) => {
  const bench = await Bench.start(t);
  const refused = async (line: string, why: RegExp, ...values: readonly string[]): Promise<void> => {
    const { code, out, error } = await bench.run(line, values);
    assert.deepEqual([code, out], [1, ""]);
    assert.match(error, why);
  };
  bench.edgectl.input = Readable.from([Buffer.alloc(1_048_577)]);
  await refused("kv set b k", /a value of more than 1048576 bytes cannot be taken at once/);
  bench.edgectl.input = Readable.from([Buffer.alloc(1_048_576)]);
  await bench.did("kv set b k");
  await refused("kv set b {} v", /a key is a text of 1 to 1024 bytes/, "k".repeat(1025));
  bench.edgectl.input = Readable.from([Buffer.alloc(1_048_576)]);
  await refused("kv set b other", /the bucket may hold 2000000 bytes and 2000 keys; delete some, or raise/);
  bench.named.clear();
  await bench.did("kv set b other now");
  assert.match(await bench.did("kv list"), / - +\d{4}-/, "no pod names it: no quota");
});

test("a bucket goes when it is meant, and its component finds it empty and fills it again", async (t) => {
  const bench = await Bench.start(t);
  await bench.set("k", "old");
  const hesitant = await bench.run("kv drop b");
  assert.deepEqual([hesitant.code, hesitant.out], [64, ""]);
  assert.match(hesitant.error, /^edgectl: keyvalue drop deletes all that b holds: say --yes/);
  assert.equal(await bench.found("k"), "old");
  // A component's change and the end of its bucket go to the disk together, in either order.
  await Promise.all([bench.did("kv drop b --yes"), bench.set("k", "while it goes")]);
  await bench.did("kv set b k late");
  await bench.did("kv drop b --yes");
  assert.equal(await bench.found("k"), undefined);
  await bench.set("k", "new");
  assert.equal(await bench.did("kv get b k"), "new");
  const listed = JSON.parse(await bench.did("kv list -o json")) as { items: { keys: number }[] };
  assert.deepEqual(
    listed.items.map(({ keys }) => keys),
    [1],
  );
});

test("a value set into a bucket that went in the same commit is in no other bucket", async (t) => {
  const bench = await Bench.start(t);
  await bench.set("k", "old");
  const buckets = await bench.service.administration();
  bench.named.set("other/c", [{ pod: "q", grant: { name: "c", ...QUOTA } }]);
  const changes = [
    buckets.drop({ namespace: "default", name: "b" }),
    buckets.set({ namespace: "other", name: "c" }, "theirs", Buffer.from("1")),
    bench.set("ours", "secret"),
  ];
  await Promise.all(changes);
  const keysOf = (namespace: string, name: string): string[] =>
    buckets.keys({ namespace, name }, { prefix: "", after: "", limit: 10 }).items.map(({ key }) => key);
  assert.deepEqual([keysOf("other", "c"), keysOf("default", "b")], [["theirs"], ["ours"]]);
});

test("buckets and keys are completed, by the short name too", async (t) => {
  const bench = await Bench.start(t);
  for (const key of ["alpha", "alpine", "beta"]) await bench.set(key, "1");
  const complete = async (line: string): Promise<string[]> =>
    (await bench.run(`__complete ${line}`)).out.trim().split("\n");
  assert.deepEqual(await complete("kv get {}"), ["b"]);
  assert.deepEqual(await complete("keyvalue rm b al"), ["alpha", "alpine"]);
  assert.deepEqual(await complete("kv s"), ["set"]);
  assert.match(await bench.did("help kv get"), /^edgectl keyvalue get BUCKET KEY \[flags\]\n/);
});

test("whatever is asked of the API is answered, and never as our own mistake", async (t) => {
  const bench = await Bench.start(t);
  await bench.set("k", "v");
  const ask = (method: string, path: string, body: Uint8Array): Promise<number> =>
    new Promise((resolve, reject) => {
      const sent = request({ socketPath: bench.edgectl.socketPath, method, path, agent: false }, (message) => {
        message.resume().once("end", () => resolve(message.statusCode ?? 0));
      });
      sent.once("error", reject);
      sent.end(body);
    });
  const text = fc.oneof(
    fc.constantFrom("default", "b", "k", "", "\0", "\ud800", "..", "%"),
    fc.string({ unit: "binary" }),
  );
  const encoded = text.map((each) => encodeURIComponent(each.isWellFormed() ? each : "\ufffd"));
  const parameter = fc
    .tuple(fc.constantFrom("key", "prefix", "after", "limit", "x"), encoded)
    .map((pair) => pair.join("="));
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom("GET", "PUT", "DELETE"),
      fc.array(encoded, { maxLength: 2 }),
      fc.constantFrom("", "/keys", "/value"),
      fc.array(parameter, { maxLength: 3 }),
      fc.uint8Array({ maxLength: 20 }),
      async (method, segments, rest, parameters, body) => {
        const path = `/v1/keyvalue${segments.map((each) => `/${each}`).join("")}${rest}?${parameters.join("&")}`;
        const status = await ask(method, path, body);
        assert.ok([200, 400, 404, 429, 501].includes(status), `${method} ${path}: ${status}`);
      },
    ),
    { numRuns: 300 },
  );
  assert.deepEqual(bench.edgectl.log.problems, []);
});
