import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { TunnelBench } from "@picolet/test/support/unit/tunnel/tunnel-bench.ts";
import { agrees, TestHub } from "@picolet/test/support/unit/tunnel/tunnel-hub.ts";
import { CREDENTIALS, RecordedIdentity } from "@picolet/test/support/unit/tunnel/tunnel-node.ts";

const never = new AbortController().signal;
const TOKEN_PARAMS = {
  ...{ namespace: "default", serviceAccount: "default", audiences: [], expirationSeconds: 3600 },
  ...{ podName: "web", podUid: "uid-web" },
};

test("an idle session beats every 30 s, for less than a megabyte a day with all that is around it", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  await bench.pass(10_000);
  const [connection] = bench.network.connections;
  assert.ok(connection !== undefined);
  const before = { sent: connection.messagesSent, bytes: connection.bytesSent + connection.bytesReceived };
  await bench.pass(86_400_000);
  const beats = connection.messagesSent - before.sent;
  assert.ok(Math.abs(beats - 2880) < 10, `${beats} pings`);
  const payload = connection.bytesSent + connection.bytesReceived - before.bytes;
  // Per beat: TCP and IP with timestamps 3 x 52, TLS 2 x 22, WebSocket 6 + 2.
  const onTheWire = payload + beats * (3 * 52 + 2 * 22 + 8);
  assert.ok(onTheWire < 1_000_000, `${onTheWire} bytes`);
  assert.equal(bench.hub.sessions.length, 1);
});

for (const latencyMs of [5, 500, 2000]) {
  test(`a half-open link is found within two heartbeats, at ${latencyMs} ms latency`, async () => {
    await using bench = new TunnelBench();
    bench.network.latencyMs = latencyMs;
    await bench.start();
    await bench.connected();
    for (const seconds of [1, 17, 29]) {
      await bench.pass(seconds * 1000);
      bench.network.isSilent = true;
      const start = bench.clock.monotonic();
      while (bench.tunnel.report().state === "connected") await bench.pass(100);
      const found = bench.clock.monotonic() - start;
      assert.ok(found <= 60_000, `${found} ms`);
      assert.match(bench.tunnel.report().problem ?? "", /^the hub was silent for \d+ s$/);
      bench.network.isSilent = false;
      await bench.connected();
    }
  });
}

test("a link of 2 s latency is not cut", async () => {
  await using bench = new TunnelBench();
  bench.network.latencyMs = 2000;
  await bench.start();
  await bench.connected();
  await bench.pass(3_600_000);
  assert.equal(bench.hub.sessions.length, 1);
  assert.equal(bench.tunnel.report().rttMs, 4000);
});

test("a link whose latency grows from 5 ms to 10 s is not cut either", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  for (let latency = 5; latency <= 10_000; latency *= 1.5) {
    bench.network.latencyMs = latency / 2;
    await bench.pass(120_000);
  }
  assert.equal(bench.hub.sessions.length, 1);
  assert.ok((bench.tunnel.report().rttMs ?? 0) > 2000);
});

test("no ping is sent while other traffic shows that the hub lives", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  const [connection] = bench.network.connections;
  await bench.pass(1000);
  const before = connection?.messagesSent ?? 0;
  for (let second = 0; second < 600; second += 20) {
    bench.hub.put("web", { second });
    await bench.pass(20_000);
  }
  // Nothing but the acknowledgements of 30 revisions.
  assert.equal((connection?.messagesSent ?? 0) - before, 30);
});

test("two weeks offline: tries once a minute at most, forgets nothing, and goes on where it was", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  bench.node.putStatus("web", { phase: "Running", restarts: 0 });
  await bench.start();
  bench.network.problem = "ENETUNREACH";
  bench.network.cut();
  const start = bench.clock.monotonic();
  for (let day = 1; day <= 15; day += 1) {
    await bench.pass(86_400_000);
    bench.node.putStatus("web", { phase: "Running", restarts: day });
  }
  const dials = bench.network.dials.filter(({ atMs }) => atMs > start);
  const gaps = dials.slice(1).map(({ atMs }, index) => atMs - (dials[index]?.atMs ?? 0));
  const mean = gaps.reduce((sum, each) => sum + each, 0) / gaps.length;
  // Uniform in [0, 60 s].
  assert.ok(mean > 28_000 && mean < 32_000, `${mean}`);
  assert.ok(Math.max(...gaps) <= 60_000);
  const quarters = [0, 1, 2, 3].map((q) => gaps.filter((each) => Math.floor(each / 15_000) === q).length);
  for (const count of quarters) assert.ok(Math.abs(count / gaps.length - 0.25) < 0.03, quarters.join());
  bench.hub.put("web", { changed: true });
  bench.network.problem = undefined;
  await bench.connected();
  await bench.pass(1000);
  assert.ok(agrees(bench.hub, bench.disk.objects));
  assert.deepEqual(bench.hub.statuses.get("uid-web"), { phase: "Running", restarts: 15 });
  // One event for the loss, one for the problem, one for the return: not one for each of 43,000 attempts.
  assert.deepEqual(
    bench.events.all.map(({ reason }) => reason),
    [...["TunnelConnected", "TunnelDisconnected", "TunnelUnavailable", "TunnelConnected"]],
  );
});

