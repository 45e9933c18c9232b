/** The agent's end and the hub's end of the tunnel together: real TLS, real WebSockets, a bad network between them. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { TlsDialer } from "@picolet/agent/tunnel/dialing/tls-dialer.ts";
import { Tunnel } from "@picolet/agent/tunnel/tunnel.ts";
import { NODE_REVIEWS } from "@picolet/hub/tunnel/tunnel-server.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { ReviewParams } from "@picolet/protocol/tunnel/stream.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { HubTunnel } from "../support/unit/tunnel/hub-tunnel-bench.ts";
import { type LinkBehaviour, LinkProxy } from "../support/unit/tunnel/link-proxy.ts";
import { NodeDisk, RecordedIdentity, TunnelNodePorts } from "../support/unit/tunnel/tunnel-node.ts";

const NODE = "edge-1";
/** Only a session that hangs takes so long. */
const LIMIT = seconds(30);

class Pair {
  readonly disk = new NodeDisk();
  readonly log = new RecordedLog();
  node = new TunnelNodePorts(this.disk);
  readonly hub: HubTunnel;
  readonly proxy: LinkProxy;
  tunnel: Tunnel;
  #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  private constructor(hub: HubTunnel, proxy: LinkProxy) {
    this.hub = hub;
    this.proxy = proxy;
    this.tunnel = this.#make();
    // The writer has ended by then, and its acknowledgement waits for something else that the hub has to say.
    hub.backend.onWritten = () => void setImmediate(() => this.#haveHubSpeak());
  }

  /** As it does now and then; an agent at rest pings every 30 s, which is longer than a test waits. */
  #haveHubSpeak(): void {
    const { signal } = new AbortController();
    this.hub.tunnels.open(NODE, "logs", {}, "logs", signal).catch(() => undefined);
  }

  static async start(t: TestContext, seed = 1): Promise<Pair> {
    const hub = await HubTunnel.start();
    const proxy = await LinkProxy.start(() => hub.port, seededRandom(seed));
    const pair = new Pair(hub, proxy);
    t.after(async () => {
      await pair.kill();
      await proxy[Symbol.asyncDispose]();
      await hub[Symbol.asyncDispose]();
    });
    hub.backend.node(NODE).set({});
    pair.run();
    return pair;
  }

  #make(): Tunnel {
    const { privateKey, certificate, ca } = this.hub.credentials(NODE);
    const validity = { notBeforeMs: 0, notAfterMs: Date.UTC(9999, 0) };
    const identity = new RecordedIdentity({ privateKey, certificateChain: certificate, hubCa: ca, ...validity });
    const { port } = this.proxy;
    const clock = systemClock;
    return new Tunnel(
      {
        ...{ clock, log: this.log, identity, node: this.node, handlers: {}, events: new RecordedEvents() },
        random: seededRandom(1),
        dialer: new TlsDialer({ clock, identity }),
        network: { changed: untilAborted, lost: (_address, signal) => untilAborted(signal) },
      },
      {
        nodeName: NODE,
        hubs: [{ host: "127.0.0.1", port, url: `https://127.0.0.1:${port}` }],
        heartbeatInterval: seconds(30),
        reconnectBackoff: { initial: millis(5), max: millis(50) },
      },
    );
  }

  run(): void {
    this.#running = endOfRun(this.tunnel.run(this.#stop.signal));
  }

  async kill(): Promise<void> {
    this.proxy.cut();
    this.#stop.abort();
    await this.#running;
  }

  /** A fresh agent over the same disk. */
  async restart(): Promise<void> {
    await this.kill();
    this.#stop = new AbortController();
    this.node = new TunnelNodePorts(this.disk);
    this.tunnel = this.#make();
    this.run();
  }

  get agrees(): boolean {
    const { hashes } = this.hub.backend.node(NODE).desired.current;
    const isSame = [...hashes].every(([key, hash]) => {
      const own = this.disk.objects.get(key)?.hash;
      return own !== undefined && equalBytes(own, hash);
    });
    return isSame && hashes.size === this.disk.objects.size && this.disk.statuses.size === 0;
  }

  /** Until both ends have the same and know it. */
  async settled(): Promise<void> {
    const wait = async (signal: AbortSignal): Promise<void> => {
      for await (const _ of this.disk.progress.changes(signal)) if (this.agrees) return;
    };
    try {
      await withDeadline(systemClock, LIMIT, "agree", wait, new AbortController().signal);
    } catch (error) {
      assert.fail(`${describeError(error)}: ${JSON.stringify(this.tunnel.report())} ${this.log.problems.join()}`);
    }
  }
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const untilAborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(cancelled("the wait")), { once: true }));

const pod = (name: string, version: number): Readonly<Record<string, unknown>> => ({
  metadata: { name, uid: `uid-${name}`, labels: { version: String(version) } },
  spec: { containers: [{ name: "app", image: "registry.example/app:1" }] },
});

