import assert from "node:assert/strict";
import { test } from "node:test";
import { toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { Statuses } from "@picolet/protocol/tunnel/messages.ts";
import { TunnelBench } from "@picolet/test/support/unit/tunnel/tunnel-bench.ts";
import { agrees } from "@picolet/test/support/unit/tunnel/tunnel-hub.ts";
import { NODE_REPORT } from "@picolet/test/support/unit/tunnel/tunnel-node.ts";

const STATUS = { phase: "Running", conditions: [{ type: "Ready", status: "False", reason: "x".repeat(200) }] };
const READY = { ...STATUS, conditions: [{ type: "Ready", status: "True", reason: "x".repeat(200) }] };

test("what the hub wants comes to the node, and is acknowledged when it is stored", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  await bench.start();
  assert.equal(bench.tunnel.report().state, "connected");
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.deepEqual(bench.hub.acknowledgedRevisions, [bench.hub.wanted.revision]);
  bench.hub.put("db");
  await bench.pass(50);
  assert.deepEqual([...bench.disk.objects.keys()], ["Pod/default/web", "Pod/default/db"]);
  assert.deepEqual(bench.hub.acknowledgedRevisions, [2, 3]);
});

test("a reconnect with nothing changed takes a hello and a welcome", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  bench.node.putStatus("web", STATUS);
  await bench.start();
  await bench.pass(1000);
  bench.hub.received.length = 0;
  bench.network.cut();
  await bench.pass(5000);
  assert.equal(bench.tunnel.report().state, "connected");
  assert.deepEqual(bench.hub.received, ["hello"]);
  assert.equal(bench.node.sessions, 2, "each asks for what is gone once");
  const [connection] = bench.network.connections;
  assert.ok((connection?.bytesSent ?? 0) + (connection?.bytesReceived ?? 0) <= 150);
  assert.equal(bench.disk.applied.length, 1);
});

test("a status goes up whole, then as what changed", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.node.putStatus("web", STATUS);
  await bench.pass(1000);
  const [connection] = bench.network.connections;
  const before = connection?.bytesSent ?? 0;
  bench.node.putStatus("web", READY);
  await bench.pass(1000);
  assert.deepEqual(bench.hub.bodies, ["web full", "web delta"]);
  assert.deepEqual(bench.hub.statuses.get("uid-web"), READY);
  assert.equal(bench.disk.statuses.size, 0);
  assert.ok((connection?.bytesSent ?? 0) - before < 100, `${(connection?.bytesSent ?? 0) - before} bytes`);
});

test("a burst of changes is one message, a single change goes at once", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  await bench.pass(1000);
  bench.hub.received.length = 0;
  for (let pod = 0; pod < 20; pod += 1) bench.node.putStatus(`pod-${pod}`, STATUS);
  await bench.pass(6);
  assert.deepEqual(bench.hub.received, ["statuses"]);
  // The steps of a starting pod, 5 ms apart, come together too.
  for (let step = 0; step < 10; step += 1) {
    bench.node.putStatus("web", { ...STATUS, step });
    await bench.pass(5);
  }
  await bench.pass(100);
  assert.deepEqual(bench.hub.received, ["statuses", "statuses"]);
  assert.deepEqual(bench.hub.statuses.get("uid-web"), { ...STATUS, step: 9 });
});

test("more statuses than one message holds go in several, with at most four under way", async () => {
  await using bench = new TunnelBench();
  bench.hub.holdsAcks = true;
  for (let pod = 0; pod < 400; pod += 1) bench.node.putStatus(`pod-${pod}`, STATUS);
  await bench.start();
  const count = (): number => bench.hub.received.filter((kind) => kind === "statuses").length;
  assert.equal(count(), 4);
  bench.hub.holdsAcks = false;
  bench.hub.session?.releaseAcks();
  await bench.pass(1000);
  assert.equal(bench.hub.statuses.size, 400);
  assert.equal(bench.disk.statuses.size, 0);
  assert.equal(count(), 7);
});

