import assert from "node:assert/strict";
import { test } from "node:test";
import { SampleDecoder, SampleEncoder } from "@picolet/protocol/telemetry/sample-codec.ts";
import { LengthPrefixedReader } from "@picolet/protocol/telemetry/stream-messages.ts";
import type { UsageSample } from "@picolet/protocol/telemetry/usage-sample.ts";
import { settledMemory } from "@picolet/test/support/unit/machine/held-memory.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { anyUsageSample, usageSample } from "@picolet/test/support/unit/tunnel/usage-samples.ts";
import fc from "fast-check";
import { BoardSamples, MAX_AHEAD_MS } from "./board-samples.ts";

const [FIRST, SECOND] = [usageSample(2, 1), usageSample(2, 2)];

/** A hub whose API server has bound the sample's pods to every board. */
class Bench {
  readonly clock = new VirtualClock(FIRST.atMs);
  bound = FIRST.pods.map(({ pod }) => pod);
  readonly samples = new BoardSamples(
    { podsOf: () => this.bound, clock: this.clock },
    { everySeconds: 60, maxBoards: 3 },
  );
  #sequence = 0;

  put(sample: UsageSample, node = "a"): UsageSample | undefined {
    this.#sequence += 1;
    return this.samples.put(node, sample, { queue: "q", sequence: this.#sequence });
  }
}

const withContainer = (sample: UsageSample, change: { readonly cpuMs?: number; readonly sinceSeconds?: number }) => {
  const [first, ...others] = sample.pods;
  const [container] = first?.pod.containers ?? [];
  const [usage] = first?.containers ?? [];
  assert.ok(first !== undefined && container !== undefined && usage !== undefined);
  const { cpuMs = usage.cpuMs, sinceSeconds = container.sinceSeconds } = change;
  const pod = { ...first.pod, containers: [{ ...container, sinceSeconds }] };
  return { ...sample, pods: [{ ...first, pod, containers: [{ ...usage, cpuMs }] }, ...others] };
};

test("two samples give the average of CPU between them, a first one that since the beginning", () => {
  const bench = new Bench();
  bench.put(FIRST);
  const before = bench.samples.usageOf("a");
  assert.equal(before?.usage?.cores, undefined);
  assert.ok((before?.pods[0]?.containers[0]?.cores ?? 0) > 0);
  bench.clock.setWall(SECOND.atMs);
  bench.put(SECOND);
  const after = bench.samples.usageOf("a");
  const windowMs = SECOND.atMs - FIRST.atMs;
  const usedMs = (SECOND.node.cpuMs ?? 0) - (FIRST.node.cpuMs ?? 0);
  assert.equal(after?.windowMs, windowMs);
  assert.equal(after?.usage?.cores, usedMs / windowMs);
  assert.equal(after?.usage?.workingSetBytes, SECOND.node.workingSetBytes);
  const [pod] = after?.pods ?? [];
  assert.equal(pod?.containers[0]?.cores, 20 / windowMs);
  assert.equal(pod?.containers[0]?.workingSetBytes, SECOND.pods[0]?.containers[0]?.workingSetBytes);
  assert.deepEqual(after?.filesystems, SECOND.filesystems);
  assert.deepEqual(after?.board, SECOND.board);
});

test("a container that began again is averaged since then; a counter that goes back gives no figure", () => {
  const bench = new Bench();
  bench.put(FIRST);
  bench.clock.setWall(SECOND.atMs);
  const since = Math.floor(SECOND.atMs / 1000) - 20;
  bench.put(withContainer(SECOND, { cpuMs: 100, sinceSeconds: since }));
  const [restarted] = bench.samples.usageOf("a")?.pods[0]?.containers ?? [];
  assert.equal(restarted?.cores, 100 / (SECOND.atMs - since * 1000));
  const other = new Bench();
  other.put(FIRST);
  other.clock.setWall(SECOND.atMs);
  other.put({ ...withContainer(SECOND, { cpuMs: 1 }), node: { ...SECOND.node, cpuMs: 1 } });
  const usage = other.samples.usageOf("a");
  assert.deepEqual([usage?.usage?.cores, usage?.pods[0]?.containers[0]?.cores], [undefined, undefined]);
  // The other pod's figure is what it was.
  assert.ok((usage?.pods[1]?.containers[0]?.cores ?? 0) > 0);
  other.put({ ...SECOND, bootId: "another", atMs: SECOND.atMs + 1000 });
  assert.equal(other.samples.usageOf("a")?.usage?.cores, undefined);
});

test("a board's figures count for the pods that are bound to it, and for no other's", () => {
  const bench = new Bench();
  const [own, foreign] = FIRST.pods;
  assert.ok(own !== undefined && foreign !== undefined);
  bench.bound = [own.pod, { ...foreign.pod, uid: "another life of that name" }];
  assert.deepEqual(
    bench.put(FIRST)?.pods.map(({ pod }) => pod.name),
    [own.pod.name],
  );
  assert.deepEqual(
    bench.samples.usageOf("a")?.pods.map(({ pod }) => pod.name),
    [own.pod.name],
  );
  assert.equal(bench.samples.pods, 1);
});

test("a sample of the future is refused; a clock that is little ahead counts as now", () => {
  const bench = new Bench();
  const nowMs = bench.clock.wall().getTime();
  assert.equal(bench.put({ ...FIRST, atMs: nowMs + MAX_AHEAD_MS + 1 }), undefined);
  assert.deepEqual([bench.samples.boards, bench.samples.refused, bench.samples.received], [0, 1, 0]);
  assert.equal(bench.put({ ...FIRST, atMs: nowMs + MAX_AHEAD_MS })?.atMs, nowMs);
  assert.equal(bench.samples.usageOf("a")?.atMs, nowMs);
  // The board's clock was set right: its next sample is the newest, though it seems to be older.
  bench.put({ ...SECOND, atMs: nowMs - 1000 });
  assert.equal(bench.samples.usageOf("a")?.atMs, nowMs - 1000);
  assert.equal(bench.samples.usageOf("a")?.usage?.cores, undefined);
});

test("what is too old is not shown, and of too many boards the one that was silent for longest goes", () => {
  const bench = new Bench();
  bench.put(FIRST, "a");
  bench.clock.setWall(FIRST.atMs + 150_000);
  assert.ok(bench.samples.usageOf("a") !== undefined);
  bench.clock.setWall(FIRST.atMs + 150_001);
  assert.equal(bench.samples.usageOf("a"), undefined);
  assert.deepEqual([...bench.samples.all()], []);
  for (const node of ["b", "a", "c", "d"]) bench.put({ ...SECOND, atMs: bench.clock.wall().getTime() }, node);
  assert.deepEqual(
    [...bench.samples.all()].map(([node]) => node),
    ["a", "c", "d"],
  );
  assert.deepEqual(
    [...bench.samples.of(["d", "b"])].map(([node]) => node),
    ["d"],
  );
  assert.equal(bench.samples.sequenceOf("d", "q"), 5);
  assert.equal(bench.samples.sequenceOf("d", "another life"), 0);
  bench.samples.forget("d");
  assert.equal(bench.samples.usageOf("d"), undefined);
});

test("any samples in a row give figures that are possible", () => {
  fc.assert(
    fc.property(fc.array(anyUsageSample, { minLength: 1, maxLength: 4 }), (all) => {
      const clock = new VirtualClock(4_000_000_000_000);
      const samples = new BoardSamples(
        { podsOf: () => all.flatMap(({ pods }) => pods.map(({ pod }) => pod)), clock },
        { everySeconds: 60 },
      );
      for (const [index, sample] of all.entries()) {
        clock.setWall(sample.atMs);
        samples.put("a", sample, { queue: "q", sequence: index + 1 });
        const usage = samples.usageOf("a");
        assert.deepEqual(usage?.node, sample.node);
        assert.equal(usage?.pods.length, sample.pods.length);
        for (const { usage: own, containers } of usage?.pods ?? [])
          for (const each of [own, ...containers])
            assert.ok(each?.cores === undefined || (each.cores >= 0 && Number.isFinite(each.cores)));
      }
    }),
    { numRuns: 200 },
  );
});

test("the newest sample of a board with ten pods takes at most 3 KiB", async () => {
  const boards = 500;
  const clock = new VirtualClock(FIRST.atMs);
  // As the hub's cache of pods has them.
  const bound = usageSample(10, 1).pods.map(({ pod: { namespace, name, uid } }) => ({ namespace, name, uid }));
  const samples = new BoardSamples({ podsOf: () => bound, clock }, { everySeconds: 60 });
  const feed = (count: number, prefix: string): void => {
    for (let board = 0; board < count; board += 1) {
      const [encoder, decoder] = [new SampleEncoder(), new SampleDecoder()];
      for (const minutes of [1, 2, 3]) {
        const [message] = new LengthPrefixedReader().push(encoder.encode(minutes, usageSample(10, minutes)));
        assert.ok(message !== undefined);
        const { sample } = decoder.decode(message);
        samples.put(`${prefix}${board}`, sample, { queue: "0123456789abcdef", sequence: minutes });
      }
    }
  };
  feed(50, "warm");
  const before = await settledMemory();
  feed(boards, "board");
  const after = await settledMemory();
  const kib = (after.heap + after.buffers - before.heap - before.buffers) / boards / 1024;
  assert.ok(kib <= 3, `${kib.toFixed(2)} KiB`);
});