test("what Kubernetes wants reaches the node, and what the node reports reaches Kubernetes", async (t) => {
  const pair = await Pair.start(t);
  const kubernetes = pair.hub.backend.node(NODE);
  kubernetes.set({ "Pod/default/web": pod("web", 1), "Secret/default/s": { data: { a: "eA==" } } });
  pair.node.putStatus("web", { phase: "Running" });
  pair.node.putMirrors({ namespace: "default", name: "static-edge-1", uid: "u", source: "file", pod: { spec: {} } });
  await pair.settled();
  assert.deepEqual(pair.disk.objects.get("Pod/default/web")?.object, pod("web", 1));
  assert.deepEqual(kubernetes.statuses.get("uid-web"), { phase: "Running" });
  pair.node.putStatus("web", { phase: "Failed" });
  await pair.settled();
  assert.deepEqual(kubernetes.statuses.get("uid-web"), { phase: "Failed" });
  const params = { namespace: "default", serviceAccount: "app", audiences: [], expirationSeconds: 600 };
  const never = new AbortController().signal;
  const { token } = await pair.tunnel.requestToken({ ...params, podName: "web", podUid: "uid-web" }, never);
  assert.equal(token, "token of app");
});

test("a board has clients of its port reviewed, of its own node and so often at most", async (t) => {
  const pair = await Pair.start(t);
  pair.hub.backend.node(NODE).set({ "Pod/default/web": pod("web", 1) });
  pair.node.putStatus("web", { phase: "Running" });
  await pair.settled();
  const never = new AbortController().signal;
  const review = (params: ReviewParams) => pair.tunnel.review(params, never);
  assert.deepEqual(await review({ review: "token", token: "good" }), { user: { name: "reader", groups: [] } });
  assert.deepEqual(await review({ review: "token", token: "bad" }), { user: null });
  const access = { review: "access", user: "reader", groups: [], verb: "get", subresource: "stats" } as const;
  assert.deepEqual(await review(access), { allowed: true });
  assert.deepEqual(await review({ ...access, subresource: "proxy" }), { allowed: false });
  const wrong = review({ ...access, verb: "x".repeat(65) });
  await assert.rejects(wrong, (error) => isPicoletError(error, "invalid"));
  const guesses = async (): Promise<void> => {
    for (let guess = 0; guess < 2 * NODE_REVIEWS.burst; guess += 1) await review({ review: "token", token: "guess" });
  };
  await assert.rejects(guesses(), /this node asks too often/);
});

test("a reconnect with nothing changed takes one round trip and at most 150 bytes of payload", async (t) => {
  const pair = await Pair.start(t);
  pair.hub.backend.node(NODE).set({ "Pod/default/web": pod("web", 1) });
  pair.node.putStatus("web", { phase: "Running" });
  await pair.settled();
  // The report has been acknowledged too, or it would be sent again.
  for (;;) {
    const before = payload(pair.tunnel);
    const confirmed = pair.node.objects.confirmed.length;
    pair.proxy.cut();
    const again = async (signal: AbortSignal): Promise<void> => {
      for await (const _ of pair.disk.progress.changes(signal))
        if (pair.node.objects.confirmed.length > confirmed) return;
    };
    await withDeadline(systemClock, LIMIT, "come back", again, new AbortController().signal);
    const spent = payload(pair.tunnel) - before;
    t.diagnostic(`${spent} bytes`);
    if (spent <= 150) return;
    assert.ok(confirmed < 5, `${spent} bytes`);
  }
});

const payload = (tunnel: Tunnel): number => {
  const { bytesSent = 0, bytesReceived = 0 } = tunnel.report();
  return bytesSent + bytesReceived;
};

const BAD_LINKS: Readonly<Record<string, Partial<LinkBehaviour>>> = {
  "that is cut again and again": {},
  "of 1 byte at a time": { chunkBytes: 1 },
  "of 60 ms latency": { latencyMs: 60 },
  "that turns bits over": { corruption: 0.05 },
};

for (const [name, behaviour] of Object.entries(BAD_LINKS)) {
  test(`over a link ${name} nothing is lost and nothing applied twice`, async (t) => {
    for (let seed = 1; seed <= 3; seed += 1) {
      const pair = await Pair.start(t, seed);
      const random = seededRandom(seed);
      const kubernetes = pair.hub.backend.node(NODE);
      pair.proxy.behave(behaviour);
      for (let step = 0; step < 40; step += 1) {
        const which = `pod-${Math.floor(random.next() * 6)}`;
        const kind = Math.floor(random.next() * 8);
        if (kind < 3) kubernetes.set({ [`Pod/default/${which}`]: random.next() < 0.3 ? undefined : pod(which, step) });
        else if (kind < 6) pair.node.putStatus(which, { phase: "Running", step });
        else if (kind < 7) pair.proxy.cut();
        else if (random.next() < 0.3) await pair.restart();
        // Steps fall between those of the session, not all at its beginning.
        for (let turns = random.next() * 60; turns > 0; turns -= 1) await nextTurn();
      }
      pair.proxy.heal();
      await pair.settled();
      const last = new Map<string, unknown>();
      for (const { value } of pair.disk.told) last.set(value.uid, value.status);
      for (const [uid, status] of last) assert.deepEqual(kubernetes.statuses.get(uid), status, uid);
      const revisions = pair.disk.applied.filter(({ upserts, deletes }) => upserts.length + deletes.length > 0);
      const digests = revisions.map(({ cursor }) => Buffer.from(cursor.digest).toString("hex"));
      for (const [index, each] of digests.entries()) assert.notEqual(each, digests[index + 1], "applied twice");
      assert.deepEqual(
        pair.log.entries.filter(({ level }) => level === "error"),
        [],
      );
      await pair.kill();
    }
  });
}
