/** Tests of every store, on a file and in memory; then those of a file alone. */
import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { withCpu } from "@picolet/test/support/unit/store/store-contents.ts";
import {
  samplePod,
  sampleReference,
  sampleStatus,
  TemporaryFolder,
} from "@picolet/test/support/unit/store/store-samples.ts";
import type { EventInput } from "../core/store/store-ports.ts";
import { MAX_REMOVED_PODS } from "./desired-pods.ts";
import type { NodeEventRate } from "./event-rate-limit.ts";
import { Store } from "./store.ts";

const [a, b, c] = [samplePod("a"), samplePod("b"), samplePod("c")];

class Bench implements AsyncDisposable {
  readonly folder = new TemporaryFolder();
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly #path: string;
  store: Store;

  readonly #eventRate: NodeEventRate | undefined;

  constructor(kind: "file" | "memory", eventRate?: NodeEventRate) {
    this.#eventRate = eventRate;
    this.#path = kind === "file" ? this.folder.file("root/picolet.db") : ":memory:";
    this.store = this.#open();
  }

  /** As after a restart of the agent. */
  async reopen(): Promise<Store> {
    await this.store[Symbol.asyncDispose]();
    this.store = this.#open();
    return this.store;
  }

  #open(): Store {
    const eventRate = this.#eventRate;
    const init = { path: this.#path, ...(eventRate && { eventRate }) };
    return new Store({ clock: this.clock, log: this.log }, init);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.store[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}

const uids = (pods: ReadonlyMap<unknown, DesiredPod>): string[] => [...pods.values()].map(({ uid }) => uid).toSorted();

const warning = (name: string, message: string): EventInput => ({
  regarding: sampleReference(name),
  type: "Warning",
  reason: "Failed",
  message,
});

for (const kind of ["file", "memory"] as const) {
  test(`${kind}: a source's pods show with the revision that brought them`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    assert.equal(desired.revision("file"), 0);
    assert.equal(desired.desired.current.synced.size, 0);
    assert.equal(desired.replace("file", 1, [a, b]), "accepted");
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-a", "uid-b"]);
    assert.deepEqual([...desired.desired.current.synced], ["file"]);
    assert.equal(desired.revision("file"), 1);
    assert.equal(desired.revision("api"), 0);
  });

  test(`${kind}: what a pod is run as stays with it, whatever of it changes, until it is gone`, async () => {
    await using bench = new Bench(kind);
    const d = samplePod("d", { source: "api", origin: "" });
    const runtime = { kind: "component", reason: "Preferred", message: "it has it" } as const;
    const seen = () => bench.store.desired.desired.current.pods.get(d.uid)?.runtime;
    bench.store.desired.replace("api", 1, [d]);
    assert.equal(seen(), undefined);
    bench.store.desired.choose(d.uid, runtime);
    assert.deepEqual(seen(), runtime);
    const before = bench.store.desired.desired.current.pods.get(d.uid);
    bench.store.desired.replace("api", 2, [samplePod("d", { source: "api", origin: "" })]);
    assert.equal(bench.store.desired.desired.current.pods.get(d.uid), before, "nothing of it has changed");
    bench.store.desired.replace("api", 3, [
      withCpu(samplePod("d", { source: "api", origin: "", image: "new:2" }), "1"),
    ]);
    assert.deepEqual(seen(), runtime);
    assert.deepEqual(bench.store.desired.desired.current.requested.get(d.uid)?.runtime, runtime);
    bench.store.desired.grant(d.uid);
    if (kind === "file") await bench.reopen();
    assert.deepEqual(seen(), runtime);
    const switched = { ...runtime, reason: "MemoryPressure" } as const;
    bench.store.desired.choose(d.uid, switched);
    if (kind === "file") await bench.reopen();
    assert.deepEqual(seen(), switched);
    bench.store.desired.replace("api", 4, []);
    assert.deepEqual(bench.store.desired.desired.current.removed.get(d.uid)?.runtime, switched);
    bench.store.desired.forget(d.uid);
    bench.store.desired.replace("api", 5, [d]);
    assert.equal(seen(), undefined, "made anew, it is chosen anew");
  });

  test(`${kind}: other resources of a pod show as asked for until they are granted, whatever else of it changes`, async () => {
    await using bench = new Bench(kind);
    const d = samplePod("d", { source: "api", origin: "" });
    const cpuOf = (pods: ReadonlyMap<unknown, DesiredPod>) =>
      pods.get(d.uid)?.pod.spec.containers[0]?.resources.requests?.cpu;
    const seen = () => {
      const { pods, requested } = bench.store.desired.desired.current;
      return [cpuOf(pods), requested.has(d.uid) ? cpuOf(requested) : "-"];
    };
    const { desired } = bench.store;
    desired.replace("api", 1, [d]);
    assert.deepEqual(seen(), [undefined, "-"]);
    desired.replace("api", 2, [withCpu(d, "250m")]);
    assert.deepEqual(seen(), [undefined, "250m"]);
    const before = desired.desired.current.pods.get(d.uid);
    desired.replace(
      "api",
      3,
      [withCpu(d, "250m"), a].filter(({ source }) => source === "api"),
    );
    assert.equal(desired.desired.current.pods.get(d.uid), before, "nothing of it has changed");
    desired.replace("api", 4, [withCpu(samplePod("d", { source: "api", origin: "", image: "busybox:2" }), "300m")]);
    assert.deepEqual(seen(), [undefined, "300m"]);
    assert.equal(desired.desired.current.pods.get(d.uid)?.pod.spec.containers[0]?.image, "busybox:2");
    if (kind === "file") {
      await bench.reopen();
      assert.deepEqual(seen(), [undefined, "300m"]);
    }
    bench.store.desired.grant(d.uid);
    assert.deepEqual(seen(), ["300m", "-"]);
    if (kind === "file") {
      await bench.reopen();
      assert.deepEqual(seen(), ["300m", "-"]);
    }
    bench.store.desired.replace("api", 5, [withCpu(d, "400m")]);
    bench.store.desired.replace("api", 6, [withCpu(d, "0.3")]);
    assert.deepEqual(seen(), ["0.3", "-"], "taken back, there is nothing to grant");
    bench.store.desired.grant(d.uid);
    bench.store.desired.grant(podUid("nobody"));
    assert.deepEqual(seen(), ["0.3", "-"]);
  });

  test(`${kind}: an older revision is stale, the same one with other content a conflict, with equal content accepted`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    desired.replace("file", 5, [a]);
    const before = desired.desired.current;
    assert.equal(desired.replace("file", 4, [a]), "stale");
    assert.equal(desired.replace("file", 5, [a, b]), "conflict");
    assert.equal(desired.replace("file", 5, []), "conflict");
    assert.equal(desired.replace("file", 5, [samplePod("a")]), "accepted");
    assert.equal(desired.desired.current, before, "nothing has changed");
    assert.equal(desired.replace("file", 6, [samplePod("a")]), "accepted");
    assert.equal(desired.desired.current.pods.get(a.uid), a, "an unchanged pod keeps its object");
  });