test("a pod that is gone is told so, and its name may come again", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.node.putStatus("web", STATUS);
  await bench.pass(500);
  bench.node.putStatus("web", { phase: "Succeeded" }, true);
  await bench.pass(500);
  assert.equal(bench.hub.statuses.get("uid-web"), undefined);
  bench.node.putStatus("web", STATUS);
  await bench.pass(500);
  assert.deepEqual(bench.hub.bodies, ["web full", "web gone", "web full"]);
});

test("a hub that has lost the base of a delta gets the status whole, and the outbox keeps it until then", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  for (const name of ["web", "db"]) bench.node.putStatus(name, STATUS);
  await bench.pass(500);
  bench.hub.statuses.clear();
  bench.hub.bodies.length = 0;
  for (const name of ["web", "db"]) bench.node.putStatus(name, READY);
  await bench.pass(500);
  assert.deepEqual(bench.hub.bodies, ["web delta", "db delta", "web full", "db full"]);
  assert.deepEqual(bench.hub.statuses.get("uid-db"), READY);
  assert.equal(bench.disk.statuses.size, 0);
});

test("a status that changes while a delta of it is refused is not lost", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.node.putStatus("web", STATUS);
  await bench.pass(500);
  bench.hub.statuses.clear();
  bench.hub.holdsAcks = true;
  bench.node.putStatus("web", READY);
  await bench.pass(500);
  bench.node.putStatus("web", { ...READY, restarts: 1 });
  bench.node.putStatus("other", STATUS);
  await bench.pass(500);
  bench.hub.session?.releaseAcks(1);
  await bench.pass(500);
  bench.hub.session?.releaseAcks();
  await bench.pass(500);
  bench.hub.session?.releaseAcks();
  await bench.pass(500);
  assert.deepEqual(
    bench.hub.bodies.filter((each) => each.startsWith("web")),
    [...["web full", "web delta", "web delta", "web full"]],
  );
  assert.deepEqual(bench.hub.statuses.get("uid-web"), { ...READY, restarts: 1 });
  assert.equal(bench.disk.statuses.size, 0);
});

test("what was under way when a session ended goes whole with the next one: nobody knows what came", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.node.putStatus("web", STATUS);
  await bench.pass(500);
  bench.hub.holdsAcks = true;
  bench.node.putStatus("web", READY);
  await bench.pass(500);
  bench.network.cut();
  bench.hub.holdsAcks = false;
  bench.node.putStatus("web", { ...READY, restarts: 1 });
  await bench.connected();
  await bench.pass(500);
  assert.deepEqual(bench.hub.bodies, ["web full", "web delta", "web full"]);
});

for (const isRestarted of [false, true]) {
  test(`acknowledgements lost at any point lose no status${isRestarted ? ", nor does a restart" : ""}`, async () => {
    for (let lost = 0; lost < 6; lost += 1) {
      await using bench = new TunnelBench({ seed: lost });
      await bench.start();
      for (let step = 0; step < 6; step += 1) {
        bench.hub.holdsAcks = step >= lost;
        for (const name of ["web", "db"]) bench.node.putStatus(name, { ...STATUS, step, name });
        await bench.pass(step % 2 === 0 ? 300 : 20);
      }
      bench.hub.holdsAcks = false;
      if (isRestarted) await bench.restart();
      else bench.network.cut();
      await bench.connected();
      await bench.pass(2000);
      assert.deepEqual(bench.hub.statuses.get("uid-web"), { ...STATUS, step: 5, name: "web" });
      assert.deepEqual(bench.hub.statuses.get("uid-db"), { ...STATUS, step: 5, name: "db" });
      assert.equal(bench.disk.statuses.size, 0);
    }
  });
}

test("events go up once each, in order, also over a reconnect", async () => {
  await using bench = new TunnelBench();
  for (let event = 0; event < 200; event += 1) bench.node.putEvent("Before");
  await bench.start();
  await bench.pass(1000);
  bench.hub.holdsAcks = true;
  bench.node.putEvent("Lost");
  await bench.pass(500);
  bench.network.cut();
  bench.hub.holdsAcks = false;
  await bench.connected();
  await bench.pass(500);
  assert.equal(bench.disk.events.length, 0);
  const expected = Array.from({ length: 201 }, (_, index) => `event-${index + 1}`);
  // Unacknowledged events are sent again under the same id.
  assert.deepEqual(bench.hub.events, [...expected, "event-201"]);
});

