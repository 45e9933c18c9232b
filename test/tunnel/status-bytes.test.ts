/** The bytes of a change of a pod's status between a real agent's end and a real hub's end, on injected time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TlsDialer } from "@picolet/agent/tunnel/dialing/tls-dialer.ts";
import { Tunnel } from "@picolet/agent/tunnel/tunnel.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { HubTunnel } from "../support/unit/tunnel/hub-tunnel-bench.ts";
import { NodeDisk, RecordedIdentity, TunnelNodePorts } from "../support/unit/tunnel/tunnel-node.ts";

const NODE = "edge-1";
const HEARTBEAT = seconds(30);
/** Frames of a container's end and of its sandbox's, which are two changes. Compressed ids differ in a byte or two. */
const MAX_TWO_CHANGES_BYTES = 71;
/** Besides: the ping and the pong that there are anyway, and the acknowledgement of both changes. */
const MAX_WITH_HEARTBEAT_BYTES = MAX_TWO_CHANGES_BYTES + 10;

class Board implements AsyncDisposable {
  readonly hub: HubTunnel;
  readonly disk = new NodeDisk();
  readonly node = new TunnelNodePorts(this.disk);
  readonly tunnel: Tunnel;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  private constructor(hub: HubTunnel) {
    this.hub = hub;
    const { privateKey, certificate, ca } = hub.credentials(NODE);
    const validity = { notBeforeMs: 0, notAfterMs: Date.UTC(9999, 0) };
    const identity = new RecordedIdentity({ privateKey, certificateChain: certificate, hubCa: ca, ...validity });
    const { clock, port } = hub;
    const untilAborted = (signal: AbortSignal): Promise<never> =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(cancelled("the wait")), { once: true }));
    this.tunnel = new Tunnel(
      {
        ...{ clock, identity, log: new RecordedLog(), node: this.node, handlers: {}, events: new RecordedEvents() },
        random: seededRandom(1),
        dialer: new TlsDialer({ clock, identity }),
        network: { changed: untilAborted, lost: (_address, signal) => untilAborted(signal) },
      },
      {
        nodeName: NODE,
        hubs: [{ host: "127.0.0.1", port, url: `https://127.0.0.1:${port}` }],
        heartbeatInterval: HEARTBEAT,
        reconnectBackoff: { initial: seconds(1), max: seconds(60) },
      },
    );
    this.#running = endOfRun(this.tunnel.run(this.#stop.signal));
  }

  /** Starts a board of a fleet, as every real hub has one. */
  static async start(): Promise<Board> {
    const hub = await HubTunnel.start({ fleet: { id: "4f1c1ea2-6e36-4f0a-8f0c-0a1b2c3d4e5f", former: [] } });
    hub.backend.node(NODE).set({});
    return new Board(hub);
  }

  /** Until the hub has written it. */
  async reports(status: Readonly<Record<string, unknown>>): Promise<void> {
    const { writes } = this.hub.backend.node(NODE);
    const before = writes.length;
    this.node.putStatus("web", status, false, "0b5a7b3e-1f52-4d0e-9d55-d8f0a3c7e111");
    while (writes.length === before) await this.hub.nextWrite();
  }

  /** Until everything that the hub has sent has come, the acknowledgement of the node's report too. */
  async settled(): Promise<void> {
    while (this.hub.backend.node(NODE).report === undefined) await this.hub.nextWrite();
    const opening = this.hub.tunnels.open(NODE, "logs", {}, "logs", this.#stop.signal);
    await assert.rejects(opening);
  }

  /** The bytes of all frames, in both directions. */
  get bytes(): number {
    const { bytesSent = 0, bytesReceived = 0 } = this.tunnel.report();
    return bytesSent + bytesReceived;
  }

  /** Until the hub has acknowledged every status. */
  async acknowledged(): Promise<void> {
    for await (const _ of this.disk.progress.changes(this.#stop.signal)) if (this.disk.statuses.size === 0) return;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await this.hub[Symbol.asyncDispose]();
  }
}

const condition = (type: string, status: string, at: string, more: object = {}): object => ({
  ...{ lastProbeTime: null, lastTransitionTime: at, observedGeneration: 1, ...more },
  ...{ status, type },
});

/** As a pod of one container that was killed comes to its end on a node with containerd. */
function podStatus(step: "running" | "killed" | "over"): Readonly<Record<string, unknown>> {
  const [startedAt, finishedAt] = ["2026-11-23T06:28:30Z", "2026-11-23T06:41:07Z"];
  const containerID = `containerd://${"5996c79586df80eabdf374138b3631bf".repeat(2)}`;
  const isRunning = step === "running";
  const end = { containerID, exitCode: 137, finishedAt, reason: "Error", startedAt };
  const ready = isRunning ? ["True", startedAt] : ["False", finishedAt, { reason: "PodFailed" }];
  const readyAs = (type: string): object => condition(type, ...(ready as [string, string, object?]));
  return {
    conditions: [
      condition(
        "PodReadyToStartContainers",
        step === "over" ? "False" : "True",
        step === "over" ? finishedAt : startedAt,
      ),
      condition("Initialized", "True", "2026-11-23T06:28:29Z"),
      readyAs("Ready"),
      readyAs("ContainersReady"),
    ],
    containerStatuses: [
      {
        containerID,
        image: "localhost/busybox:1",
        imageID: `sha256:${"49c798e7d208fcec582fc8f2cf7bda25".repeat(2)}`,
        lastState: {},
        name: "app",
        ready: isRunning,
        resources: {},
        restartCount: 0,
        started: isRunning,
        state: isRunning ? { running: { startedAt } } : { terminated: end },
      },
    ],
    hostIP: "192.0.2.2",
    hostIPs: [{ ip: "192.0.2.2" }],
    observedGeneration: 1,
    phase: isRunning ? "Running" : "Failed",
    podIP: "10.129.116.2",
    podIPs: [{ ip: "10.129.116.2" }],
    qosClass: "BestEffort",
    startTime: startedAt,
  };
}

test("a change of a pod's status takes some forty bytes of frames, and its acknowledgement goes with a pong", async (t) => {
  await using board = await Board.start();
  const { clock } = board.hub;
  await board.reports(podStatus("running"));
  await board.settled();
  // By now the hub has released the sent status and goes by the API server's.
  await clock.advance(seconds(20));
  const before = board.bytes;
  await board.reports(podStatus("killed"));
  await clock.advance(millis(100));
  await board.reports(podStatus("over"));
  const changes = board.bytes - before;
  t.diagnostic(`two changes: ${changes} bytes`);
  assert.ok(changes <= MAX_TWO_CHANGES_BYTES, `${changes} bytes`);
  assert.equal(board.disk.statuses.size, 1);
  const acknowledged = board.acknowledged();
  await clock.advance(seconds(10));
  await acknowledged;
  const all = board.bytes - before;
  t.diagnostic(`with their acknowledgement and a heartbeat: ${all} bytes`);
  assert.ok(all <= MAX_WITH_HEARTBEAT_BYTES, `${all} bytes`);
  assert.deepEqual(board.hub.backend.node(NODE).writes.length, 3);
});