  test(`${kind}: the order of a mapping's keys makes no other content`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    const turned = (value: unknown): unknown => {
      if (Array.isArray(value)) return value.map(turned);
      if (typeof value !== "object" || value === null) return value;
      const entries = Object.entries(value).toReversed();
      return Object.fromEntries(entries.map(([key, each]) => [key, turned(each)]));
    };
    desired.replace("file", 1, [a]);
    assert.equal(desired.replace("file", 1, [{ ...a, pod: turned(a.pod) as DesiredPod["pod"] }]), "accepted");
  });

  test(`${kind}: a pod that is not named any more is removed until it is forgotten`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    desired.replace("file", 1, [a, b]);
    desired.replace("file", 2, [b]);
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-b"]);
    assert.deepEqual(uids(desired.desired.current.removed), ["uid-a"]);
    desired.forget(b.uid);
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-b"], "what is wanted cannot be forgotten");
    desired.forget(a.uid);
    assert.equal(desired.desired.current.removed.size, 0);
  });

  test(`${kind}: a removed pod that is wanted again is removed no more, and can be removed again`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    desired.replace("file", 1, [a]);
    desired.replace("file", 2, []);
    desired.forget(a.uid);
    desired.replace("file", 3, [a]);
    desired.replace("file", 4, []);
    bench.store.flush();
    assert.deepEqual(uids(desired.desired.current.removed), ["uid-a"]);
    if (kind === "file") assert.deepEqual(uids((await bench.reopen()).desired.desired.current.removed), ["uid-a"]);
  });

  test(`${kind}: one source takes nothing away from another`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    const pushed = samplePod("b", { source: "push" });
    desired.replace("file", 1, [a]);
    desired.replace("push", 9, [pushed]);
    desired.replace("file", 2, []);
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-b"]);
    assert.deepEqual([...desired.desired.current.synced].toSorted(), ["file", "push"]);
  });

  test(`${kind}: a uid that two sources want stays wanted until both have dropped it`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    desired.replace("api", 1, [samplePod("a", { source: "api" })]);
    desired.replace("file", 1, [a]);
    assert.equal(desired.desired.current.pods.get(a.uid)?.source, "file");
    desired.replace("file", 2, []);
    assert.equal(desired.desired.current.pods.get(a.uid)?.source, "api");
    assert.equal(desired.desired.current.removed.size, 0);
    desired.replace("api", 2, []);
    assert.deepEqual(uids(desired.desired.current.removed), ["uid-a"]);
  });

  test(`${kind}: pods found running are wanted until their source speaks`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    desired.adopt([a, b]);
    desired.adopt([a]);
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-a", "uid-b"]);
    assert.equal(desired.desired.current.synced.size, 0);
    assert.equal(desired.replace("file", 1, [b]), "accepted");
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-b"]);
    assert.deepEqual(uids(desired.desired.current.removed), ["uid-a"]);
  });

  test(`${kind}: a pod found running after its source has spoken is to be ended`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    desired.replace("file", 1, [b]);
    desired.adopt([a, b]);
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-b"]);
    assert.deepEqual(uids(desired.desired.current.removed), ["uid-a"]);
  });

  test(`${kind}: a pod found running after its source has spoken goes on while its origin cannot be read`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    desired.replace("file", 1, [b], new Set([a.origin]));
    desired.adopt([a, c]);
    assert.deepEqual(uids(desired.desired.current.pods), ["uid-a", "uid-b"]);
    assert.deepEqual(uids(desired.desired.current.removed), ["uid-c"]);
    assert.equal(desired.replace("file", 1, [a, b]), "accepted", "that its origin can be read now writes nothing");
    desired.replace("file", 2, [b]);
    assert.deepEqual(uids(desired.desired.current.removed), ["uid-a", "uid-c"]);
  });

  test(`${kind}: pods of another source or twice the same uid are refused whole`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    assert.throws(() => desired.replace("api", 1, [a]), PicoletError);
    assert.throws(() => desired.replace("file", 1, [a, a]), PicoletError);
    assert.equal(desired.revision("file"), 0);
  });

  test(`${kind}: removed pods are bounded, the oldest are dropped`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    for (let n = 1; n <= MAX_REMOVED_PODS + 3; n += 1) desired.replace("file", n, [samplePod(`p${n}`)]);
    assert.equal(desired.desired.current.removed.size, MAX_REMOVED_PODS);
    assert.equal(desired.desired.current.removed.has(podUid("uid-p1")), false);
    assert.equal(desired.desired.current.removed.has(podUid("uid-p3")), true);
    if (kind === "file") {
      const { desired: again } = await bench.reopen();
      assert.equal(again.desired.current.removed.size, MAX_REMOVED_PODS);
      assert.equal(again.desired.current.removed.has(podUid("uid-p2")), false);
    }
  });

  test(`${kind}: a watcher of desired sees the latest`, async () => {
    await using bench = new Bench(kind);
    const { desired } = bench.store;
    const stop = new AbortController();
    const seen: string[][] = [];
    const reader = (async () => {
      for await (const { pods } of desired.desired.changes(stop.signal)) seen.push(uids(pods));
    })();
    await bench.clock.settle();
    desired.replace("file", 1, [a]);
    desired.replace("file", 2, [a, b]);
    await bench.clock.settle();
    stop.abort();
    await reader;
    assert.deepEqual(seen, [[], ["uid-a", "uid-b"]]);
  });

  test(`${kind}: the newest status of each pod, in the order of change`, async () => {
    await using bench = new Bench(kind);
    const { statuses } = bench.store;
    statuses.put(sampleStatus("a", "1"));
    statuses.put(sampleStatus("b", "1"));
    bench.store.flush();
    statuses.put(sampleStatus("a", "2"));
    statuses.put(sampleStatus("b", "1"));
    const listed = (): string[] =>
      statuses.pending(9).map((each) => `${each.sequence} ${each.value.name} ${each.value.status.message}`);
    assert.deepEqual(listed(), ["2 b 1", "3 a 2"]);
    bench.store.flush();
    assert.deepEqual(listed(), ["2 b 1", "3 a 2"]);
    assert.deepEqual(statuses.get(a.uid), sampleStatus("a", "2"));
    assert.deepEqual(
      statuses.pending(1).map(({ sequence }) => sequence),
      [2],
    );
    assert.equal(statuses.get(podUid("nobody")), undefined);
  });

  test(`${kind}: an acknowledged status is pending no more, unless it has changed since`, async () => {
    await using bench = new Bench(kind);
    const { statuses } = bench.store;
    statuses.put(sampleStatus("a", "1"));
    statuses.put(sampleStatus("b", "1"));
    statuses.put(sampleStatus("a", "2"));
    statuses.ack(2, new Set());
    assert.deepEqual(
      statuses.pending(9).map(({ value }) => value.name),
      ["a"],
    );
    bench.store.flush();
    statuses.ack(99, new Set());
    assert.deepEqual(statuses.pending(9), []);
    statuses.put(sampleStatus("b", "2"));
    assert.deepEqual(
      statuses.pending(9).map(({ sequence }) => sequence),
      [4],
      "acknowledging ahead acknowledges nothing",
    );
  });

  test(`${kind}: a deleted status is gone, written or not`, async () => {
    await using bench = new Bench(kind);
    const { statuses } = bench.store;
    statuses.put(sampleStatus("a", "1"));
    statuses.put(sampleStatus("b", "1"));
    bench.store.flush();
    statuses.put(sampleStatus("c", "1"));
    statuses.delete(c.uid);
    statuses.delete(a.uid);
    assert.equal(statuses.get(a.uid), undefined);
    assert.deepEqual(
      statuses.pending(9).map(({ value }) => value.name),
      ["b"],
    );
    bench.store.flush();
    assert.equal(statuses.get(c.uid), undefined);
    assert.deepEqual(
      statuses.pending(9).map(({ value }) => value.name),
      ["b"],
    );
  });

  test(`${kind}: events are listed oldest first, filtered by object`, async () => {
    await using bench = new Bench(kind);
    const { events } = bench.store;
    for (const [name, message] of [
      ["a", "1"],
      ["b", "2"],
      ["a", "3"],
    ] as const) {
      events.record(warning(name, message));
      if (message === "1") bench.store.flush();
    }
    const messages = (filter: { namespace?: string; name?: string; limit: number }): string[] =>
      events.list(filter).map(({ message }) => message);
    assert.deepEqual(messages({ limit: 10 }), ["1", "2", "3"]);
    assert.deepEqual(messages({ limit: 2 }), ["2", "3"]);
    assert.deepEqual(messages({ limit: 0 }), []);
    assert.deepEqual(messages({ name: "a", limit: 10 }), ["1", "3"]);
    assert.deepEqual(messages({ name: "a", namespace: "other", limit: 10 }), []);
    bench.store.flush();
    assert.deepEqual(messages({ name: "a", limit: 10 }), ["1", "3"]);
    assert.equal(events.latest.current, 3);
  });

  test(`${kind}: equal events within an hour are one, which moves to the end`, async () => {
    await using bench = new Bench(kind);
    const { events } = bench.store;
    const shown = (): string[] =>
      events.list({ limit: 9 }).map(({ sequence, count, message }) => `${sequence} ${count}x ${message}`);
    events.record(warning("a", "crash"));
    bench.store.flush();
    await bench.clock.advance(seconds(3599));
    events.record(warning("a", "other"));
    events.record(warning("a", "crash"));
    assert.deepEqual(shown(), ["2 1x other", "3 2x crash"]);
    bench.store.flush();
    assert.deepEqual(shown(), ["2 1x other", "3 2x crash"]);
    const [, crash] = events.list({ limit: 9 });
    assert.equal((crash?.lastAtMs ?? 0) - (crash?.firstAtMs ?? 0), 3_599_000);
    await bench.clock.advance(seconds(3600));
    events.record(warning("a", "crash"));
    assert.deepEqual(shown(), ["2 1x other", "3 2x crash", "4 1x crash"]);
  });

  test(`${kind}: too many events of one object are dropped, others go on`, async () => {
    await using bench = new Bench(kind);
    const { events } = bench.store;
    for (let n = 0; n < 100; n += 1) events.record({ ...warning("a", "message"), reason: `R${n}` });
    events.record(warning("b", "heard"));
    events.record({ ...warning("a", "heard, too"), type: "Normal" });
    assert.equal(events.list({ name: "a", limit: 1000 }).length, 26);
    assert.equal(events.list({ name: "b", limit: 1000 }).length, 1);
    assert.deepEqual(bench.log.problems.filter((line) => line.startsWith("too many")).length, 1);
    await bench.clock.advance(seconds(300));
    events.record(warning("a", "one more"));
    events.record(warning("a", "and none"));
    assert.equal(events.list({ name: "a", limit: 1000 }).at(-1)?.message, "one more");
  });

  test(`${kind}: repetitions that are too many are counted, and told of with the next that is not`, async () => {
    await using bench = new Bench(kind);
    const { events } = bench.store;
    const told = (): unknown => events.list({ limit: 9 }).map(({ sequence, count }) => [sequence, count]);
    for (let n = 0; n < 40; n += 1) {
      events.record(warning("a", "crash"));
      if (n % 10 === 9) bench.store.flush();
    }
    events.record(warning("a", "never heard of"));
    // The batch that was under way took some that were refused with it.
    assert.deepEqual(told(), [[25, 30]]);
    await bench.clock.advance(seconds(600));
    events.record(warning("a", "crash"));
    events.record(warning("a", "never heard of"));
    assert.deepEqual(told(), [
      [26, 41],
      [27, 2],
    ]);
    bench.store.flush();
    assert.deepEqual(told(), [
      [26, 41],
      [27, 2],
    ]);
  });

  test(`${kind}: from the tenth on, events that differ in their messages are one, with the last message`, async () => {
    await using bench = new Bench(kind);
    const { events } = bench.store;
    const shown = (): string[] =>
      events
        .list({ name: "a", limit: 99 })
        .map(({ count, regarding, message }) => `${count}x ${regarding.fieldPath} ${message}`);
    const record = (message: string, fieldPath = ""): void => {
      const event = warning("a", message);
      events.record({ ...event, regarding: { ...event.regarding, fieldPath } });
    };
    for (let n = 1; n <= 9; n += 1) record(`message ${n}`);
    record("message 9");
    assert.equal(shown().at(-1), "2x  message 9");
    record("message 10");
    bench.store.flush();
    const [first] = bench.store.events.pending(99).slice(-1);
    record("message 11", "spec.containers{app}");
    assert.equal(shown().length, 10);
    assert.equal(shown().at(-1), "2x spec.containers{app} (combined from similar events): message 11");
    bench.store.flush();
    assert.equal(shown().at(-1), "2x spec.containers{app} (combined from similar events): message 11");
    assert.equal(bench.store.events.pending(99).at(-1)?.value.id, first?.value.id, "it is the same event");
    record("message 9");
    assert.equal(shown().at(-1), "3x  message 9", "one of the last nine is still known by itself");
    events.record({ ...warning("a", "other"), reason: "Other" });
    assert.equal(shown().at(-1), "1x  other");
    await bench.clock.advance(seconds(601));
    record("message 12");
    assert.equal(shown().at(-1), "1x  message 12", "after ten minutes of rest they are single again");
  });

  test(`${kind}: a node that records without end is held to its rate`, async () => {
    await using bench = new Bench(kind, { perSecond: 10, burst: 5 });
    const { events } = bench.store;
    for (let n = 0; n < 1200; n += 1) events.record(warning(`pod-${n}`, "m"));
    assert.equal(events.latest.current, 1005);
    await bench.clock.advance(seconds(1));
    for (let n = 0; n < 50; n += 1) events.record(warning(`more-${n}`, "m"));
    assert.equal(events.latest.current, 1015);
  });

  test(`${kind}: the ring of events keeps the newest thousand, and half a MiB`, async () => {
    await using bench = new Bench(kind, { perSecond: 0, burst: 0 });
    const { events } = bench.store;
    for (let n = 0; n < 1100; n += 1) {
      events.record(warning(`pod-${n}`, `message ${n}`));
      if (n % 100 === 0) bench.store.flush();
    }
    bench.store.flush();
    const kept = events.list({ limit: 5000 });
    assert.equal(kept.length, 1000);
    assert.equal(kept.at(-1)?.message, "message 1099");
    assert.equal(kept.at(0)?.message, "message 100");
    for (let n = 0; n < 1000; n += 1) {
      events.record(warning(`large-${n}`, "x".repeat(2000)));
      if (n % 100 === 0) bench.store.flush();
    }
    bench.store.flush();
    const large = events.list({ limit: 5000 });
    assert.equal(large.at(-1)?.message.length, 1024);
    const bytes = large.reduce((sum, { message }) => sum + message.length, 0);
    assert.ok(bytes < 512 * 1024 && bytes > 400 * 1024, `${bytes} bytes`);
  });
}

