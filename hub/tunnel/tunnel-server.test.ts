import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { compactBase, packCompactDelta } from "@picolet/protocol/tunnel/compact-status.ts";
import { EMPTY_DIGEST, statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { encodeCbor } from "@picolet/protocol/tunnel/encoding/cbor.ts";
import { toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { diffJson } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import { encodeFrame, MAX_FRAME_BYTES } from "@picolet/protocol/tunnel/frames.ts";
import type { CompactStatus, EventItem, StatusItem } from "@picolet/protocol/tunnel/messages.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { HubTunnel, type TestAgent } from "@picolet/test/support/unit/tunnel/hub-tunnel-bench.ts";

const never = new AbortController().signal;
const POD = "Pod/default/web";
const pod = (image: string): Record<string, unknown> => ({ kind: "Pod", metadata: { name: "web" }, spec: { image } });

/** Follows the set of `desired` messages as an agent does, and acknowledges it. */
async function follow(
  agent: TestAgent,
): Promise<{ readonly keys: Map<string, unknown>; readonly revision: number; readonly digest: Uint8Array }> {
  const keys = new Map<string, unknown>();
  for (;;) {
    const piece = await agent.next("desired");
    for (const key of piece.deletes) keys.set(key, undefined);
    for (const { key, object } of piece.upserts) keys.set(key, object);
    if (!piece.last) continue;
    agent.mux.send({ kind: "desiredAck", revision: piece.revision });
    return { keys, revision: piece.revision, digest: piece.digest };
  }
}

type Fields = Readonly<Record<string, unknown>>;

const status = (uid: string, phase: string): StatusItem => ({
  namespace: "default",
  name: "web",
  uid,
  body: { kind: "full", status: { phase } },
});

const event = (id: string): EventItem => ({
  id,
  regarding: { kind: "Pod", namespace: "default", name: "web", uid: "u", fieldPath: "" },
  type: "Normal",
  reason: "Pulled",
  message: "pulled it",
  count: 1,
  firstAtMs: 0,
  lastAtMs: 0,
});

test("a reconnect with nothing changed is one round trip and less than 150 bytes", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({ [POD]: pod("a") });
  const before = await hub.join("edge-1");
  const { digest, revision } = await followFromNothing(before);
  before.socket.close();
  await hub.released("edge-1");
  node.report = { register: true, labels: {}, taints: [], providerID: "", status: {} };
  const agent = await hub.dial("edge-1");
  const cursor = { epoch: new Uint8Array(8), revision, digest };
  agent.hello({ cursor, nodeHash: statusHash(sha256, node.report), timeMs: Date.now() });
  const welcome = await agent.next("welcome");
  assert.deepEqual([welcome.desired, welcome.wantsMirrors, welcome.wantsNode], ["current", false, false]);
  await agent.roundTrip();
  // The welcome, and the pong of the round trip.
  assert.equal(agent.mux.framesReceived, 2);
  const bytes = agent.mux.bytesSent + agent.mux.bytesReceived;
  assert.ok(bytes <= 110, `${bytes} bytes`);
});

test("each welcome says which fleet the hub serves, and a board of another one is in the log", async () => {
  const fleet = { id: "11111111-1111-4111-8111-111111111111", former: ["22222222-2222-4222-8222-222222222222"] };
  await using hub = await HubTunnel.start({ fleet });
  hub.backend.node("edge-1").set({ [POD]: pod("a") });
  const agent = await hub.dial("edge-1");
  agent.hello({});
  assert.deepEqual((await agent.next("welcome")).fleet, fleet);
  agent.mux.send({ kind: "inventory", items: [], last: true });
  await follow(agent);
  agent.mux.send({ kind: "resync" });
  assert.deepEqual((await agent.next("welcome")).fleet, fleet);
  agent.mux.send({ kind: "refusal", code: "fleet", message: "this node belongs to fleet x", retryAfterMs: 0 });
  await hub.released("edge-1");
  const entry = hub.log.entries.find(({ message }) => message === "a board belongs to another fleet");
  assert.deepEqual([entry?.level, entry?.fields.node], ["error", "edge-1"]);
});

/** For an agent that was asked for its inventory, and has nothing. */
async function followFromNothing(agent: TestAgent): Promise<Awaited<ReturnType<typeof follow>>> {
  agent.mux.send({ kind: "inventory", items: [], last: true });
  return await follow(agent);
}

test("an agent that was never here says what it has and gets what differs", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({ [POD]: pod("a"), "Secret/default/db": { data: { a: "1" } } });
  const agent = await hub.dial("edge-1");
  agent.hello();
  assert.equal((await agent.next("welcome")).desired, "inventory");
  const hash = node.object("Secret/default/db")?.hash;
  assert.ok(hash);
  agent.mux.send({ kind: "inventory", items: [{ key: "Secret/default/db", hash }], last: false });
  agent.mux.send({ kind: "inventory", items: [{ key: "Pod/default/old", hash }], last: true });
  const { keys, digest } = await follow(agent);
  assert.deepEqual(
    [...keys],
    [
      ["Pod/default/old", undefined],
      [POD, pod("a")],
    ],
  );
  assert.deepEqual(digest, node.desired.current.digest);
});

