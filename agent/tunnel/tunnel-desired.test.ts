import assert from "node:assert/strict";
import { test } from "node:test";
import { TunnelBench } from "@picolet/test/support/unit/tunnel/tunnel-bench.ts";
import { agrees } from "@picolet/test/support/unit/tunnel/tunnel-hub.ts";

test("what changed while the node was away comes as a delta, without an inventory", async () => {
  await using bench = new TunnelBench();
  for (const name of ["a", "b", "c"]) bench.hub.put(name);
  await bench.start();
  bench.hub.received.length = 0;
  bench.network.cut();
  bench.hub.put("b", { changed: true });
  bench.hub.remove("c");
  await bench.connected();
  await bench.pass(500);
  assert.deepEqual(bench.hub.received, ["hello", "desiredAck"]);
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.deepEqual(bench.disk.applied.at(-1)?.deletes, ["Pod/default/c"]);
});

test("a journal that does not reach back, and another life of the hub, cost an inventory and bring only what differs", async () => {
  await using bench = new TunnelBench();
  for (let pod = 0; pod < 300; pod += 1) bench.hub.put(`pod-${pod}`);
  await bench.start();
  await bench.pass(1000);
  bench.network.cut();
  bench.hub.put("pod-7", { changed: true });
  bench.hub.wanted.restart();
  bench.hub.received.length = 0;
  await bench.connected();
  await bench.pass(1000);
  assert.deepEqual(bench.hub.received, ["hello", "inventory", "inventory", "desiredAck"]);
  assert.deepEqual(
    bench.disk.applied.at(-1)?.upserts.map(({ key }) => key),
    ["Pod/default/pod-7"],
  );
  assert.ok(agrees(bench.hub, bench.disk.objects));
});

test("another life of the hub with the same set moves the cursor and nothing else", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  await bench.start();
  bench.network.cut();
  bench.hub.wanted.restart();
  await bench.connected();
  await bench.pass(500);
  const last = bench.disk.applied.at(-1);
  assert.deepEqual([last?.upserts, last?.deletes], [[], []]);
  assert.deepEqual(bench.disk.cursor.epoch, bench.hub.wanted.epoch);
  assert.equal(bench.node.objects.confirmed.length, 2);
});

test("pieces of a revision that was cut off leave nothing, and all of it comes with the next session", async () => {
  for (let pieces = 1; pieces < 5; pieces += 1) {
    await using bench = new TunnelBench();
    await bench.start();
    const before = bench.disk.applied.length;
    const { session } = bench.hub;
    // Told piece by piece, the last one never.
    const { revision } = bench.hub.wanted;
    for (let piece = 0; piece < pieces; piece += 1) {
      const object = { key: `Pod/default/p${piece}`, hash: new Uint8Array(16), object: {} };
      const digest = new Uint8Array(0);
      session?.send({ kind: "desired", revision: revision + 1, upserts: [object], deletes: [], last: false, digest });
    }
    for (let pod = 0; pod < 10; pod += 1) bench.hub.wanted.set(`Pod/default/pod-${pod}`, { pod });
    await bench.pass(50);
    bench.network.cut();
    assert.equal(bench.disk.applied.length, before);
    await bench.connected();
    await bench.pass(500);
    assert.ok(agrees(bench.hub, bench.disk.objects));
    assert.equal(bench.disk.objects.size, 10);
  }
});

test("a set that does not come to its digest is not taken, and compared anew", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  await bench.start();
  bench.hub.received.length = 0;
  // The node's own copy is damaged where the hub does not know of it.
  bench.disk.objects.delete("Pod/default/web");
  bench.hub.put("db");
  await bench.pass(500);
  assert.deepEqual(bench.hub.received, ["resync", "inventory", "desiredAck"]);
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.equal(bench.tunnel.report().state, "connected");
});

test("a hub whose digests never fit is told so, and the session ends without a change", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  bench.hub.lies = true;
  await bench.start();
  await bench.pass(2000);
  assert.equal(bench.disk.applied.length, 0);
  assert.ok(bench.hub.received.includes("refusal"));
  assert.match(bench.tunnel.report().problem ?? "", /digest/);
  bench.hub.lies = false;
  await bench.pass(120_000);
  assert.ok(agrees(bench.hub, bench.disk.objects));
});