test("the node's report goes whole once, then as what changed, and is not repeated after a restart", async () => {
  await using bench = new TunnelBench();
  const forms: string[] = [];
  bench.hub.intercept = (message) => {
    if (message.kind === "node") forms.push(message.body.kind);
    return false;
  };
  await bench.start();
  await bench.pass(2000);
  bench.node.report.set({ ...NODE_REPORT, labels: { ...NODE_REPORT.labels, zone: "a" } });
  await bench.pass(2000);
  assert.deepEqual(forms, ["full", "delta"]);
  assert.equal(bench.hub.report?.labels.zone, "a");
  bench.node.report.set(NODE_REPORT);
  await bench.pass(2000);
  await bench.restart();
  await bench.pass(2000);
  assert.deepEqual(forms, ["full", "delta", "delta"]);
  bench.hub.report = undefined;
  bench.network.cut();
  await bench.connected();
  await bench.pass(2000);
  assert.deepEqual(forms, ["full", "delta", "delta", "full"]);
});

test("a report that is the same anew is not sent; one whose base the hub has lost goes whole", async () => {
  await using bench = new TunnelBench();
  const forms: string[] = [];
  bench.hub.intercept = (message) => {
    if (message.kind === "node") forms.push(message.body.kind);
    return false;
  };
  await bench.start();
  await bench.pass(2000);
  bench.node.report.set(structuredClone(NODE_REPORT));
  await bench.pass(2000);
  bench.hub.report = undefined;
  bench.node.report.set({ ...NODE_REPORT, providerID: "board://1" });
  await bench.pass(5000);
  assert.deepEqual(forms, ["full", "delta", "full"]);
  assert.equal((bench.hub as TunnelBench["hub"]).report?.providerID, "board://1");
});

test("static pods are mirrored when they change and when the hub has others, not at each reconnect", async () => {
  await using bench = new TunnelBench();
  const mirror = (name: string) => ({ namespace: "default", name, uid: `uid-${name}`, source: "file", pod: { name } });
  await bench.start();
  bench.node.putMirrors(...Array.from({ length: 150 }, (_, index) => mirror(`static-${index}`)));
  await bench.pass(2000);
  assert.equal(bench.hub.mirrors.length, 150);
  bench.hub.received.length = 0;
  bench.network.cut();
  await bench.connected();
  await bench.pass(2000);
  assert.deepEqual(bench.hub.received, ["hello"]);
  bench.hub.mirrors = [];
  bench.network.cut();
  await bench.connected();
  await bench.pass(2000);
  assert.equal(bench.hub.mirrors.length, 150);
  bench.node.putMirrors();
  await bench.pass(2000);
  assert.equal(bench.hub.mirrors.length, 0);
});

test("neither what others say of a pod nor nulls are sent, so that a hub finds a delta's base in the API server", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  const conditions = [
    { type: "PodScheduled", status: "True" },
    { type: "example.org/ready", status: "True" },
    { type: "DisruptionTarget", status: "True", reason: "EvictionByEvictionAPI" },
    { type: "Ready", status: "True", lastProbeTime: null },
    { type: "DisruptionTarget", status: "True", reason: "TerminationByKubelet" },
  ];
  bench.node.putStatus("a", { phase: "Running", conditions });
  await bench.pass(2000);
  assert.deepEqual(bench.hub.statuses.get("uid-a"), {
    phase: "Running",
    conditions: [
      { type: "Ready", status: "True" },
      { type: "DisruptionTarget", status: "True", reason: "TerminationByKubelet" },
    ],
  });
});