test("what changed while an agent was away comes as a delta", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({ [POD]: pod("a"), "Pod/default/other": pod("b") });
  const first = await hub.join("edge-1");
  const { revision, digest } = await followFromNothing(first);
  await first.roundTrip();
  first.socket.close();
  await first.closed;
  node.set({ [POD]: pod("c") });
  node.set({ "Pod/default/other": undefined });
  const agent = await hub.dial("edge-1");
  agent.hello({ cursor: { epoch: new Uint8Array(8), revision, digest } });
  assert.equal((await agent.next("welcome")).desired, "delta");
  const second = await follow(agent);
  assert.deepEqual(
    [...second.keys],
    [
      ["Pod/default/other", undefined],
      [POD, pod("c")],
    ],
  );
});

test("an agent whose acknowledgement was lost gets a delta from what it has", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({ [POD]: pod("a") });
  const first = await hub.join("edge-1");
  first.mux.send({ kind: "inventory", items: [], last: true });
  const piece = await first.next("desired");
  first.socket.terminate();
  await first.closed;
  node.set({ [POD]: pod("b") });
  const agent = await hub.dial("edge-1");
  agent.hello({ cursor: { epoch: new Uint8Array(8), revision: piece.revision, digest: piece.digest } });
  assert.equal((await agent.next("welcome")).desired, "delta");
  assert.deepEqual([...(await follow(agent)).keys], [[POD, pod("b")]]);
});

test("while a slow agent has not acknowledged, changes come together in the next revision", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({ [POD]: pod("0") });
  const agent = await hub.join("edge-1");
  agent.mux.send({ kind: "inventory", items: [], last: true });
  const first = await agent.next("desired");
  for (let index = 1; index <= 50; index += 1) node.set({ [POD]: pod(String(index)) });
  await agent.roundTrip();
  assert.deepEqual(agent.messages, []);
  agent.mux.send({ kind: "desiredAck", revision: first.revision });
  const { keys, revision } = await follow(agent);
  assert.deepEqual([...keys], [[POD, pod("50")]]);
  assert.equal(revision, node.desired.current.revision);
  await agent.roundTrip();
  assert.deepEqual(agent.messages, []);
});

test("a large set comes in pieces that are applied together", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  const objects = Object.fromEntries(
    Array.from({ length: 60 }, (_, index) => [
      `ConfigMap/default/c${index}`,
      { data: { text: "x".repeat(20_000), index } },
    ]),
  );
  node.set({ ...objects, "Secret/default/large": { data: { text: "y".repeat(1_000_000) } } });
  const agent = await hub.join("edge-1");
  agent.mux.send({ kind: "inventory", items: [], last: true });
  let pieces = 0;
  let count = 0;
  for (let isLast = false; !isLast; pieces += 1) {
    const piece = await agent.next("desired");
    count += piece.upserts.length;
    isLast = piece.last;
    assert.equal(piece.digest.length, piece.last ? 16 : 0);
  }
  assert.equal(count, 61);
  assert.ok(pieces >= 20 && pieces <= 24, String(pieces));
});

test("a set that is larger than an agent takes at once comes as several revisions", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  const text = "x".repeat(1_000_000);
  node.set(Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`Secret/default/s${index}`, { text, index }])));
  const agent = await hub.join("edge-1");
  const first = await followFromNothing(agent);
  const second = await follow(agent);
  const third = await follow(agent);
  assert.deepEqual([first.keys.size, second.keys.size, third.keys.size], [8, 8, 4]);
  assert.notDeepEqual(first.digest, second.digest);
  assert.deepEqual(third.digest, node.desired.current.digest);
  await agent.roundTrip();
  assert.deepEqual(agent.messages, []);
});

test("an object that changes between two sets does not confuse digests", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({ [POD]: pod("a"), "Pod/default/gone": pod("a") });
  node.setSilently(POD, pod("b"));
  node.setSilently("Pod/default/gone", undefined);
  const agent = await hub.join("edge-1");
  const first = await followFromNothing(agent);
  assert.deepEqual([...first.keys], [[POD, pod("b")]]);
  node.set({});
  // The set that the watch shows at last is the one that the agent has: its digest agrees, and nothing is sent.
  await agent.roundTrip();
  assert.deepEqual(agent.messages, []);
  assert.deepEqual(first.digest, node.desired.current.digest);
});

test("an object that is gone before its change was sent is deleted", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({ [POD]: pod("a") });
  const agent = await hub.join("edge-1");
  await followFromNothing(agent);
  await agent.roundTrip();
  node.setAhead(POD, pod("b"), undefined);
  const { keys, digest } = await follow(agent);
  assert.deepEqual([...keys], [[POD, undefined]]);
  assert.deepEqual(digest, EMPTY_DIGEST);
  // The set goes on to show what is not there: it is not sent for again and again.
  await agent.roundTrip();
  await agent.roundTrip();
  assert.deepEqual(agent.messages, []);
});