test("hubs that fail in turn are told of once each, not at each attempt", async () => {
  await using bench = new TunnelBench({ hubs: ["a.example", "b.example"] });
  await bench.start();
  await bench.pass(3_600_000);
  assert.deepEqual(bench.events.lines, [
    "Warning TunnelUnavailable: cannot connect: no host a.example",
    "Warning TunnelUnavailable: cannot connect: no host b.example",
  ]);
  assert.ok(bench.network.dials.length > 100);
});

test("an identity that cannot be kept ends the session, and it is tried again", async () => {
  await using bench = new TunnelBench();
  let failures = 2;
  bench.identity.onWorked = () => {
    failures -= 1;
    if (failures >= 0) throw new Error("the disk is full");
  };
  await bench.start();
  await bench.pass(10_000);
  assert.equal(bench.hub.sessions.length, 3);
  assert.equal(bench.hub.sessions.filter(({ mux }) => !mux.closed.aborted).length, 1);
  assert.equal(bench.tunnel.report().state, "connected");
});

test("a network that comes back is dialled at once", async () => {
  await using bench = new TunnelBench();
  bench.network.problem = "ENETUNREACH";
  await bench.start();
  await bench.pass(600_000);
  bench.network.problem = undefined;
  const { state } = bench.tunnel.report();
  assert.equal(state, "disconnected");
  bench.network.change();
  await bench.pass(100);
  assert.equal(bench.tunnel.report().state, "connected");
});

test("a session whose address is gone ends at once", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.network.loseAddress();
  await bench.pass(1);
  assert.match(bench.tunnel.report().problem ?? "", /lost its address 10\.0\.0\.2/);
});

test("two fast reconnects in a row: every session is ended, one remains", async () => {
  await using bench = new TunnelBench();
  bench.hub.put("web");
  await bench.start();
  for (let time = 0; time < 2; time += 1) {
    bench.network.cut();
    bench.network.change();
    await bench.pass(1100);
  }
  await bench.connected();
  assert.equal(bench.hub.sessions.filter(({ mux }) => !mux.closed.aborted).length, 1);
  await bench.pass(1000);
  assert.ok(agrees(bench.hub, bench.disk.objects));
});

test("a hub that drains is left for the next one without a moment offline", async () => {
  await using bench = new TunnelBench({ hubs: ["hub.example", "other.example"] });
  const other = new TestHub();
  bench.network.hubs.set("other.example", other);
  bench.hub.put("web");
  other.put("web");
  await bench.start();
  bench.node.putStatus("web", { phase: "Running" });
  await bench.pass(1000);
  bench.hub.session?.send({ kind: "drain", reconnectAfterMs: 5000, reason: "update" });
  const states = new Set<string>();
  for (let step = 0; step < 80; step += 1) {
    await bench.pass(100);
    states.add(bench.tunnel.report().state);
    if (step === 20) bench.node.putStatus("web", { phase: "Failed" });
  }
  assert.deepEqual([...states], ["connected"]);
  assert.equal(bench.tunnel.report().hub, "https://other.example");
  assert.ok(bench.hub.session?.mux.closed.aborted);
  assert.deepEqual(bench.hub.statuses.get("uid-web"), { phase: "Failed" });
  bench.node.putStatus("web", { phase: "Succeeded" });
  await bench.pass(500);
  assert.deepEqual(other.statuses.get("uid-web"), { phase: "Succeeded" });
});

