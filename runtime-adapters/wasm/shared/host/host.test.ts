/** The host's interfaces called as jco's glue calls them; what files do is shown with real components. */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { Failure } from "../resources/failure.ts";
import { BlockingWaiter, type Pollable } from "../resources/polling.ts";
import type { InputStream, OutputStream } from "../resources/streams.ts";
import type { Descriptor } from "./filesystem.ts";
import { hostImports } from "./host.ts";
import { openMounts } from "./mounts.ts";

const REPRESENTATION = Symbol.for("cabiRep");
const MS = 1_000_000n;

/** A host on a clock that only sleeping moves. */
class Bench {
  readonly folder = new TempFolder();
  readonly written: string[] = [];
  readonly slept: number[] = [];
  readonly imports: ReturnType<typeof hostImports>;
  wallIsSet = true;
  #now = 5_000n * MS;

  constructor(context: TestContext) {
    context.after(() => this.folder[Symbol.dispose]());
    mkdirSync(this.folder.at("volume"));
    this.imports = hostImports(
      {
        waiter: new BlockingWaiter({
          now: () => this.#now,
          sleep: (milliseconds) => {
            this.slept.push(milliseconds);
            this.#now += BigInt(Math.round(milliseconds * 1e6));
          },
        }),
        wallNow: () => -1500,
        wallIsSet: () => this.wallIsSet,
        log: {
          write: (stream, bytes) => void this.written.push(`${stream} ${Buffer.from(bytes)}`),
          flushUnfinished: () => void this.written.push("flush"),
        },
        beforeWait: () => void this.written.push("sleep"),
        exit: (code) => {
          throw new Error(`exit ${code}`);
        },
      },
      {
        args: ["hello.wasm", "x"],
        env: [["A", "b"]],
        workingDir: "/data",
        preopens: openMounts(
          [{ guestPath: "/data", hostPath: this.folder.at("volume"), readOnly: false }],
          this.folder.path,
        ),
      },
    );
  }

  call<T>(name: string, ...args: readonly unknown[]): T {
    const [path, method] = name.split("#");
    const target = this.imports[path ?? ""]?.[method ?? ""];
    assert.ok(typeof target === "function", `${name} is there`);
    return target(...args);
  }
}

const isTrap = (text: RegExp) => (error: unknown) =>
  error instanceof WebAssembly.RuntimeError && text.test(error.message);
const failsWith = (payload: unknown) => (error: unknown) => {
  assert.ok(error instanceof Failure);
  assert.deepEqual(error.payload, payload);
  return true;
};

test("environment and arguments are the pod's, and there is no terminal", (context) => {
  const bench = new Bench(context);
  assert.deepEqual(bench.call("wasi:cli/environment#getEnvironment"), [["A", "b"]]);
  assert.deepEqual(bench.call("wasi:cli/environment#getArguments"), ["hello.wasm", "x"]);
  assert.equal(bench.call("wasi:cli/environment#initialCwd"), "/data");
  assert.equal(bench.call("wasi:cli/terminal-stdout#getTerminalStdout"), undefined);
  const stdin = bench.call<InputStream>("wasi:cli/stdin#getStdin");
  assert.throws(() => stdin.blockingRead(1n), failsWith({ tag: "closed" }));
});

test("every exit has its code", (context) => {
  const bench = new Bench(context);
  assert.throws(() => bench.call("wasi:cli/exit#exit", { tag: "ok" }), /exit 0/);
  assert.throws(() => bench.call("wasi:cli/exit#exit", { tag: "err" }), /exit 1/);
  assert.throws(() => bench.call("wasi:cli/exit#exitWithCode", 77), /exit 77/);
});

test("output is written as it arrives, and flushed before the component sleeps", (context) => {
  const bench = new Bench(context);
  const stdout = bench.call<OutputStream>("wasi:cli/stdout#getStdout");
  const stderr = bench.call<OutputStream>("wasi:cli/stderr#getStderr");
  assert.equal(stdout.checkWrite(), 65_536n);
  stdout.write(Buffer.from("out"));
  stderr.blockingWriteAndFlush(Buffer.from("err"));
  stdout.writeZeroes(2n);
  assert.throws(() => stdout.writeZeroes(70_000n), isTrap(/more zeroes/));
  bench.call<Pollable>("wasi:clocks/monotonic-clock#subscribeDuration", MS).block();
  assert.deepEqual(bench.written, ["stdout out", "stderr err", "stdout \0\0", "flush", "sleep"]);
});