test("an agent with another digest is compared again", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({ [POD]: pod("a") });
  const agent = await hub.join("edge-1");
  agent.mux.send({ kind: "inventory", items: [], last: true });
  await agent.next("desired");
  agent.mux.send({ kind: "resync" });
  const welcome = await agent.next("welcome");
  assert.deepEqual([welcome.desired, welcome.wantsMirrors, welcome.wantsNode], ["inventory", false, false]);
  assert.deepEqual([...(await followFromNothing(agent)).keys], [[POD, pod("a")]]);
  // Also with nothing under way: its disk was full when it learned that all is current.
  agent.mux.send({ kind: "resync" });
  await agent.next("welcome");
  assert.deepEqual([...(await followFromNothing(agent)).keys], [[POD, pod("a")]]);
});

test("no welcome is sent before the hub's watches have synced", async () => {
  await using hub = await HubTunnel.start();
  const agent = await hub.dial("edge-1");
  agent.hello();
  await agent.roundTrip();
  assert.deepEqual(agent.messages, []);
  hub.backend.node("edge-1").set({});
  assert.equal((await agent.next("welcome")).desired, "current");
  const other = await hub.dial("edge-2");
  other.hello();
  await other.roundTrip();
  await hub.clock.advance(seconds(31));
  const refusal = await other.next("refusal");
  assert.equal(refusal.code, "overloaded");
  assert.ok(refusal.retryAfterMs >= 1000 && refusal.retryAfterMs <= 5000);
});

test("a status is acknowledged when it is written, and not before", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  const agent = await hub.join("edge-1");
  const gate = Promise.withResolvers<void>();
  hub.backend.gate = gate.promise;
  agent.mux.send({ kind: "statuses", sequence: 1, items: [status("u1", "Pending")] });
  agent.mux.send({ kind: "statuses", sequence: 2, items: [status("u1", "Running"), status("u2", "Running")] });
  await agent.roundTrip();
  assert.deepEqual(agent.messages, []);
  hub.backend.gate = undefined;
  gate.resolve();
  let acked = 0;
  while (acked < 2) acked = (await agent.next("statusesAck")).sequence;
  assert.deepEqual(node.statuses.get("u1"), { phase: "Running" });
  assert.deepEqual(node.statuses.get("u2"), { phase: "Running" });
});

test("an acknowledgement that may wait goes with the next pong, any other at once", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({});
  const agent = await hub.join("edge-1");
  const written = hub.nextWrite();
  agent.mux.send({ kind: "statuses", sequence: 1, items: [status("u1", "Running")], ackMayWait: true });
  await written;
  const told = hub.nextWrite();
  agent.mux.send({ kind: "events", sequence: 1, items: [event("e1")], ackMayWait: true });
  await told;
  await hub.clock.advance(seconds(20));
  assert.deepEqual(agent.messages, []);
  await agent.roundTrip();
  assert.deepEqual(await agent.next("statusesAck"), { kind: "statusesAck", sequence: 1, wantFull: [] });
  assert.equal((await agent.next("eventsAck")).sequence, 1);
  agent.mux.send({ kind: "statuses", sequence: 2, items: [status("u1", "Failed")] });
  assert.equal((await agent.next("statusesAck")).sequence, 2);
});

test("an acknowledgement that may wait does not wait for an agent that does not ping", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({});
  const agent = await hub.join("edge-1");
  const written = hub.nextWrite();
  agent.mux.send({ kind: "statuses", sequence: 1, items: [status("u1", "Running")], ackMayWait: true });
  await written;
  await hub.clock.advance(seconds(46));
  assert.equal((await agent.next("statusesAck")).sequence, 1);
});

test("a compact status starts from what the hub finds by its key, else the whole is asked for by that key", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  const agent = await hub.join("edge-1");
  const pods = ["u1", "u2", "u3"].map((uid) => ({ namespace: "default", name: `pod-${uid}`, uid }));
  const compact = (at: number, from: Fields, to: Fields): CompactStatus => {
    const base = compactBase(sha256, pods[at] ?? assert.fail(), from);
    const delta = packCompactDelta((bytes, dictionary) => deflateRawSync(bytes, { dictionary }), base, from, to);
    return { key: base.key, delta: delta ?? assert.fail() };
  };
  const [pending, running, failed] = [{ phase: "Pending" }, { phase: "Running" }, { phase: "Failed" }] as [
    Fields,
    Fields,
    Fields,
  ];
  const items = pods.map((pod): StatusItem => ({ ...pod, body: { kind: "full", status: pending } }));
  agent.mux.send({ kind: "statuses", sequence: 1, items });
  await agent.next("statusesAck");
  node.watchLags = true;
  agent.mux.send({
    kind: "statuses",
    sequence: 2,
    items: [],
    compact: [compact(0, pending, running)],
    ackMayWait: false,
  });
  assert.deepEqual((await agent.next("statusesAck")).wantFull, []);
  node.watchLags = false;
  // By now the hub has only what the API server shows.
  await hub.clock.advance(seconds(16));
  const [known, unknown] = [compact(0, running, failed), compact(1, running, failed)];
  const damaged = { ...compact(2, pending, running), delta: Uint8Array.of(0xff, 0xff) };
  agent.mux.send({ kind: "statuses", sequence: 3, items: [], compact: [known, unknown, damaged], ackMayWait: true });
  const { wantFull } = await agent.next("statusesAck");
  assert.deepEqual(wantFull, [toHex(unknown.key), toHex(damaged.key)]);
  assert.deepEqual(
    [...node.statuses],
    [
      ["u1", failed],
      ["u2", pending],
      ["u3", pending],
    ],
  );
  assert.deepEqual(node.writes.at(-1), { ...pods[0], status: failed, gone: false });
});

