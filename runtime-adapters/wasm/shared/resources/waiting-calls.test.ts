import assert from "node:assert/strict";
import { test } from "node:test";
import { paddedU32 } from "../binary/byte-reader.ts";
import { type Attempt, WaitingCalls } from "./waiting-calls.ts";

/** `(module (import "" "f" (func $f …)) (func (export "run") …) (local.get 0) … (call $f))` of one type. */
function caller(type: string): WebAssembly.Module {
  const [parameters = [], results = []] = type.split(">").map((each) => [...Buffer.from(each, "hex")]);
  const section = (id: number, ...content: number[]): number[] => [id, ...paddedU32(content.length), ...content];
  const gets = parameters.flatMap((_, index) => [0x20, ...paddedU32(index)]);
  const code = [0x00, ...gets, 0x10, 0x00, 0x0b];
  return new WebAssembly.Module(
    Uint8Array.from([
      ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
      ...section(1, 1, 0x60, ...paddedU32(parameters.length), ...parameters, results.length, ...results),
      ...section(2, 1, 0, 1, 0x66, 0, 0),
      ...section(3, 1, 0),
      ...section(7, 1, 3, ...Buffer.from("run"), 0, 1),
      ...section(10, 1, ...paddedU32(code.length), ...code),
    ]),
  );
}

/** Calls it on a stack that can be set aside. */
function run(attempt: Attempt, type: string, ...args: unknown[]): Promise<unknown> {
  const [f] = new WaitingCalls().wrapped([{ attempt, type }]);
  const { exports } = new WebAssembly.Instance(caller(type), { "": { f } });
  return WebAssembly.promising(exports.run as () => unknown)(...(args as never[]));
}

test("a call without a wait is made once, and sets no stack aside", async () => {
  const order: string[] = [];
  const outcome = run(
    (args) => {
      queueMicrotask(() => order.push("another task"));
      order.push(`called with ${args}`);
      return 3;
    },
    "7f7e>7f",
    1,
    2n,
  );
  order.push("returned");
  assert.equal(await outcome, 3);
  assert.deepEqual(order, ["called with 1,2", "returned", "another task"]);
});

test("two calls in a row without a wait run without anything between them", async () => {
  const order: string[] = [];
  const calls = new WaitingCalls();
  const attempt: Attempt = () => {
    order.push("call");
    queueMicrotask(() => order.push("another task"));
    return undefined;
  };
  const [one, other] = calls.wrapped([
    { attempt, type: ">" },
    { attempt, type: ">" },
  ]) as [() => void, () => void];
  one();
  other();
  assert.deepEqual(order, ["call", "call"]);
});

test("a call of any type that waits is repeated with the same arguments and its operation", async () => {
  for (const [type, args, result] of [
    [">", [], undefined],
    ["7f>7f", [7], 8],
    ["7f7e7f>7e", [1, 2n ** 40n, 3], 2n ** 63n - 1n],
    ["7d7c>7c", [0.5, 0.25], 1.5],
    ["7c>7d", [0.1], 0.5],
    [`${"7f".repeat(200)}>7f`, Array.from({ length: 200 }, (_, index) => index), 5],
  ] as const) {
    const seen: unknown[] = [];
    const gates = [Promise.withResolvers<unknown>(), Promise.withResolvers<unknown>()];
    const outcome = run(
      (given, begun) => {
        seen.push([...given], begun);
        return gates[seen.length / 2 - 1]?.promise ?? result;
      },
      type,
      ...args,
    );
    gates[0]?.resolve("begun");
    gates[1]?.resolve(undefined);
    assert.equal(await outcome, result, type);
    assert.deepEqual(seen, [args, undefined, args, "begun", args, undefined], type);
  }
});

test("a wait that fails, and a call that fails after one, end the component where it called", async () => {
  await assert.rejects(
    run(() => Promise.reject(new RangeError("nobody comes")), ">7f"),
    /nobody comes/,
  );
  let calls = 0;
  const fails: Attempt = () => {
    calls += 1;
    if (calls > 1) throw new RangeError("too late");
    return Promise.resolve();
  };
  await assert.rejects(run(fails, ">"), /too late/);
});

test("several calls are independent, and code that is compiled for one instance serves the next", async () => {
  const calls = new WaitingCalls();
  const wrapped = (): ((...args: unknown[]) => unknown)[] =>
    calls.wrapped([
      { attempt: ([value]) => Number(value) + 1, type: "7f>7f" },
      { attempt: ([value]) => BigInt(value as unknown as bigint) * 2n, type: "7e>7e" },
    ]) as never;
  for (const [one, other] of [wrapped(), wrapped()]) {
    assert.equal(one?.(1), 2);
    assert.equal(other?.(4n), 8n);
  }
  assert.deepEqual(calls.wrapped([]), []);
});
