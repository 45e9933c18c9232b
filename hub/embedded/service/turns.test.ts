import assert from "node:assert/strict";
import { after, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Clock, MonotonicMs } from "@picolet/protocol/ports.ts";
import { ADMIN_USER, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { BUDGETS_OF_NAMESPACE } from "../admission/quotas.ts";
import { SLICE_BYTES, SLICE_MS, Turns } from "../api/turns.ts";

test("each round of the event loop takes one part, and users take turns", async () => {
  const turns = new Turns();
  const order: string[] = [];
  let round = 0;
  const rounds: number[] = [];
  const count = (): void => {
    round += 1;
    if (order.length < 5) setImmediate(count);
  };
  const wait = async (user: string, name: string): Promise<void> => {
    await turns.next(user);
    order.push(name);
    rounds.push(round);
  };
  setImmediate(count);
  await Promise.all([wait("a", "a1"), wait("a", "a2"), wait("a", "a3"), wait("b", "b1"), wait("c", "c1")]);
  assert.deepEqual(order, ["a1", "b1", "c1", "a2", "a3"]);
  assert.equal(new Set(rounds).size, 5, `in rounds ${rounds.join()}`);
});

test("a loop pauses when it has worked on enough", async () => {
  const slices = new Turns().slices("a");
  assert.equal(slices.add(SLICE_BYTES - 1), undefined);
  const pause = slices.add(1);
  assert.ok(pause instanceof Promise);
  await pause;
  assert.equal(slices.add(1), undefined);
});

/** A clock by which everything takes longer than a part may. */
class SlowClock implements Clock {
  #now = 0;
  readonly wall = systemClock.wall.bind(systemClock);
  readonly sleep = systemClock.sleep.bind(systemClock);

  monotonic(): MonotonicMs {
    this.#now += SLICE_MS;
    return this.#now as MonotonicMs;
  }
}

const server = await TestApiServer.start({ clock: new SlowClock() });
after(() => server[Symbol.asyncDispose]());
const MAPS = { group: "", version: "v1", plural: "configmaps", kind: "ConfigMap", namespaced: true };
const signal = new AbortController().signal;
const client = server.server.client(ADMIN_USER);
const at = (name: string) => ({ namespace: "default", name });

test("service accounts of a namespace do not each have a turn of their own before other users", async () => {
  const { turns } = server.server.core.service;
  const order: string[] = [];
  const wait = async (user: string): Promise<void> => {
    await turns.next(user);
    order.push(user);
  };
  const accounts = Array.from({ length: 100 }, (_, n) => `system:serviceaccount:shop:a${n}`);
  await Promise.all([...accounts, "joe"].map(wait));
  assert.equal(order.indexOf("joe"), BUDGETS_OF_NAMESPACE);
});

test("a patch that is divided is computed again when the object was written in between", async () => {
  await client.create(MAPS, at("a"), { data: { a: "1" } }, {}, signal);
  const keys = ["b", "c", "d", "e"];
  await Promise.all(keys.map((key) => client.patch(MAPS, at("a"), "merge", { data: { [key]: "1" } }, {}, signal)));
  const patched = await client.get(MAPS, at("a"), signal);
  assert.deepEqual(patched.data, { a: "1", b: "1", c: "1", d: "1", e: "1" });
});

test("a patch of an object that was removed in between finds nothing", async () => {
  await client.create(MAPS, at("gone"), {}, {}, signal);
  const patch = client.patch(MAPS, at("gone"), "merge", { data: { a: "1" } }, {}, signal);
  const refusal = assert.rejects(patch, { message: 'configmaps "gone" not found' });
  await client.delete(MAPS, at("gone"), {}, signal);
  await refusal;
});

test("others are served while a long list is read", async () => {
  const large = "x".repeat(SLICE_BYTES);
  for (let i = 0; i < 8; i += 1) await client.create(MAPS, at(`large-${i}`), { data: { large } }, {}, signal);
  const order: string[] = [];
  const list = client.list(MAPS, {}, signal).then(({ items }) => {
    order.push("list");
    return items;
  });
  const others = ["large-0", "large-7"].map((name) => client.get(MAPS, at(name), signal).then(() => order.push(name)));
  await Promise.all(others);
  const items = await list;
  assert.deepEqual(order, ["large-0", "large-7", "list"]);
  assert.equal(items.filter(({ metadata }) => metadata.name.startsWith("large-")).length, 8);
});