test("while the API server is away statuses wait, the newest of each pod is written, and acked then", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  const agent = await hub.join("edge-1");
  hub.backend.outage = new PicoletError("unavailable", "cannot reach the API server", { retryable: true });
  for (let sequence = 1; sequence <= 5; sequence += 1) {
    agent.mux.send({ kind: "statuses", sequence, items: [status("u1", `phase-${sequence}`)] });
  }
  await agent.roundTrip();
  await hub.pass(seconds(120), agent);
  assert.ok(hub.backend.attempts > 3 && hub.backend.attempts < 60, String(hub.backend.attempts));
  assert.deepEqual(agent.messages, []);
  hub.backend.outage = undefined;
  await hub.pass(seconds(60), agent);
  assert.deepEqual(await agent.next("statusesAck"), { kind: "statusesAck", sequence: 5, wantFull: [] });
  assert.deepEqual(
    node.writes.map(({ status: written }) => written),
    [{ phase: "phase-5" }],
  );
  assert.equal(hub.log.problems.filter((each) => /cannot write to the API server/.test(each)).length, 1);
});

test("a delta starts from this session's last status, else from the API server's, else the whole is asked for", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  node.statuses.set("u2", { phase: "Pending" });
  node.statuses.set("u3", { phase: "Pending" });
  const agent = await hub.join("edge-1");
  const delta = (uid: string, from: Record<string, unknown>, to: Record<string, unknown>): StatusItem => ({
    ...status(uid, ""),
    body: { kind: "delta", base: statusHash(sha256, from), delta: diffJson(from, to) },
  });
  node.watchLags = true;
  agent.mux.send({ kind: "statuses", sequence: 1, items: [status("u1", "Pending")] });
  await agent.next("statusesAck");
  agent.mux.send({
    kind: "statuses",
    sequence: 2,
    items: [delta("u1", { phase: "Pending" }, { phase: "Running", x: 1 })],
  });
  assert.deepEqual((await agent.next("statusesAck")).wantFull, []);
  node.watchLags = false;
  agent.mux.send({
    kind: "statuses",
    sequence: 3,
    items: [
      delta("u2", { phase: "Pending" }, { phase: "Running" }),
      delta("u3", { phase: "Unknown" }, { phase: "Running" }),
      { ...status("u1", ""), body: { kind: "gone", status: { phase: "Succeeded" } } },
    ],
  });
  assert.deepEqual(await agent.next("statusesAck"), { kind: "statusesAck", sequence: 3, wantFull: ["u3"] });
  assert.deepEqual(
    [...node.statuses],
    [
      ["u2", { phase: "Running" }],
      ["u3", { phase: "Pending" }],
      ["u1", undefined],
    ],
  );
  assert.deepEqual(node.writes.at(1)?.status, { phase: "Running", x: 1 });
});

test("events, the node's report and mirror pods are written and acknowledged", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  const agent = await hub.join("edge-1");
  const event = {
    id: "web.1",
    regarding: { kind: "Pod", namespace: "default", name: "web", uid: "u1", fieldPath: "spec.containers{a}" },
    type: "Warning" as const,
    reason: "BackOff",
    message: "Back-off restarting failed container",
    count: 3,
    firstAtMs: 1_767_225_600_000,
    lastAtMs: 1_767_225_660_000,
  };
  agent.mux.send({ kind: "events", sequence: 7, items: [event] });
  assert.equal((await agent.next("eventsAck")).sequence, 7);
  assert.deepEqual(node.events, [event]);

  const report = { register: true, labels: { a: "b" }, taints: [], providerID: "", status: { capacity: { cpu: "4" } } };
  const hash = statusHash(sha256, report);
  agent.mux.send({ kind: "node", hash, body: { kind: "full", report } });
  assert.deepEqual(await agent.next("nodeAck"), { kind: "nodeAck", hash, wantFull: false });
  const next = { ...report, labels: { a: "c" } };
  const nextHash = statusHash(sha256, next);
  agent.mux.send({ kind: "node", hash: nextHash, body: { kind: "delta", base: hash, delta: diffJson(report, next) } });
  assert.equal((await agent.next("nodeAck")).wantFull, false);
  assert.deepEqual(node.report, next);
  agent.mux.send({ kind: "node", hash, body: { kind: "delta", base: new Uint8Array(8), delta: {} } });
  assert.equal((await agent.next("nodeAck")).wantFull, true);

  const mirror = (name: string) => ({
    namespace: "default",
    name,
    uid: `u-${name}`,
    source: "file",
    pod: { kind: "Pod" },
  });
  agent.mux.send({ kind: "mirrors", items: [mirror("a")], last: false });
  agent.mux.send({ kind: "mirrors", items: [mirror("b")], last: true });
  await agent.roundTrip();
  assert.deepEqual(node.mirrors, [mirror("a"), mirror("b")]);
});

test("an agent is asked for its mirror pods and its report when the API server has others", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  node.mirrors = [{ namespace: "default", name: "a", uid: "u", source: "file", pod: {} }];
  const welcome = await (async () => {
    const agent = await hub.dial("edge-1");
    agent.hello({ nodeHash: new Uint8Array(8) });
    return await agent.next("welcome");
  })();
  assert.deepEqual([welcome.wantsMirrors, welcome.wantsNode], [true, true]);
});