test("while no other hub takes it the node stays with the one that drains, and goes on syncing", async () => {
  await using bench = new TunnelBench();
  await bench.start();
  bench.network.problem = "ECONNREFUSED";
  bench.hub.session?.send({ kind: "drain", reconnectAfterMs: 0, reason: "update" });
  await bench.pass(60_000);
  bench.hub.put("web");
  await bench.pass(100);
  assert.equal(bench.tunnel.report().state, "connected");
  assert.ok(agrees(bench.hub, bench.disk.objects));
  bench.network.problem = undefined;
  await bench.pass(120_000);
  assert.equal(bench.hub.sessions.length, 2);
  assert.ok(bench.hub.sessions[0]?.mux.closed.aborted);
});

test("a drain in the middle of a move, and a hub that dies in it, leave one session", async () => {
  for (const diesAfterMs of [0, 5, 12, 21, 25, 31, 60]) {
    await using bench = new TunnelBench({ seed: diesAfterMs });
    await bench.start();
    const [first] = bench.hub.sessions;
    first?.send({ kind: "drain", reconnectAfterMs: 0, reason: "update" });
    await bench.pass(diesAfterMs);
    first?.end();
    await bench.pass(5000);
    bench.hub.put("web");
    await bench.pass(500);
    assert.equal(bench.tunnel.report().state, "connected");
    assert.equal(bench.hub.sessions.filter(({ mux }) => !mux.closed.aborted).length, 1);
    assert.ok(agrees(bench.hub, bench.disk.objects));
  }
});

test("what changes while the node moves is applied once, by one of the sessions", async () => {
  for (let atMs = 0; atMs < 50; atMs += 1) {
    await using bench = new TunnelBench({ seed: atMs });
    bench.hub.put("web");
    await bench.start();
    bench.hub.session?.send({ kind: "drain", reconnectAfterMs: 0, reason: "update" });
    await bench.pass(atMs);
    bench.hub.put("web", { atMs });
    bench.node.putStatus("web", { phase: "Running", atMs });
    await bench.pass(1000);
    assert.equal(bench.hub.sessions.length, 2);
    assert.ok(agrees(bench.hub, bench.disk.objects));
    const changes = bench.disk.applied.filter(({ upserts }) => upserts.length > 0);
    assert.equal(changes.length, 2, `at ${atMs} ms`);
    assert.deepEqual(bench.hub.statuses.get("uid-web"), { phase: "Running", atMs });
  }
});

test("a hub that drains as soon as it has welcomed is left as well", async () => {
  await using bench = new TunnelBench();
  let hasDrained = false;
  bench.hub.intercept = (message, session) => {
    if (message.kind !== "hello" || hasDrained) return false;
    hasDrained = true;
    session.welcome(message);
    session.send({ kind: "drain", reconnectAfterMs: 0, reason: "update" });
    return true;
  };
  await bench.start();
  await bench.pass(1000);
  assert.equal(bench.hub.sessions.length, 2);
  assert.equal(bench.tunnel.report().state, "connected");
});

test("a refusal says how long to stay away, also from a network that changes", async () => {
  await using bench = new TunnelBench();
  bench.hub.intercept = (message, session) => {
    if (message.kind !== "hello") return false;
    session.send({
      kind: "refusal",
      code: "superseded",
      message: "another agent has this name",
      retryAfterMs: 300_000,
    });
    return true;
  };
  await bench.start();
  assert.match(bench.tunnel.report().problem ?? "", /superseded: another agent has this name/);
  bench.network.change();
  await bench.pass(299_000);
  assert.equal(bench.network.dials.length, 1);
  await bench.pass(3000);
  assert.equal(bench.network.dials.length, 2);
});

test("a hub that says nothing after the hello is given up", async () => {
  await using bench = new TunnelBench();
  bench.hub.intercept = ({ kind }) => kind === "hello";
  await bench.start();
  await bench.pass(30_000);
  assert.match(bench.tunnel.report().problem ?? "", /cannot be welcomed by the hub within 30 s/);
  bench.hub.intercept = () => false;
  await bench.connected();
  assert.equal(bench.tunnel.report().state, "connected");
});

test("without an identity nothing is dialled; with a new one the session moves to it", async () => {
  await using bench = new TunnelBench({ identity: new RecordedIdentity("joining") });
  await bench.start();
  bench.identity.state.set({ kind: "joining", problem: "cannot join: the token has expired", isRefused: true });
  await bench.pass(60_000);
  assert.deepEqual(bench.network.dials, []);
  assert.match(bench.tunnel.report().problem ?? "", /token has expired/);
  bench.identity.join();
  await bench.pass(100);
  assert.equal(bench.tunnel.report().state, "connected");
  bench.identity.calls.length = 0;
  bench.identity.join({ ...CREDENTIALS, certificateChain: "renewed" });
  await bench.pass(200);
  assert.equal(bench.hub.sessions.length, 2);
  assert.ok(bench.identity.calls.includes("worked renewed"));
  assert.ok(bench.hub.sessions[0]?.mux.closed.aborted);
  assert.equal(bench.tunnel.report().state, "connected");
});