test("file: everything is there again after a restart, but no source has spoken", async () => {
  await using bench = new Bench("file");
  const first = bench.store;
  first.desired.replace("file", 3, [a, b]);
  first.desired.replace("file", 4, [b]);
  first.desired.replace("api", 70, [samplePod("c", { source: "api" })]);
  first.desired.adopt([samplePod("d", { source: "http" })]);
  first.statuses.put(sampleStatus("b", "1"));
  first.statuses.put(sampleStatus("c", "1"));
  first.statuses.ack(1, new Set());
  first.events.record(warning("a", "crash"));
  const store = await bench.reopen();
  assert.deepEqual(store.state.current, { kind: "durable", opening: { kind: "opened" } });
  const { pods, removed, synced } = store.desired.desired.current;
  assert.deepEqual(uids(pods), ["uid-b", "uid-c", "uid-d"]);
  assert.deepEqual(pods.get(b.uid), b);
  assert.deepEqual(uids(removed), ["uid-a"]);
  assert.equal(synced.size, 0);
  assert.deepEqual([store.desired.revision("file"), store.desired.revision("api")], [4, 70]);
  assert.deepEqual(
    store.statuses.pending(9).map(({ sequence, value }) => `${sequence} ${value.name}`),
    ["2 c"],
  );
  assert.deepEqual(store.statuses.get(b.uid), sampleStatus("b", "1"));
  store.events.record(warning("a", "crash"));
  assert.deepEqual(
    store.events.list({ limit: 9 }).map(({ count }) => count),
    [2],
    "a repetition is known again",
  );
  assert.equal(store.desired.replace("file", 4, [samplePod("b")]), "accepted");
});