test("the writes of the whole fleet are bounded, and all of them are made", async () => {
  await using hub = await HubTunnel.start({ maxWrites: 3 });
  const agents: TestAgent[] = [];
  for (let index = 0; index < 8; index += 1) {
    hub.backend.node(`edge-${index}`).set({});
    agents.push(await hub.join(`edge-${index}`));
  }
  const gate = Promise.withResolvers<void>();
  hub.backend.gate = gate.promise;
  for (const agent of agents) agent.mux.send({ kind: "statuses", sequence: 1, items: [status("u", "Running")] });
  for (const agent of agents) await agent.roundTrip();
  assert.equal(hub.backend.writing, 3);
  gate.resolve();
  for (const agent of agents) await agent.next("statusesAck");
  assert.equal(hub.backend.maxWriting, 3);
});

test("a node's tokens come through its tunnel, and only for its own pods", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({});
  const agent = await hub.join("edge-1");
  const params = {
    namespace: "default",
    serviceAccount: "app",
    audiences: [],
    expirationSeconds: 3600,
    podName: "web",
    podUid: "u",
  };
  const stream = await agent.mux.open("token", params, "status", never);
  assert.deepEqual(stream.reply, { token: "token of app", expirationTimestamp: "2026-01-31T12:00:00Z" });
  assert.equal(await stream.read(never), undefined);
  stream.end();
  const refused = (error: unknown, code: string) => isPicoletError(error) && error.code === code;
  const open = (changed: object) => agent.mux.open("token", { ...params, ...changed }, "status", never);
  await assert.rejects(open({ serviceAccount: "other" }), (error) => refused(error, "permission_denied"));
  await assert.rejects(open({ namespace: "../kube-system" }), (error) => refused(error, "invalid"));
  await assert.rejects(open({ expirationSeconds: 1e12 }), (error) => refused(error, "invalid"));
  await assert.rejects(agent.mux.open("exec", {}, "interactive", never), (error) => refused(error, "unimplemented"));
  assert.equal(agent.mux.closed.aborted, false);
});

test("streams are opened on the agent that stands for the node, and on no other", async () => {
  await using hub = await HubTunnel.start();
  for (const name of ["edge-1", "edge-2"]) hub.backend.node(name).set({});
  const answer = (stream: IncomingStream): void => {
    const accepted = stream.accept({ mode: "raw" });
    accepted.write(new TextEncoder().encode("hello"), never).then(
      () => accepted.end(),
      () => undefined,
    );
  };
  const agent = await hub.dial("edge-1", answer);
  agent.hello();
  await agent.next("welcome");
  assert.ok(hub.tunnels.has("edge-1"));
  const stream = await hub.tunnels.open("edge-1", "logs", {}, "logs", never);
  assert.equal(Buffer.from((await stream.read(never)) ?? []).toString(), "hello");
  await assert.rejects(hub.tunnels.open("edge-2", "logs", {}, "logs", never), (error) =>
    isPicoletError(error, "unavailable"),
  );
});

test("the fleet's nodes come and go with their sessions, and so do their backends", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  const agent = await hub.join("edge-1");
  assert.equal(node.held.current, 1);
  assert.deepEqual([...hub.tunnels.nodes.current], ["edge-1"]);
  agent.socket.close();
  await hub.released("edge-1");
  await hub.clock.advance(seconds(1));
  assert.equal(hub.tunnels.has("edge-1"), false);
  assert.deepEqual([...hub.tunnels.nodes.current], []);
  assert.equal(node.held.current, 0);
  assert.equal(hub.tunnels.sessionCount, 0);
});

test("a newer session of a node takes over from the older, which gets a refusal", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  const older = await hub.join("edge-1");
  const newer = await hub.join("edge-1");
  const refusal = await older.next("refusal");
  assert.equal(refusal.code, "superseded");
  assert.match(refusal.message, /another session of node edge-1 has begun, from 127\.0\.0\.1/);
  await older.closed;
  await newer.roundTrip();
  assert.ok(hub.tunnels.has("edge-1"));
  assert.equal(node.held.current, 1);
  newer.mux.send({ kind: "statuses", sequence: 1, items: [status("u", "Running")] });
  await newer.next("statusesAck");
});

test("the writes of an older session are over before a newer one is welcomed", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  const older = await hub.join("edge-1");
  const gate = Promise.withResolvers<void>();
  hub.backend.gate = gate.promise;
  older.mux.send({ kind: "statuses", sequence: 1, items: [status("u", "old")] });
  await older.roundTrip();
  const newer = await hub.dial("edge-1");
  newer.hello();
  await newer.roundTrip();
  assert.deepEqual(newer.messages, []);
  hub.backend.gate = undefined;
  gate.resolve();
  await newer.next("welcome");
  assert.deepEqual(node.writes, []);
});

