/** The key-value store of components: it keeps each acknowledged value after any input and any event. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readdirSync, statSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { Connection } from "@picolet/agent/store/connection.ts";
import { KeyvalueService, type NamedBucket } from "@picolet/agent/store/keyvalue/keyvalue-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { type Plain, type ServicePeer, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import fc from "fast-check";
import { testProgram } from "../support/unit/machine/bundles.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { KEYVALUE_PEER } from "./keyvalue-peer.ts";

const WRITER = await testProgram("test/store/keyvalue-writer.ts");
const KILLS = 12;
const DAY = millis(86_400_000);

const NAMED: NamedBucket = { pod: "p", grant: { name: "b", maxBytes: 100, maxKeys: 3 } };

class Bench implements Disposable {
  readonly folder = new TempFolder();
  readonly path = this.folder.at("kv", "keyvalue.db");
  readonly damage: string[] = [];
  readonly named = new Map<string, readonly NamedBucket[]>();
  readonly #clock: Clock;
  readonly #maxBytes: number | undefined;
  service: KeyvalueService;
  isClockSet = true;

  constructor({ clock = systemClock, maxBytes }: { readonly clock?: Clock; readonly maxBytes?: number } = {}) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
    this.service = this.#make();
  }

  #make(): KeyvalueService {
    return new KeyvalueService(
      {
        clock: this.#clock,
        log: new RecordedLog(),
        namedBy: (_, bucket) => this.named.get(bucket) ?? [],
        isClockSet: () => this.isClockSet,
        onDamage: (reason) => this.damage.push(reason),
      },
      { path: this.path, ...(this.#maxBytes === undefined ? {} : { maxBytes: this.#maxBytes }) },
    );
  }

  reopen(): void {
    this.service[Symbol.dispose]();
    this.service = this.#make();
  }

  call(
    method: string,
    value: Readonly<Record<string, Plain>>,
    bytes: readonly Uint8Array[] = [],
    peer = KEYVALUE_PEER,
  ) {
    return this.service.call(peer, method, { value: { bucket: "b", ...value }, bytes });
  }

  set(key: string, value: string | Uint8Array, peer = KEYVALUE_PEER): Promise<unknown> {
    return this.call("set", { key }, [Buffer.from(value)], peer);
  }

  async get(key: string, peer = KEYVALUE_PEER): Promise<string | undefined> {
    const { value, bytes } = await this.call("get", { key }, [], peer);
    return value === true ? Buffer.from(bytes[0] ?? []).toString() : undefined;
  }

  [Symbol.dispose](): void {
    this.service[Symbol.dispose]();
    this.folder[Symbol.dispose]();
  }
}

/** A clock without waits: no commit waits for others. */
class ImmediateClock implements Clock {
  monotonic = (): ReturnType<Clock["monotonic"]> => systemClock.monotonic();
  wall = (): Date => systemClock.wall();
  sleep = (): Promise<void> => Promise.resolve();
}

const withQuota = (maxBytes: number, maxKeys: number): ServicePeer => ({
  ...KEYVALUE_PEER,
  buckets: [{ name: "b", maxBytes, maxKeys }],
});

test(`a process that is killed ${KILLS} times while it writes has lost nothing of what it was told is kept`, async () => {
  using bench = new Bench();
  bench.service[Symbol.dispose]();
  for (let kill = 0; kill < KILLS; kill += 1) {
    const child = spawn(process.execPath, [WRITER, bench.path], { stdio: ["ignore", "pipe", "inherit"] });
    let told = 0;
    let left = 1 + ((kill * 7) % 20);
    const reader = createInterface({ input: child.stdout });
    reader.on("line", (line) => {
      told = Number(line);
      left -= 1;
      if (left !== 0) return;
      for (let n = 0; n < (kill * 7919) % 500_000; n += 1) Math.sqrt(n);
      child.kill("SIGKILL");
    });
    await Promise.all([once(child, "exit"), once(reader, "close")]);
    bench.reopen();
    const count = Number(await bench.get("n"));
    assert.ok(count === told || count === told + 1, `${told} were told of, ${count} found`);
    for (const key of ["k0", "k1", "k2", "a", "c"])
      assert.ok(Number(await bench.get(key)) >= told, `${key} after ${told}`);
    assert.equal(await bench.get("a"), await bench.get("z"), "both or neither");
    bench.service[Symbol.dispose]();
  }
  assert.deepEqual(bench.damage, []);
});