test("while the disk is full the session goes on and statuses go up; then what was wanted is stored", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.disk.isFull = true;
  bench.hub.put("web");
  bench.node.putStatus("other", { phase: "Running" });
  await bench.pass(300_000);
  assert.equal(bench.hub.sessions.length, 1);
  assert.equal(bench.hub.statuses.size, 1);
  assert.deepEqual(bench.hub.acknowledgedRevisions, []);
  bench.disk.isFull = false;
  await bench.pass(60_000);
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.deepEqual(bench.hub.acknowledgedRevisions, [bench.hub.wanted.revision]);
});

test("a change that cannot be read yet is taken when it can be, at once", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  const loaded = Promise.withResolvers<void>();
  bench.disk.loading = loaded.promise;
  bench.hub.put("web");
  await bench.pass(1000);
  assert.deepEqual(bench.hub.acknowledgedRevisions, []);
  bench.disk.loading = undefined;
  loaded.resolve();
  await bench.pass(1000);
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.deepEqual(bench.hub.acknowledgedRevisions, [bench.hub.wanted.revision]);
});

test("a change that could not be read is tried again in half a minute", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  const failing = Promise.withResolvers<void>();
  bench.disk.loading = failing.promise;
  bench.hub.put("web");
  await bench.pass(1000);
  bench.disk.loading = undefined;
  failing.reject(new Error("the file is gone"));
  await bench.pass(29_000);
  assert.deepEqual(bench.hub.acknowledgedRevisions, []);
  await bench.pass(2000);
  assert.deepEqual(bench.hub.acknowledgedRevisions, [bench.hub.wanted.revision]);
  assert.equal(bench.hub.sessions.length, 1);
});

test("revisions that came after one that could not be stored are asked for with all else", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.disk.isFull = true;
  bench.hub.put("web");
  await bench.pass(1000);
  bench.hub.put("db");
  await bench.pass(1000);
  bench.disk.isFull = false;
  await bench.pass(60_000);
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.equal(bench.disk.objects.size, 2);
  assert.equal(bench.hub.sessions.length, 1);
});

test("a revision that goes back in the same life of the hub ends the session", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  await bench.start();
  const { digest } = bench.hub;
  bench.hub.session?.send({ kind: "desired", revision: 1, upserts: [], deletes: [], last: true, digest });
  await bench.pass(50);
  assert.ok(bench.hub.received.includes("refusal"));
  assert.equal(bench.disk.cursor.revision, 2);
});

test("pieces of two revisions among one another end the session", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  const before = bench.disk.applied.length;
  const { revision } = bench.hub.wanted;
  for (const [index, last] of [false, true].entries()) {
    const digest = last ? bench.hub.digest : new Uint8Array(0);
    bench.hub.session?.send({
      kind: "desired",
      revision: revision + 1 + index,
      upserts: [],
      deletes: [],
      last,
      digest,
    });
  }
  await bench.pass(50);
  assert.ok(bench.hub.received.includes("refusal"));
  assert.equal(bench.disk.applied.length, before);
});

test("a revision larger than a node can hold ends the session with a limit", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  const { revision } = bench.hub.wanted;
  const before = bench.disk.applied.length;
  const codes: string[] = [];
  bench.hub.intercept = (message) => {
    if (message.kind === "refusal") codes.push(message.code);
    return false;
  };
  const text = "x".repeat(1024 * 1024);
  for (let piece = 0; piece < 20 && codes.length === 0; piece += 1) {
    const object = { key: `ConfigMap/default/c${piece}`, hash: new Uint8Array(16), object: { data: { text } } };
    const digest = new Uint8Array(0);
    bench.hub.session?.send({
      ...{ kind: "desired", revision: revision + 1, upserts: [object], deletes: [], last: false, digest },
    });
    await bench.pass(20);
  }
  assert.deepEqual(codes, ["limit"]);
  assert.equal(bench.disk.applied.length, before);
});

test("a fresh agent over the same disk goes on where the last one was, wherever it was killed", async () => {
  for (let step = 0; step < 12; step += 1) {
    await using bench = new TunnelBench({ seed: step });
    bench.hub.put("first");
    await bench.start();
    for (let pod = 0; pod < 3; pod += 1) bench.hub.put(`pod-${pod}`);
    await bench.pass(step);
    await bench.restart();
    await bench.pass(500);
    assert.ok(agrees(bench.hub, bench.disk.objects));
    const revisions = bench.disk.applied.map(({ cursor }) => cursor.revision);
    assert.deepEqual(revisions, [...new Set(revisions)]);
  }
});