test("a hub's refusal of the certificate is the identity's to mend", async () => {
  await using bench = new TunnelBench();
  bench.network.refuses = true;
  bench.identity.onRefused = () => bench.identity.state.set({ kind: "joining", problem: "", isRefused: false });
  await bench.start();
  await bench.pass(60_000);
  assert.deepEqual(bench.identity.calls, ["refused cannot open a tunnel"]);
  assert.equal(bench.network.dials.length, 1);
  bench.network.refuses = false;
  bench.identity.join();
  await bench.pass(100);
  assert.equal(bench.tunnel.report().state, "connected");
  const [, time, worked] = bench.identity.calls;
  assert.match(time ?? "", /^time 17\d+ 10$/);
  assert.equal(worked, "worked certificate");
});

test("what the hub opens is answered by whoever answers it, and by nobody else", async () => {
  const opened: IncomingStream[] = [];
  await using bench = new TunnelBench({ handlers: { logs: (incoming) => opened.push(incoming) } });
  await bench.start();
  const mux = bench.hub.session?.mux;
  assert.ok(mux !== undefined);
  const exec = mux.open("exec", {}, "interactive", never);
  const refused = assert.rejects(exec, (error) => isPicoletError(error, "unimplemented"));
  await bench.pass(50);
  await refused;
  const logs = mux.open("logs", { pod: "web" }, "logs", never);
  await bench.pass(20);
  assert.deepEqual(opened[0]?.params, { pod: "web" });
  const stream = opened[0]?.accept({});
  await bench.pass(20);
  const reader = await logs;
  void stream?.write(new Uint8Array([1, 2, 3]), never);
  await bench.pass(20);
  assert.deepEqual(await reader.read(never), new Uint8Array([1, 2, 3]));
});

test("streams beyond the limit of their kind are refused, and a stream that ended makes room", async () => {
  const opened: IncomingStream[] = [];
  await using bench = new TunnelBench({ handlers: { kubelet: (incoming) => opened.push(incoming) } });
  await bench.start();
  const open = () =>
    bench.hub.session?.mux.open("kubelet", {}, "bulk", never).then(
      () => "accepted",
      (error) => error.code,
    );
  const first = Array.from({ length: 17 }, open);
  await bench.pass(50);
  for (const each of opened) each.accept({});
  await bench.pass(50);
  const answers = await Promise.all(first);
  assert.deepEqual([answers.filter((each) => each === "accepted").length, answers[16]], [16, "resource_exhausted"]);
  (opened[3] as unknown as { end(): void }).end();
  const next = open();
  await bench.pass(50);
  opened[16]?.accept({});
  await bench.pass(50);
  assert.equal(await next, "accepted");
});

test("a token is asked for through the session; offline the answer is at once that it cannot be had", async () => {
  await using bench = new TunnelBench();
  await assert.rejects(bench.tunnel.requestToken(TOKEN_PARAMS, never), (error) => isPicoletError(error, "unavailable"));
  bench.hub.onStream = (incoming) => {
    assert.deepEqual([incoming.kind, incoming.params], ["token", TOKEN_PARAMS]);
    incoming.accept({ token: "t", expirationTimestamp: "2026-01-01T01:00:00Z" }).end();
  };
  await bench.start();
  const token = bench.tunnel.requestToken(TOKEN_PARAMS, never);
  await bench.pass(50);
  assert.deepEqual(await token, { token: "t", expirationTimestamp: "2026-01-01T01:00:00Z" });
  assert.equal(bench.hub.session?.mux.streamCount, 0);
  bench.hub.onStream = (incoming) => void incoming.accept({ token: "" }).end();
  const wrong = assert.rejects(bench.tunnel.requestToken(TOKEN_PARAMS, never), (error) =>
    isPicoletError(error, "corrupt"),
  );
  await bench.pass(50);
  await wrong;
});

test("ended, it leaves nothing behind that waits", async () => {
  const bench = new TunnelBench({ heartbeatInterval: seconds(10) });
  await bench.start();
  await bench.pass(100_000);
  await bench[Symbol.asyncDispose]();
  await bench.clock.advance(millis(0));
  assert.equal(bench.clock.sleeping, 0);
  assert.ok(bench.hub.session?.mux !== undefined);
});