describe("a quota", () => {
  test("holds over a new start, counts what keys and values take, and lets what is less pass", async () => {
    using bench = new Bench();
    const peer = withQuota(100, 3);
    await bench.set("a", "x".repeat(49), peer);
    await bench.set("b", "x".repeat(49), peer);
    await assert.rejects(bench.set("c", "", peer), { tag: "quota-exceeded" });
    bench.reopen();
    await assert.rejects(bench.set("c", "", peer), { tag: "quota-exceeded" });
    await assert.rejects(bench.set("a", "x".repeat(50), peer), { tag: "quota-exceeded" });
    await bench.set("a", "", peer);
    await bench.set("c", "", peer);
    await assert.rejects(bench.set("d", "", peer), { tag: "quota-exceeded" });
    // It was lowered meanwhile.
    await bench.set("b", "y", withQuota(2, 1));
    await assert.rejects(bench.set("b", "y".repeat(10), withQuota(10, 1)), { tag: "quota-exceeded" });
  });

  test("is for all of a call: nothing of it is taken when it does not fit", async () => {
    using bench = new Bench();
    const peer = withQuota(1000, 3);
    const many = bench.call(
      "set-many",
      { keys: ["a", "b", "c", "d"] },
      ["1", "2", "3", "4"].map((each) => Buffer.from(each)),
      peer,
    );
    await assert.rejects(many, { tag: "quota-exceeded" });
    assert.equal(await bench.get("a", peer), undefined);
    // Equal keys are one.
    await bench.call(
      "set-many",
      { keys: ["a", "a", "a", "b"] },
      ["1", "2", "3", "4"].map((each) => Buffer.from(each)),
      peer,
    );
    assert.equal(await bench.get("a", peer), "3");
  });
});

test("a sum that 64 bits do not hold is none, and leaves the number as it was", async () => {
  using bench = new Bench();
  for (const [last, delta] of [
    ["9223372036854775807", "1"],
    ["-9223372036854775808", "-1"],
  ] as const) {
    await bench.set("n", last);
    await assert.rejects(bench.call("increment", { key: "n", delta }), { tag: "not-a-number" });
    assert.equal(await bench.get("n"), last);
  }
});

test("a value that is not as it was written is not given, until it is set anew", async () => {
  using bench = new Bench();
  await bench.set("a", "right");
  bench.service[Symbol.dispose]();
  {
    using connection = new Connection(bench.path, 1_048_576);
    connection.run("UPDATE entries SET value = ? WHERE key = 'a'", Buffer.from("wrong"));
  }
  bench.reopen();
  await assert.rejects(bench.get("a"), (error) => error instanceof ServiceRefusal && /damaged/.test(String(error.val)));
  await bench.set("a", "new");
  assert.equal(await bench.get("a"), "new");
  assert.deepEqual(bench.damage, []);
});