test("two agents with one name learn of each other, and one of them keeps the node", async () => {
  await using hub = await HubTunnel.start();
  const node = hub.backend.node("edge-1");
  node.set({});
  let current = await hub.join("edge-1");
  for (let index = 0; index < 3; index += 1) current = await hub.join("edge-1");
  const second = await hub.dial("edge-1");
  second.hello();
  const refusal = await second.next("refusal");
  assert.equal(refusal.code, "superseded");
  assert.match(refusal.message, /two agents use the name edge-1: one at 127\.0\.0\.1/);
  assert.ok(refusal.retryAfterMs >= 45_000, String(refusal.retryAfterMs));
  await current.roundTrip();
  assert.ok(hub.log.problems.includes("two agents use one name"));
  assert.equal(node.events[0]?.reason, "DuplicateNodeName");
});

test("an older session that is half open does not lock its node out", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({});
  let current = await hub.join("edge-1");
  for (let index = 0; index < 3; index += 1) current = await hub.join("edge-1");
  current.socket.pause();
  const newer = await hub.dial("edge-1");
  newer.hello();
  await newer.roundTrip();
  await hub.clock.advance(seconds(6));
  await newer.next("welcome");
});

test("a silent session ends after two heartbeats and some slack", async () => {
  await using hub = await HubTunnel.start({ heartbeat: millis(20_000) });
  hub.backend.node("edge-1").set({});
  const agent = await hub.join("edge-1");
  for (let index = 0; index < 10; index += 1) {
    await hub.clock.advance(seconds(20));
    await agent.roundTrip();
  }
  await hub.clock.advance(seconds(54));
  assert.ok(hub.tunnels.has("edge-1"));
  await hub.clock.advance(seconds(3));
  assert.equal(hub.tunnels.has("edge-1"), false);
  await agent.closed;
});

test("a half-open connection is cut off at once when its time is over", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({});
  const agent = await hub.join("edge-1");
  agent.socket.pause();
  assert.equal(hub.connections, 1);
  await hub.clock.advance(seconds(80));
  assert.equal(hub.connections, 0);
  assert.equal(hub.tunnels.sessionCount, 0);
});

test("a connection that says no hello ends", async () => {
  await using hub = await HubTunnel.start();
  const agent = await hub.dial("edge-1");
  await hub.clock.advance(seconds(11));
  assert.match((await agent.next("refusal")).message, /no hello within 10 s/);
  await agent.closed;
  assert.equal(hub.tunnels.sessionCount, 0);
});

test("a drained hub tells all, spreads them, takes no new one, and cuts off who stays", async () => {
  await using hub = await HubTunnel.start();
  const agents: TestAgent[] = [];
  for (let index = 0; index < 5; index += 1) {
    hub.backend.node(`edge-${index}`).set({});
    agents.push(await hub.join(`edge-${index}`));
  }
  const draining = hub.tunnels.drain("the hub is being replaced", seconds(10), seconds(5), never);
  const delays: number[] = [];
  for (const agent of agents) delays.push((await agent.next("drain")).reconnectAfterMs);
  assert.ok(new Set(delays).size > 1 && delays.every((each) => each >= 0 && each <= 10_000));
  const late = hub.socket("edge-9");
  const [request, response] = await once(late, "unexpected-response");
  assert.equal(response.statusCode, 503);
  assert.ok(Number(response.headers["retry-after"]) > 0);
  request.destroy();
  // Until they go, all is served as before.
  agents[0]?.mux.send({ kind: "statuses", sequence: 1, items: [status("u", "Running")] });
  await agents[0]?.next("statusesAck");
  for (const agent of agents.slice(1)) agent.socket.close();
  await Promise.all(agents.slice(1).map((agent) => agent.closed));
  await hub.clock.advance(seconds(16));
  await draining;
  await agents[0]?.closed;
  assert.equal(hub.tunnels.sessionCount, 0);
});

test("an unknown version is refused with the known one", async () => {
  await using hub = await HubTunnel.start();
  const socket = hub.socket("edge-1", "picolet.tunnel.v99");
  const [request, response] = await once(socket, "unexpected-response");
  assert.equal(response.statusCode, 426);
  assert.equal(response.headers["sec-websocket-protocol"], "picolet.tunnel.v1");
  request.destroy();
  assert.equal(hub.tunnels.sessionCount, 0);
});

test("agents above the limit must come back later", async () => {
  await using hub = await HubTunnel.start({ maxGreeting: 2 });
  const first = await hub.dial("edge-1");
  await hub.dial("edge-2");
  const socket = hub.socket("edge-3");
  const [request, response] = await once(socket, "unexpected-response");
  assert.equal(response.statusCode, 503);
  request.destroy();
  hub.backend.node("edge-1").set({});
  first.hello();
  await first.next("welcome");
  const third = await hub.dial("edge-3");
  // One that leaves without a word makes room as well.
  third.socket.terminate();
  await hub.sessions(2);
  await hub.dial("edge-4");
});

test("a node's sessions that never greet are few, and take no other node's place", async () => {
  await using hub = await HubTunnel.start({ maxGreeting: 6 });
  hub.backend.node("edge-2").set({});
  const silent = [];
  for (let n = 0; n < 20; n += 1) silent.push(await hub.dial("edge-1"));
  // The oldest go, since an agent that dials again has given them up.
  for (const agent of silent.slice(0, 16)) await agent.closed;
  assert.equal(hub.tunnels.sessionCount, 4);
  await hub.join("edge-2");
  for (let n = 0; n < 10; n += 1) await hub.dial("edge-1");
  const refused = hub.socket("edge-1");
  const [request, response] = await once(refused, "unexpected-response");
  assert.equal(response.statusCode, 429);
  assert.equal(response.headers["retry-after"], "2");
  request.destroy();
  await hub.clock.advance(seconds(2));
  hub.backend.node("edge-1").set({});
  await hub.join("edge-1");
});

