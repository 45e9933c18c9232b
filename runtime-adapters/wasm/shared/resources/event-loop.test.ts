import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "@bytecodealliance/jco-transpile/wasm-tools";
import { LoopWaiter, suspendableInstantiate } from "./event-loop.ts";
import { Poller, type Readiness, WouldBlock } from "./polling.ts";
import { WaitingCalls } from "./waiting-calls.ts";

const MS = 1_000_000n;

class Timers {
  nowNs = 0n;
  readonly due: { readonly at: number; readonly act: () => void }[] = [];
  takenBack = 0;

  now(): bigint {
    return this.nowNs;
  }

  after(milliseconds: number, act: () => void): () => void {
    this.due.push({ at: milliseconds, act });
    return () => {
      this.takenBack += 1;
    };
  }
}

class Gate implements Readiness {
  isOpen = false;
  readonly wakes = new Set<() => void>();

  ready(): boolean {
    return this.isOpen;
  }

  onReady(wake: () => void): () => void {
    this.wakes.add(wake);
    return () => void this.wakes.delete(wake);
  }
}

test("a wait throws with all that it waits for, and a call without a wait does not throw", () => {
  const waiter = new LoopWaiter(new Timers());
  let waits = 0;
  const poller = new Poller(waiter, () => {
    waits += 1;
  });
  const gate = new Gate();
  assert.throws(
    () => poller.until(gate),
    (error: unknown) => error instanceof WouldBlock && error.wanted[0] === gate,
  );
  assert.equal(waits, 1);
  gate.isOpen = true;
  poller.until(gate);
  assert.equal(waits, 1);
});

test("the first of several events ends the wait, and the other waits are cancelled", async () => {
  const timers = new Timers();
  const waiter = new LoopWaiter(timers);
  const poller = new Poller(waiter, () => undefined);
  const [one, other] = [new Gate(), new Gate()];
  const waited = waiter.whenAny([one, other, poller.timer(30n * MS), poller.timer(20n * MS)]);
  assert.deepEqual(
    timers.due.map(({ at }) => at),
    [20],
  );
  for (const wake of other.wakes) wake();
  await waited;
  assert.deepEqual([one.wakes.size, other.wakes.size, timers.takenBack], [0, 0, 1]);
});

test("a timer ends a wait, and so does an event that was ready before", async () => {
  const timers = new Timers();
  const waiter = new LoopWaiter(timers);
  const poller = new Poller(waiter, () => undefined);
  const waited = waiter.whenAny([poller.timer(20n * MS)]);
  timers.due[0]?.act();
  await waited;
  const gate = new Gate();
  gate.isOpen = true;
  await waiter.whenAny([gate]);
  assert.equal(gate.wakes.size, 0);
});

test("functions that never wait are called as they are, all others may set the stack aside, and one that waits though it is said never to is a trap that says so", async () => {
  const waiter = new LoopWaiter(new Timers());
  const gate = new Gate();
  /** (module (import "" "f" (func $f)) (func (export "run") (call $f))) */
  const bytes = "0061736d0100000001040160000002060100016600000302010007070103" + "72756e00010a0601040010000b";
  const module = new WebAssembly.Module(Buffer.from(bytes, "hex"));
  const calls = new WaitingCalls();
  const run = (fnName: string | undefined): Promise<unknown> => {
    let outcome: Promise<unknown> = Promise.resolve();
    const host = Object.assign(() => new Poller(waiter, () => undefined).until(gate), { fnName });
    const instantiate = suspendableInstantiate(
      waiter,
      (name) => name === "run",
      (entered) => {
        outcome = entered;
      },
    );
    const facts = { isLifted: () => false, functions: [">"], calls };
    const { run: begin } = instantiate(module, { "": { f: host } }, facts).exports as { run(): void };
    begin();
    return outcome;
  };
  const suspended = [
    "wasi:io/poll@0.2.3#block",
    "wasi:io/streams@0.2.0#blockingWriteAndFlush",
    "wasi:keyvalue/store@0.2.0-draft2#get",
    undefined,
  ];
  for (const name of suspended) {
    gate.isOpen = false;
    const waited = run(name);
    assert.equal(gate.wakes.size, 1, name);
    gate.isOpen = true;
    for (const wake of gate.wakes) wake();
    gate.wakes.clear();
    await waited;
  }
  gate.isOpen = false;
  const direct = [
    "wasi:http/types@0.2.3#OutgoingBody.finish",
    "wasi:io/streams@0.2.0#checkWrite",
    "wasi:io/poll@0.2.3#ready",
  ];
  for (const name of direct) await assert.rejects(run(name), /never to wait/, name);
});

test("the clean-up of an export runs when its real result is there", async () => {
  const waiter = new LoopWaiter(new Timers());
  const gate = new Gate();
  const module = new WebAssembly.Module(
    await parse(`(module
      (import "" "wait" (func $wait))
      (import "" "cleaned" (func $cleaned (param i32)))
      (func (export "run") (result i32) (call $wait) (i32.const 7))
      (func (export "cabi_post_run") (param i32) (call $cleaned (local.get 0))))`),
  );
  const cleaned: number[] = [];
  let outcome: Promise<unknown> = Promise.resolve();
  const instantiate = suspendableInstantiate(
    waiter,
    (name) => name === "run",
    (entered) => {
      outcome = entered;
    },
  );
  const imports = {
    wait: () => new Poller(waiter, () => undefined).until(gate),
    cleaned: Object.assign((of: number) => cleaned.push(of), { fnName: "wasi:cli/test@0.2.3#cleaned" }),
  };
  const facts = { isLifted: () => false, functions: [">", "7f>"], calls: new WaitingCalls() };
  const { exports } = instantiate(module, { "": imports }, facts);
  const { run, cabi_post_run: cleanUp } = exports as { run(): number; cabi_post_run(result: number): void };
  cleanUp(run());
  assert.deepEqual(cleaned, []);
  gate.isOpen = true;
  for (const wake of gate.wakes) wake();
  assert.equal(await outcome, 7);
  assert.deepEqual(cleaned, [7]);
});