describe("what was observed", () => {
  const stateOf = async (bench: Bench, key: string): Promise<string | null> =>
    ((await bench.call("observe", { key })).value as { readonly state: string | null }).state;
  const swap = async (bench: Bench, key: string, state: Plain, value: string): Promise<Plain> =>
    (await bench.call("swap-observed", { key, state }, [Buffer.from(value)])).value;

  test("is swapped once, by whoever comes first, and stays so over a new start", async () => {
    using bench = new Bench();
    const before = await stateOf(bench, "k");
    assert.equal(before, null);
    const both = await Promise.all([swap(bench, "k", before, "one"), swap(bench, "k", before, "two")]);
    assert.deepEqual(both, ["swapped", { state: await stateOf(bench, "k") }]);
    const state = await stateOf(bench, "k");
    bench.reopen();
    assert.equal(await stateOf(bench, "k"), state);
    assert.equal(await swap(bench, "k", state, "three"), "swapped");
    assert.equal(await bench.get("k"), "three");
  });

  test("is of one key and its bytes: of no other key, no other bucket, and of nothing that somebody has made up", async () => {
    using bench = new Bench();
    await Promise.all(["a", "b"].map((key) => bench.set(key, "same")));
    const state = await stateOf(bench, "a");
    assert.notEqual(state, await stateOf(bench, "b"));
    for (const wrong of [null, "", "AAAA", "!", state?.slice(1), state?.slice(0, -4), 1, [], {}]) {
      assert.deepEqual(await swap(bench, "a", wrong as Plain, "new"), { state });
    }
    assert.deepEqual(await swap(bench, "absent", state, "new"), { state: null });
    assert.equal(await bench.get("a"), "same");
  });

  test("is told with the value, as it is, and held to the quota like anything that is set", async () => {
    using bench = new Bench();
    const peer = withQuota(20, 1);
    await bench.set("k", "v", peer);
    const { value, bytes } = await bench.call("observe", { key: "k", whole: true }, [], peer);
    assert.deepEqual(
      [bytes.map((each) => Buffer.from(each).toString()), value],
      [["v"], { state: await stateOf(bench, "k") }],
    );
    const state = (value as { readonly state: string }).state;
    const large = bench.call("swap-observed", { key: "k", state }, [new Uint8Array(20)], peer);
    await assert.rejects(large, { tag: "quota-exceeded" });
    const second = bench.call("swap-observed", { key: "l", state: null }, [new Uint8Array(1)], peer);
    await assert.rejects(second, { tag: "quota-exceeded" });
    await assert.rejects(bench.call("swap-observed", { key: "k", state }, []), { tag: "too-large" });
    assert.equal(await bench.get("k"), "v");
  });

  test("never takes back what another has written, whatever several do at once", async () => {
    const step = fc.record({
      who: fc.nat(2),
      act: fc.constantFrom("observe", "swap", "set", "delete"),
      value: fc.nat(2),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        using bench = new Bench({ clock: new ImmediateClock() });
        let held: string | undefined;
        const seen: { value: string | undefined; state: string | null }[] = [];
        for (const { who, act, value } of steps) {
          const text = String(value);
          const mine = seen[who];
          if (act === "observe") seen[who] = { value: held, state: await stateOf(bench, "k") };
          else if (act === "set") {
            await bench.set("k", text);
            held = text;
          } else if (act === "delete") {
            await bench.call("delete", { key: "k" });
            held = undefined;
          } else if (mine !== undefined) {
            const isSwapped = (await swap(bench, "k", mine.state, text)) === "swapped";
            assert.equal(isSwapped, mine.value === held);
            if (isSwapped) held = text;
          }
          assert.equal(await bench.get("k"), held);
        }
      }),
      { numRuns: 60 },
    );
  });
});

describe("the disk", () => {
  test("that is full makes changes fail, keeps what is there, and takes changes again when there is room", async () => {
    using bench = new Bench({ maxBytes: 256 * 1024 });
    await bench.set("kept", "1");
    let sets = 0;
    const fill = async (): Promise<void> => {
      for (; ; sets += 1) await bench.set(`fill-${sets}`, new Uint8Array(20_000));
    };
    await assert.rejects(fill(), (error) => error instanceof ServiceRefusal && error.tag === "storage");
    assert.ok(sets > 3);
    assert.equal(await bench.get("kept"), "1");
    await bench.call("delete-many", { keys: Array.from({ length: sets }, (_, i) => `fill-${i}`) });
    await bench.set("more", "2");
    bench.reopen();
    assert.equal(await bench.get("more"), "2");
    assert.deepEqual(bench.damage, []);
  });

  test("that has damaged the file costs what was in it, is told of, and does not stop the store", async () => {
    using bench = new Bench();
    await bench.set("a", "1");
    bench.service[Symbol.dispose]();
    const fd = openSync(bench.path, "r+");
    for (let at = 0; at < statSync(bench.path).size; at += 512) writeSync(fd, "damaged!", at);
    closeSync(fd);
    bench.reopen();
    await assert.rejects(bench.get("a"), { tag: "storage" });
    assert.equal(bench.damage.length, 1);
    assert.equal(await bench.get("a"), undefined);
    await bench.set("a", "2");
    assert.equal(await bench.get("a"), "2");
    assert.ok(readdirSync(bench.folder.at("kv")).some((name) => name.includes(".damaged-")));
  });
});