test("a session that has greeted is not ended for one that has not", async () => {
  await using hub = await HubTunnel.start();
  // The hub does not know the desired sets yet, so it welcomes none of them.
  const first = await hub.dial("edge-1");
  first.hello();
  await first.roundTrip();
  for (let n = 0; n < 10; n += 1) await hub.dial("edge-1");
  assert.equal(first.mux.closed.aborted, false);
  hub.backend.node("edge-1").set({});
  await first.next("welcome");
});

test("a node that floods the hub, or whose writes hang, leaves the others their slots", async () => {
  await using hub = await HubTunnel.start({ maxWrites: 4 });
  for (const name of ["edge-1", "edge-2"]) hub.backend.node(name).set({});
  const flood = await hub.join("edge-1");
  const other = await hub.join("edge-2");
  const gate = Promise.withResolvers<void>();
  hub.backend.gate = gate.promise;
  const params = { namespace: "default", serviceAccount: "app", audiences: [], expirationSeconds: 3600 };
  const wanted = Array.from({ length: 20 }, () =>
    flood.mux.open("token", { ...params, podName: "web", podUid: "u" }, "status", never).catch(() => undefined),
  );
  await flood.roundTrip();
  assert.equal(hub.backend.writing, 2);
  hub.backend.gate = undefined;
  other.mux.send({ kind: "statuses", sequence: 1, items: [status("u", "Running")] });
  await other.next("statusesAck");
  gate.resolve();
  await Promise.all(wanted);
});

test("a node's events are written at its pace, and hold up neither its statuses nor other nodes", async () => {
  await using hub = await HubTunnel.start({ maxWrites: 2 });
  for (const name of ["edge-1", "edge-2"]) hub.backend.node(name).set({});
  const flood = await hub.join("edge-1");
  const other = await hub.join("edge-2");
  const items = Array.from({ length: 64 }, (_, n) => event(`e${n}`));
  // As many as may be on their way without an acknowledgement.
  for (let sequence = 1; sequence <= 8; sequence += 1) flood.mux.send({ kind: "events", sequence, items });
  for (let sequence = 1; sequence <= 4; sequence += 1) await flood.next("eventsAck");
  flood.mux.send({ kind: "statuses", sequence: 1, items: [status("u", "Running")] });
  await flood.next("statusesAck");
  other.mux.send({ kind: "events", sequence: 1, items });
  await other.next("eventsAck");
  assert.equal(hub.backend.node("edge-1").events.length, 256);
  await hub.pass(seconds(30), flood, other);
  for (let sequence = 5; sequence <= 8; sequence += 1) await flood.next("eventsAck");
  assert.equal(hub.backend.node("edge-1").events.length, 512);
});

test("an agent that sends more messages than it may is read more slowly, and the others are not", async () => {
  await using hub = await HubTunnel.start();
  for (const name of ["edge-1", "edge-2"]) hub.backend.node(name).set({});
  const flood = await hub.join("edge-1");
  const other = await hub.join("edge-2");
  const pings = Array.from({ length: 8 }, () => flood.roundTrip());
  await Promise.all(pings);
  const status = { images: "x".repeat(400_000) };
  const report = { register: false, labels: {}, taints: [], providerID: "", status };
  for (let n = 0; n < 12; n += 1) {
    flood.mux.send({ kind: "node", hash: zero, body: { kind: "full", report } });
    await flood.mux.flushed("status", never);
  }
  let isAnswered = false;
  const answer = flood.roundTrip().then(() => {
    isAnswered = true;
  });
  while (!hub.log.problems.includes("an agent sends more than it may; it is read more slowly")) await other.roundTrip();
  await other.roundTrip();
  assert.equal(isAnswered, false);
  // Its heartbeats are late, but it lives.
  await hub.pass(seconds(20), other);
  await answer;
  assert.equal(flood.mux.closed.aborted, false);
});

test("an agent that floods the hub with small frames of streams is read more slowly, and the others are not", async () => {
  await using hub = await HubTunnel.start();
  for (const name of ["edge-1", "edge-2", "edge-3"]) hub.backend.node(name).set({});
  const other = await hub.join("edge-3");
  const frames = [
    // A stream that is over.
    { type: "end", id: 1 },
    { type: "data", id: 1, bytes: Uint8Array.of(1) },
  ] as const;
  for (const [index, frame] of frames.entries()) {
    const node = `edge-${index + 1}`;
    const flood = await hub.join(node);
    await assert.rejects(flood.mux.open("token", {}, "status", never));
    for (let n = 0; n < 7000; n += 1) flood.socket.send(encodeFrame(frame));
    const isPaused = (): boolean =>
      hub.log.entries.some(({ message, fields }) => message.endsWith("is read more slowly") && fields.node === node);
    for (let n = 0; n < 200 && !isPaused(); n += 1) await other.roundTrip();
    assert.equal(isPaused(), true, frame.type);
    assert.equal(flood.mux.closed.aborted, false);
  }
});