test("a poll sleeps until the first of its timers, and not at all when something is ready", (context) => {
  const bench = new Bench(context);
  const timer = (duration: bigint) =>
    bench.call<Pollable>("wasi:clocks/monotonic-clock#subscribeDuration", duration * MS);
  const timers = [timer(30n), timer(20n), timer(20n)];
  assert.equal(timers[1]?.ready(), false);
  assert.deepEqual([...bench.call<Uint32Array>("wasi:io/poll#poll", timers)], [1, 2]);
  assert.deepEqual(bench.slept, [20]);
  const ready = bench.call<OutputStream>("wasi:cli/stdout#getStdout").subscribe();
  assert.deepEqual([...bench.call<Uint32Array>("wasi:io/poll#poll", [timers[0], ready])], [1]);
  assert.deepEqual(bench.slept, [20]);
  assert.throws(() => bench.call("wasi:io/poll#poll", []), isTrap(/never ends/));
  const past = bench.call<Pollable>("wasi:clocks/monotonic-clock#subscribeInstant", 1n);
  assert.equal(past.ready(), true);
});

test("a wait longer than any sleep is many sleeps", (context) => {
  const bench = new Bench(context);
  const hours = 3n * 3_600_000n;
  bench.call<Pollable>("wasi:clocks/monotonic-clock#subscribeDuration", hours * MS + MS).block();
  assert.deepEqual(bench.slept, [3_600_000, 3_600_000, 3_600_000, 1]);
});

test("times before 1970 do not break the wall clock", (context) => {
  const bench = new Bench(context);
  const { seconds, nanoseconds } = bench.call<{ seconds: bigint; nanoseconds: number }>("wasi:clocks/wall-clock#now");
  assert.deepEqual([BigInt.asIntN(64, seconds), nanoseconds], [-2n, 500_000_000]);
});

test("a wall clock that is not set reports that until it is set", (context) => {
  const bench = new Bench(context);
  const clock = (name: string) => bench.call<object>(`wasi:clocks/wall-clock#${name}`);
  bench.wallIsSet = false;
  assert.deepEqual(clock("now"), { seconds: 5n, nanoseconds: 0 });
  assert.deepEqual(clock("resolution"), { seconds: 0n, nanoseconds: 0 });
  bench.wallIsSet = true;
  assert.notDeepEqual(clock("now"), { seconds: 5n, nanoseconds: 0 });
  assert.deepEqual(clock("resolution"), { seconds: 0n, nanoseconds: 1_000_000 });
});

test("random bytes are as many as requested, and bounded", (context) => {
  const bench = new Bench(context);
  assert.equal(bench.call<Uint8Array>("wasi:random/random#getRandomBytes", 100n).length, 100);
  assert.equal(bench.call<Uint8Array>("wasi:random/random#getRandomBytes", 0n).length, 0);
  assert.notEqual(
    bench.call("wasi:random/random#getRandomU64"),
    bench.call("wasi:random/insecure#getInsecureRandomU64"),
  );
  assert.throws(() => bench.call("wasi:random/random#getRandomBytes", 1n << 40n), isTrap(/random bytes/));
});

test("the network is there by name, and every use of it is denied", (context) => {
  const bench = new Bench(context);
  const network = bench.call("wasi:sockets/instance-network#instanceNetwork");
  const denied = failsWith("access-denied");
  assert.throws(() => bench.call("wasi:sockets/tcp-create-socket#createTcpSocket", "ipv4"), denied);
  assert.throws(() => bench.call("wasi:sockets/udp-create-socket#createUdpSocket", "ipv6"), denied);
  assert.throws(() => bench.call("wasi:sockets/ip-name-lookup#resolveAddresses", network, "localhost"), denied);
});

test("numbers of dropped resources are used again, and a component cannot hold them without bound", (context) => {
  const bench = new Bench(context);
  const timer = () => bench.call<Pollable>("wasi:clocks/monotonic-clock#subscribeDuration", MS);
  const number = (pollable: Pollable) => Reflect.get(pollable, REPRESENTATION);
  const first = timer();
  const second = timer();
  assert.notEqual(number(first), number(second));
  const freed = number(first);
  first[Symbol.dispose]();
  const third = timer();
  assert.equal(number(third), freed);
  assert.throws(
    () => {
      for (let count = 0; count < 2000; count += 1) timer();
    },
    isTrap(/more than 1024 pollables/),
  );
});

test("descriptors run out with an error that a program can take", (context) => {
  const bench = new Bench(context);
  const [[root]] = bench.call<[[Descriptor, string]]>("wasi:filesystem/preopens#getDirectories");
  assert.throws(() => {
    for (let count = 0; count < 2000; count += 1) root.openAt({}, ".", { directory: true }, { read: true });
  }, failsWith("insufficient-memory"));
});

test("a stream outlives the descriptor it came from", (context) => {
  const bench = new Bench(context);
  const [[root]] = bench.call<[[Descriptor, string]]>("wasi:filesystem/preopens#getDirectories");
  const file = root.openAt({}, "new", { create: true }, { read: true, write: true });
  const output = file.writeViaStream(0n);
  const input = file.readViaStream(0n);
  file[Symbol.dispose]();
  output.blockingWriteAndFlush(Buffer.from("hello"));
  assert.equal(Buffer.from(input.blockingRead(100n)).toString(), "hello");
  assert.throws(() => input.blockingRead(1n), failsWith({ tag: "closed" }));
  output[Symbol.dispose]();
  input[Symbol.dispose]();
});