test("a hub that lacks the mirror pods is told their statuses again", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.node.putMirrors({ namespace: "default", name: "st", uid: "uid-st", source: "file", pod: { name: "st" } });
  bench.node.putStatus("st", { phase: "Running" });
  bench.node.putStatus("other", { phase: "Running" });
  await bench.pass(2000);
  bench.hub.statuses.clear();
  bench.hub.mirrors = [];
  bench.network.cut();
  await bench.connected();
  await bench.pass(2000);
  assert.deepEqual([...bench.hub.statuses.keys()], ["uid-st"]);
});

/** Statuses as a hub gets them, by what they say. */
const formsOf = ({ items, compact = [] }: Statuses): readonly string[] => [
  ...items.map(({ name, body }) => `${name} ${body.kind}`),
  ...compact.map(() => "compact"),
];

test("to a hub that takes compact statuses they go so, and whole when it asks for that by their key", async () => {
  await using bench = new TunnelBench();
  bench.hub.fleet = { id: "fleet", former: [] };
  bench.hub.takesCompactStatuses = true;
  const sent: (readonly string[])[] = [];
  bench.hub.intercept = (message, session) => {
    if (message.kind !== "statuses") return false;
    sent.push(formsOf(message));
    const wantFull = (message.compact ?? []).map(({ key }) => toHex(key));
    session.send({ kind: "statusesAck", sequence: message.sequence, wantFull });
    return true;
  };
  await bench.start();
  bench.node.putStatus("web", STATUS);
  await bench.pass(1000);
  bench.node.putStatus("web", READY);
  bench.node.putStatus("db", STATUS);
  await bench.pass(1000);
  assert.deepEqual(sent, [["web full"], ["db full", "compact"], ["web full"]]);
  assert.equal(bench.disk.statuses.size, 0);
});

for (const [hub, takesCompactStatuses, most] of [
  ["an older hub", false, 8],
  ["a hub that takes compact statuses", true, 16],
] as const) {
  test(`of ${hub} the acknowledgement is asked for at once when few more messages may go without one`, async () => {
    await using bench = new TunnelBench();
    bench.hub.fleet = { id: "fleet", former: [] };
    bench.hub.takesCompactStatuses = takesCompactStatuses;
    const mayWait: boolean[] = [];
    bench.hub.intercept = (message) => {
      if (message.kind === "statuses") mayWait.push(message.ackMayWait ?? false);
      return message.kind === "statuses";
    };
    await bench.start();
    for (let change = 0; change < most + 2; change += 1) {
      bench.node.putStatus("web", { ...STATUS, change });
      await bench.pass(1000);
    }
    assert.deepEqual(mayWait, [...Array<boolean>(most - 2).fill(true), false, false]);
  });
}

test("acknowledgements of events may wait too, and all are given when they come", async () => {
  await using bench = new TunnelBench();
  bench.hub.holdsAcks = true;
  const mayWait: boolean[] = [];
  bench.hub.intercept = (message) => {
    if (message.kind === "events") mayWait.push(message.ackMayWait ?? false);
    return false;
  };
  await bench.start();
  for (let change = 0; change < 10; change += 1) {
    bench.node.putStatus("web", { ...STATUS, change });
    bench.node.putEvent(`Pulled-${change}`);
    await bench.pass(1000);
  }
  assert.deepEqual(mayWait, [true, true, true, true, true, true, false, false]);
  bench.hub.holdsAcks = false;
  bench.hub.session?.releaseAcks();
  await bench.pass(1000);
  assert.deepEqual(bench.hub.statuses.get("uid-web"), { ...STATUS, change: 9 });
  assert.deepEqual([bench.disk.statuses.size, bench.disk.events.length], [0, 0]);
});

test("an event goes with the status that follows it, or a moment later by itself", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  await bench.pass(1000);
  bench.hub.received.length = 0;
  bench.node.putEvent("Started");
  await bench.pass(100);
  assert.deepEqual(bench.hub.received, []);
  bench.node.putStatus("web", STATUS);
  await bench.pass(6);
  assert.deepEqual(bench.hub.received, ["statuses", "events"]);
  await bench.pass(1000);
  bench.node.putEvent("Pulled");
  await bench.pass(300);
  assert.deepEqual(bench.hub.received, ["statuses", "events", "events"]);
});