const zero = new Uint8Array(8);
const HOSTILE: readonly (readonly [name: string, act: (agent: TestAgent) => void, reason: RegExp])[] = [
  ["a second hello", (agent) => agent.hello(), /cannot accept hello/],
  [
    "a message of a hub's",
    (agent) => agent.mux.send({ kind: "nodeAck", hash: zero, wantFull: false }),
    /cannot accept nodeAck/,
  ],
  ["an ack of nothing", (agent) => agent.mux.send({ kind: "desiredAck", revision: 99 }), /ack of revision 99/],
  ["an inventory unasked", (agent) => agent.mux.send({ kind: "inventory", items: [], last: true }), /not asked for/],
  ["a text message", (agent) => agent.socket.send("hello"), /text message/],
  ["an unknown message", (agent) => agent.socket.send(encodeCbor([0, 200])), /kind 200 is unknown/],
  ["no CBOR", (agent) => agent.socket.send(Buffer.from("ff00ff", "hex")), /cannot decode CBOR/],
  [
    "statuses out of order",
    (agent) => {
      agent.mux.send({ kind: "statuses", sequence: 5, items: [] });
      agent.mux.send({ kind: "statuses", sequence: 5, items: [] });
    },
    /sequence 5 after 5/,
  ],
  [
    "a pod that is a path",
    (agent) => agent.mux.send({ kind: "statuses", sequence: 1, items: [{ ...status("u", "x"), name: "../../nodes" }] }),
    /no name of a Kubernetes object/,
  ],
];
for (const [name, act, reason] of HOSTILE) {
  test(`a hostile agent is refused, and the others are unharmed: ${name}`, async () => {
    await using hub = await HubTunnel.start();
    for (const each of ["edge-1", "edge-2"]) hub.backend.node(each).set({});
    const good = await hub.join("edge-2");
    const agent = await hub.join("edge-1");
    act(agent);
    const refusal = await agent.next("refusal");
    assert.equal(refusal.code, "protocol");
    assert.match(refusal.message, reason);
    assert.equal(await agent.closed, 1002);
    await good.roundTrip();
    assert.equal(hub.tunnels.has("edge-1"), false);
  });
}

test("nothing but a hello may come first", async () => {
  await using hub = await HubTunnel.start();
  const agent = await hub.dial("edge-1");
  agent.mux.send({ kind: "resync" });
  assert.match((await agent.next("refusal")).message, /cannot accept resync before the hello/);
  const early = await hub.dial("edge-1");
  early.hello();
  early.mux.send({ kind: "statuses", sequence: 1, items: [] });
  assert.match((await early.next("refusal")).message, /cannot accept statuses before the welcome/);
  const opener = await hub.dial("edge-1");
  opener.mux.open("token", {}, "status", never).catch(() => undefined);
  assert.match((await opener.next("refusal")).message, /a stream before the welcome/);
});

test("a flood of statuses without waiting for acks ends its session", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({});
  hub.backend.gate = new Promise(() => undefined);
  const agent = await hub.join("edge-1");
  for (let sequence = 1; sequence <= 9; sequence += 1) agent.mux.send({ kind: "statuses", sequence, items: [] });
  // An empty batch needs no write: only batches with content can pile up.
  for (let sequence = 10; sequence <= 30 && !agent.mux.closed.aborted; sequence += 1) {
    agent.mux.send({ kind: "statuses", sequence, items: [status(`u${sequence}`, "x")] });
  }
  assert.match((await agent.next("refusal")).message, /more than 16 messages without an ack/);
  hub.backend.gate = undefined;
});

test("a frame that is too long ends the connection before it is read", async () => {
  await using hub = await HubTunnel.start();
  const agent = await hub.dial("edge-1");
  agent.socket.send(new Uint8Array(MAX_FRAME_BYTES + 1));
  assert.equal(await agent.closed, 1009);
  assert.equal(hub.tunnels.sessionCount, 0);
});

test("an agent that never reads a stream costs the hub a window, and other agents nothing", async () => {
  await using hub = await HubTunnel.start();
  for (const each of ["edge-1", "edge-2"]) hub.backend.node(each).set({});
  const unread = await hub.dial("edge-1", (stream) => void stream.accept({}));
  unread.hello();
  await unread.next("welcome");
  const stream = await hub.tunnels.open("edge-1", "exec", {}, "interactive", never);
  const write = stream.write(new Uint8Array(10_000_000), never);
  write.catch(() => undefined);
  await unread.roundTrip();
  const good = await hub.join("edge-2");
  await good.roundTrip();
  assert.ok(unread.mux.bytesReceived < 200_000, String(unread.mux.bytesReceived));
  stream.reset({ code: "cancelled", message: "enough" });
  await assert.rejects(write);
});

test("the digest of nothing is what a new agent and an empty node agree upon", async () => {
  await using hub = await HubTunnel.start();
  hub.backend.node("edge-1").set({});
  const agent = await hub.dial("edge-1");
  agent.hello({ cursor: { epoch: new Uint8Array(), revision: 0, digest: EMPTY_DIGEST } });
  assert.equal((await agent.next("welcome")).desired, "current");
});
