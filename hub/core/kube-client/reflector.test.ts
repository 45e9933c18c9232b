import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { ScriptedKubeClient } from "@picolet/test/support/unit/kubernetes/scripted-kube-client.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { PODS } from "./kube-client.ts";
import { type Change, Reflector } from "./reflector.ts";

interface Seen {
  readonly resourceVersion: string;
  readonly uid: string;
  readonly node: string;
}

const expired = (): PicoletError => new PicoletError("conflict", "cannot watch pods", { reason: "Expired" });

function started({ pageSize = 2, isOptional = false, failure = undefined as unknown } = {}) {
  const clock = new VirtualClock();
  const server = new ScriptedKubeClient();
  server.failNextList(failure);
  const changes: string[] = [];
  const log = new RecordedLog();
  const reflector = new Reflector<Seen>(
    { client: server, clock, random: seededRandom(7), log },
    {
      type: PODS,
      ...{ pageSize, isOptional },
      trim: ({ metadata, spec }) => {
        const node = (spec as { nodeName?: string }).nodeName;
        if (node === undefined) return undefined;
        if (typeof node !== "string") throw new Error("its node is no text");
        return { resourceVersion: metadata.resourceVersion ?? "", uid: metadata.uid ?? "", node };
      },
      indexes: {
        node: ({ node }) => {
          if (node === "unindexed") throw new Error("no index has it");
          return [node];
        },
      },
      onChange: (change) => {
        if (change.after?.node === "unheard") throw new Error("nobody wants to hear of it");
        changes.push(describe(change));
      },
    },
  );
  const life = new AbortController();
  const running = endOfRun(reflector.run(life.signal));
  return {
    clock,
    server,
    changes,
    reflector,
    log,
    [Symbol.asyncDispose]: async (): Promise<void> => {
      life.abort();
      await running;
      await clock.settle();
      assert.equal(clock.sleeping, 0, "no timer is left");
    },
  };
}

function describe({ key, before, after }: Change<Seen>): string {
  const sign = before === undefined ? "+" : after === undefined ? "-" : "~";
  return `${sign}${key}${before !== undefined && after !== undefined && before.uid !== after.uid ? " (another)" : ""}`;
}

test("a list of several pages is reported as additions, and found by its index", async () => {
  await using at = started();
  for (const name of ["a", "b", "c"]) at.server.put("default", name, { nodeName: "n1" });
  at.server.put("default", "unbound", {});
  await at.clock.settle();
  assert.deepEqual(at.changes, ["+default/a", "+default/b", "+default/c"]);
  assert.ok(at.reflector.synced.current);
  assert.deepEqual([...at.reflector.store.keysBy("node", "n1")], ["default/a", "default/b", "default/c"]);
  assert.equal(at.server.lists, 1);
});

test("changes are reported once and in order, and an object that is no longer wanted as a deletion", async () => {
  await using at = started();
  await at.clock.settle();
  at.server.put("default", "a", {});
  at.server.put("default", "a", { nodeName: "n1" });
  at.server.put("default", "a", { nodeName: "n2" });
  at.server.put("default", "b", { nodeName: "n2" });
  at.server.put("default", "b", {});
  at.server.remove("default", "a");
  await at.clock.settle();
  assert.deepEqual(at.changes, ["+default/a", "~default/a", "+default/b", "-default/b", "-default/a"]);
  assert.equal(at.reflector.store.size, 0);
  assert.equal(at.reflector.store.keysBy("node", "n2").size, 0);
});

test("an object that cannot be used holds up no other, and is logged once", async () => {
  await using at = started();
  at.server.put("default", "listed", { nodeName: 7 });
  at.server.put("default", "a", { nodeName: "n1" });
  await at.clock.settle();
  at.server.put("default", "a", { nodeName: "unindexed" });
  at.server.put("default", "a", { nodeName: "unheard" });
  at.server.put("default", "listed", { nodeName: 8 });
  at.server.put("default", "b", { nodeName: "n1" });
  await at.clock.settle();
  assert.deepEqual(at.changes, ["+default/a", "+default/b"]);
  assert.equal(at.reflector.problem.current, "");
  assert.deepEqual([at.reflector.store.get("default/a")?.node, at.reflector.store.size], ["unheard", 2]);
  assert.deepEqual(
    at.log.entries.map(({ level, fields }) => `${level} ${String(fields.key)}: ${String(fields.error)}`),
    ["error default/listed: its node is no text", "error default/a: no index has it"],
  );
  at.server.remove("default", "a");
  at.server.put("default", "listed", { nodeName: "n1" });
  await at.clock.settle();
  assert.deepEqual(at.changes.slice(2), ["-default/a", "+default/listed"]);
  assert.deepEqual([...at.reflector.store.keysBy("node", "n1")], ["default/b", "default/listed"]);
});

test("a watch that breaks is taken up where it was, with no new list", async () => {
  await using at = started();
  at.server.put("default", "a", { nodeName: "n1" });
  await at.clock.settle();
  at.server.breakWatches(new PicoletError("unavailable", "cannot watch pods", { retryable: true }));
  at.server.put("default", "b", { nodeName: "n1" });
  await at.clock.settle();
  assert.match(at.reflector.problem.current, /cannot watch pods/);
  await at.clock.advance(seconds(1));
  assert.deepEqual(at.changes, ["+default/a", "+default/b"]);
  assert.equal(at.server.lists, 1);
  assert.equal(at.reflector.problem.current, "");
});