test("changes that come close together go to the disk together, and the less often the further it is stretched", async () => {
  const clock = new VirtualClock();
  using bench = new Bench({ clock });
  const opened = bench.set("first", "1");
  await clock.advance(millis(1000));
  await opened;
  bench.service.stretch(60);
  // The first goes at once; what comes meanwhile waits for 600 ms.
  const early = bench.set("a", "1");
  await clock.advance(millis(1));
  await early;
  let late = 0;
  const waiting = ["b", "c"].map((key) => bench.set(key, "1").then(() => (late += 1)));
  await clock.advance(millis(500));
  assert.equal(late, 0);
  await clock.advance(millis(100));
  await Promise.all(waiting);
});

test("a bucket that no pod has named for 90 days goes, unless the clock is not to be trusted", async () => {
  const clock = new VirtualClock();
  using bench = new Bench({ clock });
  const other = { ...KEYVALUE_PEER, pod: { ...KEYVALUE_PEER.pod, namespace: "other" } };
  const done = async <T>(work: Promise<T>): Promise<T> => {
    await clock.advance(millis(1000));
    await clock.advance(millis(1000));
    return work;
  };
  await done(bench.set("k", "1"));
  bench.isClockSet = false;
  await clock.advance(millis(DAY * 91));
  await done(bench.set("x", "1", other));
  bench.isClockSet = true;
  bench.named.set("b", [NAMED]);
  await clock.advance(millis(DAY * 91));
  await done(bench.set("x", "1", other));
  assert.equal(await done(bench.get("k")), "1", "its pod is still wanted");
  bench.named.clear();
  await clock.advance(millis(DAY * 91));
  await done(bench.set("x", "1", other));
  assert.equal(await done(bench.get("k")), undefined);
});

test("whatever a runner sends is answered or refused with one of the interface's errors", async () => {
  using bench = new Bench();
  const errors = new Set([
    ...["no-such-bucket", "bad-key", "too-large", "quota-exceeded", "not-a-number", "unavailable"],
  ]);
  const methods = ["open", "get", "set", "delete", "exists", "list", "increment", "swap", "get-many", "set-many", "x"];
  methods.push("observe", "swap-observed");
  const field = fc.oneof(fc.constantFrom("b", "k", "", "\0", "\ud800", "-1", "999999999999999999999"), fc.jsonValue());
  const value = fc.oneof(
    fc.jsonValue(),
    fc.record({
      bucket: fc.oneof({ weight: 5, arbitrary: fc.constant("b") }, field),
      key: field,
      keys: fc.oneof(fc.array(field, { maxLength: 5 }), field),
      cursor: field,
      delta: field,
      state: field,
    }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...methods),
      value,
      fc.array(fc.uint8Array({ maxLength: 20 })),
      async (m, v, bytes) => {
        const message = { value: v as Plain, bytes };
        await bench.service.call(KEYVALUE_PEER, m, message).catch((error: unknown) => {
          assert.ok(error instanceof ServiceRefusal && errors.has(error.tag), String(error));
        });
      },
    ),
    { numRuns: 500 },
  );
  await bench.set("k", "v");
  assert.equal(await bench.get("k"), "v");
});