test("file: a status sequence is never given twice, deleted or not", async () => {
  await using bench = new Bench("file");
  bench.store.statuses.put(sampleStatus("a", "1"));
  bench.store.statuses.put(sampleStatus("b", "1"));
  bench.store.flush();
  bench.store.statuses.delete(b.uid);
  const { statuses } = await bench.reopen();
  statuses.put(sampleStatus("c", "1"));
  assert.deepEqual(
    statuses.pending(9).map(({ sequence }) => sequence),
    [1, 3],
  );
});

test("file: what is batched is written once a tick, and nothing is when nothing happens", async () => {
  await using bench = new Bench("file");
  const { store, clock } = bench;
  const stop = new AbortController();
  const running = endOfRun(store.run(stop.signal));
  const logBytes = (): number => statSync(bench.folder.file("root/picolet.db-wal")).size;
  await clock.settle();
  assert.equal(clock.sleeping, 0, "no timer while there is nothing to write");
  const before = logBytes();
  for (let n = 0; n < 50; n += 1) store.statuses.put(sampleStatus(`p${n}`, "1"));
  store.events.record(warning("a", "crash"));
  await clock.advance(millis(999));
  assert.equal(logBytes(), before);
  await clock.advance(millis(1));
  const after = logBytes();
  assert.ok(after > before);
  assert.equal(clock.sleeping, 0);
  store.statuses.put(sampleStatus("p1", "1"));
  await clock.advance(seconds(3600));
  assert.equal(logBytes(), after, "an equal status is no change");
  stop.abort();
  await running;
});

