/** A node takes what it is to run only from the fleet it belongs to. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TunnelBench } from "@picolet/test/support/unit/tunnel/tunnel-bench.ts";
import { judgeFleet } from "./known-fleet.ts";

const OWN = "11111111-1111-4111-8111-111111111111";
const OTHER = "22222222-2222-4222-8222-222222222222";

test("which hub a node takes desired state from", () => {
  const cases = [
    ["", undefined, "member", ""],
    ["", { id: OWN, former: [] }, "member", OWN],
    [OWN, { id: OWN, former: [] }, "member", OWN],
    [OWN, { id: OTHER, former: [OWN] }, "member", OTHER],
    [OWN, { id: OTHER, former: [] }, "foreign", ""],
    [OWN, { id: "", former: [] }, "foreign", ""],
    [OWN, { id: OTHER, former: [""] }, "foreign", ""],
    [OWN, undefined, "foreign", ""],
  ] as const;
  for (const [known, announced, kind, fleet] of cases) {
    const verdict = judgeFleet(known, announced);
    assert.equal(verdict.kind, kind, `${known} ${JSON.stringify(announced)}`);
    if (verdict.kind === "member") assert.equal(verdict.fleet, fleet);
    else assert.match(verdict.problem, new RegExp(`belongs to fleet ${OWN}.*--adopt-fleet ${OWN}`));
  }
});

for (const [what, fleet] of [
  ["of another fleet", { id: OTHER, former: [] }],
  ["that does not say its fleet", undefined],
] as const) {
  test(`a hub ${what} that has no pods ends none`, async () => {
    await using bench = new TunnelBench();
    bench.hub.fleet = { id: OWN, former: [] };
    for (const name of ["a", "b"]) bench.hub.put(name);
    await bench.start();
    await bench.connected();
    assert.equal(bench.disk.objects.size, 2);
    const applied = bench.disk.applied.length;

    bench.network.cut();
    bench.hub.fleet = fleet;
    for (const name of ["a", "b"]) bench.hub.remove(name);
    await bench.pass(600_000);
    const report = bench.tunnel.report();
    assert.notEqual(report.state, "connected");
    assert.match(report.problem ?? "", new RegExp(`belongs to fleet ${OWN}`));
    assert.equal(bench.disk.objects.size, 2);
    assert.equal(bench.disk.applied.length, applied, "nothing was taken, not even the cursor");
    assert.ok(bench.events.all.some(({ message }) => message.includes(OWN)));
    // Neither does a new agent over the same disk.
    await bench.restart();
    await bench.pass(600_000);
    assert.equal(bench.disk.objects.size, 2);

    bench.hub.fleet = { id: OTHER, former: [OWN] };
    await bench.connected();
    assert.equal(bench.tunnel.report().state, "connected");
    await bench.pass(1000);
    assert.equal(bench.disk.objects.size, 0, "the operator has said that it is the same fleet");
    assert.equal(bench.disk.fleet, OTHER);
  });
}

test("a hub that changes its fleet within a session, or while it is replaced by another one, is left", async () => {
  await using bench = new TunnelBench();
  bench.hub.fleet = { id: OWN, former: [] };
  bench.hub.put("a");
  await bench.start();
  await bench.connected();
  bench.hub.fleet = { id: OTHER, former: [] };
  bench.hub.wanted.removePod("a");
  // A second welcome of the session.
  bench.hub.lies = true;
  bench.hub.put("b");
  await bench.pass(600_000);
  assert.match(bench.tunnel.report().problem ?? "", new RegExp(`belongs to fleet ${OWN}`));
  assert.deepEqual([...bench.disk.objects.keys()], ["Pod/default/a"]);
});

test("a node that has joined again belongs where it has joined", async () => {
  await using bench = new TunnelBench();
  bench.hub.fleet = { id: OWN, former: [] };
  await bench.start();
  await bench.connected();
  await bench.kill();
  bench.hub.fleet = { id: OTHER, former: [] };
  // As the identity's `onJoin` does.
  bench.node.fleet.set("");
  await bench.restart();
  await bench.connected();
  assert.equal(bench.tunnel.report().state, "connected");
  assert.equal(bench.disk.fleet, OTHER);
});