test("an expired version leads to a list, which reports the difference alone", async () => {
  await using at = started();
  for (const name of ["kept", "gone", "changed", "remade"]) at.server.put("default", name, { nodeName: "n1" });
  await at.clock.settle();
  at.changes.length = 0;
  at.server.compact();
  at.server.remove("default", "gone", { silent: true });
  at.server.put("default", "changed", { nodeName: "n2" }, { silent: true });
  at.server.remove("default", "remade", { silent: true });
  at.server.put("default", "remade", { nodeName: "n1" }, { silent: true });
  at.server.put("default", "new", { nodeName: "n1" }, { silent: true });
  at.server.breakWatches(expired());
  await at.clock.advance(seconds(1));
  assert.deepEqual([...at.changes].sort(), [
    "+default/new",
    "-default/gone",
    "~default/changed",
    "~default/remade (another)",
  ]);
});

test("a page whose token expired makes the list begin again", async () => {
  await using at = started();
  for (const name of ["a", "b", "c"]) at.server.put("default", name, { nodeName: "n1" });
  at.server.failNextPage(expired());
  await at.clock.advance(seconds(2));
  assert.deepEqual(at.changes, ["+default/a", "+default/b", "+default/c"]);
  assert.ok(at.reflector.synced.current);
});

test("a silent watch is opened again, and after a second silence the resource is listed again", async () => {
  await using at = started();
  await at.clock.settle();
  at.server.deaf = true;
  at.server.put("default", "a", { nodeName: "n1" });
  await at.clock.advance(seconds(151));
  assert.equal(at.server.watches, 2);
  assert.equal(at.server.lists, 1);
  await at.clock.advance(seconds(151));
  assert.deepEqual(at.changes, ["+default/a"]);
  assert.equal(at.server.lists, 2);
});

test("bookmarks keep a quiet watch alive", async () => {
  await using at = started();
  await at.clock.settle();
  for (let minute = 0; minute < 10; minute += 1) {
    await at.clock.advance(seconds(60));
    at.server.bookmark();
  }
  assert.equal(at.server.watches, 1);
});

test("a server that was restored from a backup is listed again", async () => {
  await using at = started();
  for (const name of ["a", "b"]) at.server.put("default", name, { nodeName: "n1" });
  await at.clock.settle();
  at.server.restore();
  at.server.bookmark();
  await at.clock.settle();
  assert.equal(at.reflector.store.size, 0);
  at.server.put("default", "c", { nodeName: "n1" });
  await at.clock.settle();
  assert.deepEqual(at.changes.slice(2).sort(), ["+default/c", "-default/a", "-default/b"]);
});

test("a server that ends each watch at once is not asked without pause", async () => {
  await using at = started();
  at.server.endWatchesAtOnce = true;
  await at.clock.advance(seconds(600));
  assert.ok(at.server.watches < 90, `${at.server.watches} watches in ten minutes`);
  assert.ok(at.server.watches > 10);
});

test("after any faults of a server the store is what the server has, and each change is reported once", async () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("put" as const), name: fc.nat(4), bound: fc.boolean() }),
    fc.record({ kind: fc.constant("remove" as const), name: fc.nat(4) }),
    fc.record({ kind: fc.constantFrom("compact", "break", "expire", "bookmark", "settle", "deaf", "failPage") }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      await using at = started();
      for (const each of steps) {
        if (each.kind === "put") at.server.put("d", `p${each.name}`, each.bound ? { nodeName: "n" } : {});
        else if (each.kind === "remove") at.server.remove("d", `p${each.name}`);
        else if (each.kind === "compact") at.server.compact();
        else if (each.kind === "break") at.server.breakWatches(new PicoletError("unavailable", "cannot watch pods"));
        else if (each.kind === "expire") at.server.breakWatches(expired());
        else if (each.kind === "bookmark") at.server.bookmark();
        else if (each.kind === "failPage") at.server.failNextPage(expired());
        else if (each.kind === "deaf") at.server.deaf = !at.server.deaf;
        else await at.clock.advance(millis(700));
      }
      at.server.deaf = false;
      await at.clock.advance(seconds(400));
      const wanted = at.server.objects().filter(({ spec }) => (spec as { nodeName?: string }).nodeName !== undefined);
      assert.deepEqual(
        [...at.reflector.store.entries()].map(([key, { resourceVersion }]) => `${key}@${resourceVersion}`).sort(),
        wanted.map(({ metadata }) => `d/${metadata.name}@${metadata.resourceVersion}`).sort(),
      );
      const alive = new Set<string>();
      for (const change of at.changes) {
        const key = change.slice(1).replace(" (another)", "");
        assert.equal(alive.has(key), !change.startsWith("+"), change);
        if (change.startsWith("-")) alive.delete(key);
        else alive.add(key);
      }
    }),
    { numRuns: 200 },
  );
});

const ABSENT = new PicoletError("not_found", "the server could not find the requested resource");

test("a resource that the server lacks is empty, and is found when it comes", async () => {
  await using at = started({ isOptional: true, failure: ABSENT });
  at.server.put("default", "a", { nodeName: "n1" });
  await at.clock.settle();
  assert.ok(at.reflector.synced.current);
  assert.equal(at.reflector.problem.current, "");
  assert.deepEqual([at.log.problems, at.changes], [[], []]);
  await at.clock.advance(seconds(60));
  assert.deepEqual(at.changes, ["+default/a"]);
});

test("a resource that must be there is waited for", async () => {
  await using at = started({ failure: ABSENT });
  await at.clock.settle();
  assert.equal(at.reflector.synced.current, false);
  assert.match(at.reflector.problem.current, /could not find/);
});