test("file: a count that grows is written after a minute, or with whatever is written before", async () => {
  await using bench = new Bench("file");
  const { store, clock } = bench;
  const stop = new AbortController();
  const running = endOfRun(store.run(stop.signal));
  const logBytes = (): number => statSync(bench.folder.file("root/picolet.db-wal")).size;
  store.events.record(warning("a", "crash"));
  await clock.advance(seconds(2));
  const before = logBytes();
  store.events.record(warning("a", "crash"));
  await clock.advance(seconds(59));
  assert.equal(logBytes(), before);
  await clock.advance(seconds(1));
  const after = logBytes();
  assert.ok(after > before);
  store.events.record(warning("a", "crash"));
  store.statuses.put(sampleStatus("a", "1"));
  await clock.advance(seconds(1));
  assert.ok(logBytes() > after);
  assert.equal(clock.sleeping, 0, "the count went with the status");
  stop.abort();
  await running;
});

test("file: the log is bounded and gone after a clean end", async () => {
  await using bench = new Bench("file");
  for (let n = 1; n <= 400; n += 1) bench.store.desired.replace("file", n, [samplePod("a", { image: `busybox:${n}` })]);
  assert.ok(statSync(bench.folder.file("root/picolet.db-wal")).size < 1.2 * 1024 * 1024);
  await bench.store[Symbol.asyncDispose]();
  assert.deepEqual(readdirSync(bench.folder.file("root")), ["picolet.db"]);
  assert.equal(statSync(bench.folder.file("root/picolet.db")).mode & 0o777, 0o600);
});

test("file: a second process is told who has the file, and harms nothing", async () => {
  await using bench = new Bench("file");
  bench.store.desired.replace("file", 1, [a]);
  const path = bench.folder.file("root/picolet.db");
  assert.throws(
    () => new Store({ clock: bench.clock, log: bench.log }, { path }),
    (error) => isPicoletError(error, "conflict") && /another picolet is using it/.test(error.message),
  );
  assert.deepEqual(uids((await bench.reopen()).desired.desired.current.pods), ["uid-a"]);
});
