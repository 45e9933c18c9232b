/**
 * Figures of the tunnel: a real hub process with the embedded API server, a real agent, real containers. Run by itself,
 * `node test/bench/hub/tunnel-figures.ts [--quick]` prints them, with `--status-bytes` only the change of a pod's
 * status; build the programs first.
 *
 * Bytes are those of one TCP connection as the agent's kernel counts them: payload (TLS records), and 52 bytes of
 * headers for each segment in either direction, bare acknowledgements too. Ethernet's own headers are left out.
 */
import { setTimeout as delay } from "node:timers/promises";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import type { PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { allReady, containerIdOf, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd } from "../../support/containerd/containerd.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { seededRandom } from "../../support/unit/ports/seeded-random.ts";
import { LinkProxy } from "../../support/unit/tunnel/link-proxy.ts";
import { type RestingAgent, startedAtMs } from "../agent/agent-figures.ts";
import { percentile, round, writtenBytesOf } from "../measure/process-usage.ts";
import { step } from "../measure/progress.ts";
import { tcpBytesTo } from "../measure/tcp-figures.ts";
import { plainBytesOf, TlsRecords } from "../measure/tls-records.ts";
import { ApiClient, firstByte, limit } from "./api-client.ts";

export interface TunnelBenchOptions {
  readonly quick: boolean;
  readonly step: <T>(name: string, work: () => Promise<T>) => Promise<T>;
}

export interface TunnelFigures {
  /** With ten pods at rest; what was seen in whole heartbeats, extrapolated to a day. */
  readonly bytesPerDayIdle: number;
  /** One container that ends: the status on its way up and its acknowledgement. */
  readonly bytesPerStatusChange: number;
  /** Bytes of hello and welcome, with WebSocket's headers, without TLS and TCP. */
  readonly reconnectBytesUnchanged: number;
  /** Round trips of hello and welcome only. */
  readonly reconnectRoundTrips: number;
  /** From a cut connection's successor until the session is live: TCP, TLS 1.3, WebSocket, hello. */
  readonly reconnectRoundTripsInAll: number;
  /** Payload of TCP until the new session is at rest again: the handshake, and the events of the outage too. */
  readonly reconnectBytesInAll: number;
  /** The worst case: the link goes silent right after a heartbeat. */
  readonly halfOpenDetectionSeconds: number;
  /** POST to the container's start as the runtime has it, the hub's scheduler between them. */
  readonly applyToStarted: Quantiles & { readonly kubectlP50: number | null };
  /** The floor is the same command through containerd's own streaming server. */
  readonly execFirstByte: Quantiles & { readonly floorP50: number };
  readonly logThroughputMiBs: number;
}

interface Quantiles {
  readonly p50: number;
  readonly p95: number;
  readonly min: number;
  readonly max: number;
}

const NODE = "board";
const PODS_AT_REST = 10;
const DAY_SECONDS = 86_400;
/** The last event's count is written a minute after it came, and the node's report follows the images. */
const IDLE_SETTLE_MS = 90_000;
/** After a heartbeat's traffic: delayed acknowledgements are sent by then. */
const QUIET_MS = 1000;
/** Between two changes of a pod's status: each travels by itself. */
const CHANGE_PAUSE_MS = 1500;
const STATUS_CHANGES = 10;
/** One way. It is far above the machine's own delays, so that round trips can be distinguished. */
const RECONNECT_LATENCY_MS = 150;
const MIB = 1024 * 1024;
const LOG_LINE = "0123456789".repeat(10);

export async function tunnelFigures(containerd: Containerd, options: TunnelBenchOptions): Promise<TunnelFigures> {
  return { ...(await linkFigures(containerd, options)), ...(await throughTunnel(containerd, options)) };
}

/** What is timed. */
export async function throughTunnel(
  containerd: Containerd,
  { quick, step }: TunnelBenchOptions,
): Promise<TimedFigures> {
  const runs = quick ? 5 : 20;
  await using board = await JoinedBoard.start(containerd, { containerLogMaxSize: "1Gi" });
  return {
    applyToStarted: await step("apply to started", () => applyToStarted(board, runs)),
    execFirstByte: await step("exec to its first byte", () => execFirstByte(board, runs)),
    logThroughputMiBs: await step("a log through the tunnel", () => logThroughput(board, quick ? 16 : 64)),
  };
}

/** An agent that is connected to a hub and has `count` pods from it: beside `startResting`, its measure. */
export async function startRestingWithHub(containerd: Containerd, count: number): Promise<RestingAgent> {
  await using started = new AsyncDisposableStack();
  const board = started.use(await JoinedBoard.start(containerd));
  await board.createPods(count, `-of-${count}`);
  started.move();
  return board;
}

/** Bytes an hour that an agent with a hub and ten pods, at rest for a while, causes to be written to the disk. */
export async function idleWrites(containerd: Containerd, windowMs: number): Promise<number> {
  await using board = await JoinedBoard.start(containerd);
  await board.createPods(PODS_AT_REST);
  await delay(IDLE_SETTLE_MS);
  const written = writtenBytesOf(board.node.pid);
  await delay(windowMs);
  const bytesPerHour = Math.round(((writtenBytesOf(board.node.pid) - written) / windowMs) * 3_600_000);
  await board.drain();
  return bytesPerHour;
}

/** A hub, a board that has joined it, and a client of the hub's API server. */
export class JoinedBoard implements AsyncDisposable {
  readonly containerd: Containerd;
  readonly nodeName = NODE;
  readonly fleet: Fleet;
  readonly proxy: LinkProxy;
  readonly node: AgentNode;
  readonly api: ApiClient;

  private constructor(containerd: Containerd, fleet: Fleet, proxy: LinkProxy, node: AgentNode, api: ApiClient) {
    this.containerd = containerd;
    this.fleet = fleet;
    this.proxy = proxy;
    this.node = node;
    this.api = api;
  }

  /** @param through whether the connection goes through the proxy, which costs time */
  static async start(containerd: Containerd, config: Readonly<Record<string, unknown>> = {}, through = false) {
    await using started = new AsyncDisposableStack();
    const fleet = started.use(await Fleet.start());
    const proxy = started.use(await LinkProxy.start(() => fleet.tunnelPort, seededRandom(1)));
    const hub = await fleet.joinConfig(through ? proxy.port : fleet.tunnelPort);
    const node = started.use(nodeWith(containerd, { config: { nodeName: NODE, hub, ...config } }));
    const api = started.use(await ApiClient.open(fleet.ready.kubeconfig));
    await node.start();
    await node.waitForStatus("a tunnel", ({ tunnel }) => tunnel.state === "connected");
    started.move();
    return new JoinedBoard(containerd, fleet, proxy, node, api);
  }

  async createPods(count: number, suffix = ""): Promise<void> {
    for (let index = 0; index < count; index += 1) await this.api.create(boundPod(`p${index}${suffix}`));
    await this.node.waitForPods(`${count} ready pods`, allReady(count));
  }

  async drain(): Promise<void> {
    await this.api.deleteAll();
    await this.node.waitForPods("an empty node", (pods) => pods.size === 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.api[Symbol.asyncDispose]();
    await this.node[Symbol.asyncDispose]();
    await this.proxy[Symbol.asyncDispose]();
    await this.fleet[Symbol.asyncDispose]();
  }
}

const boundPod = (name: string, spec: Record<string, unknown> = {}): unknown =>
  containerPod(name, undefined, { nodeName: NODE, ...spec });

type TimedFigures = Pick<TunnelFigures, "applyToStarted" | "execFirstByte" | "logThroughputMiBs">;
export type LinkFigures = Omit<TunnelFigures, keyof TimedFigures>;

/** What is counted; most of it is waiting for heartbeats. */
export async function linkFigures(containerd: Containerd, { quick, step }: TunnelBenchOptions): Promise<LinkFigures> {
  await using board = await JoinedBoard.start(containerd, {}, true);
  await board.createPods(PODS_AT_REST);
  const bytesPerDayIdle = await step("the tunnel at rest", () => idleBytes(board, quick ? 2 : 6));
  const bytesPerStatusChange = await step("changes of a status", () => statusBytes(board));
  const reconnects = await step("reconnects", async () => [await reconnect(board), await reconnect(board)]);
  const halfOpenDetectionSeconds = await step("a half-open link", () => halfOpen(board));
  board.proxy.heal();
  await board.node.waitForStatus("the tunnel again", ({ tunnel }) => tunnel.state === "connected");
  await board.drain();
  return {
    bytesPerDayIdle,
    bytesPerStatusChange,
    reconnectBytesUnchanged: worst(reconnects.map(({ greetingBytes }) => greetingBytes)),
    reconnectRoundTrips: worst(reconnects.map(({ greetingRoundTrips }) => greetingRoundTrips)),
    reconnectRoundTripsInAll: worst(reconnects.map(({ roundTrips }) => roundTrips)),
    reconnectBytesInAll: worst(reconnects.map(({ bytes }) => bytes)),
    halfOpenDetectionSeconds,
  };
}

const worst = (values: readonly number[]): number => Math.max(...values);

/**
 * Counts the bytes from the end of one heartbeat to the end of a later one: whole heartbeats, with everything that came
 * between them. Rarer events of a day (a certificate's renewal, a report whose content has changed) are left out; they
 * come to some kilobytes.
 */
async function idleBytes({ proxy }: JoinedBoard, beats: number): Promise<number> {
  await delay(IDLE_SETTLE_MS);
  await nextTraffic(proxy);
  const before = { bytes: tcpBytesTo(proxy.port).wireBytes, atMs: performance.now() };
  for (let beat = 0; beat < beats; beat += 1) await nextTraffic(proxy);
  const bytes = tcpBytesTo(proxy.port).wireBytes - before.bytes;
  return Math.round((bytes / ((performance.now() - before.atMs) / 1000)) * DAY_SECONDS);
}

/** Resolves a moment after something has gone through the tunnel. */
async function nextTraffic(proxy: LinkProxy): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const silence = limit();
    silence.addEventListener("abort", () => reject(new Error("nothing went through the tunnel")), { once: true });
    proxy.onForwarded = () => resolve();
  });
  proxy.onForwarded = () => undefined;
  await delay(QUIET_MS);
}

/** TunnelFigures.bytesPerStatusChange by itself. */
async function bytesPerStatusChange(containerd: Containerd): Promise<number> {
  await using board = await JoinedBoard.start(containerd, {}, true);
  await board.createPods(PODS_AT_REST);
  return await statusBytes(board);
}

/** Containers that are not to be started again end one after the other: one status each, and no event. */
async function statusBytes({ api, node, proxy, containerd }: JoinedBoard): Promise<number> {
  const names = Array.from({ length: STATUS_CHANGES }, (_, index) => `ends${index}`);
  for (const name of names) await api.create(boundPod(name, { restartPolicy: "Never" }));
  const pods = await node.waitForPods("pods that will end", allReady(PODS_AT_REST + STATUS_CHANGES));
  await delay(IDLE_SETTLE_MS);
  const pids = names.map((name) => containerd.pidOf(containerIdOf(pods.get(name))));
  const isOver = new Set(names);
  const before = tcpBytesTo(proxy.port).wireBytes;
  const endAll = async (): Promise<void> => {
    for (const pid of pids) {
      process.kill(pid, "SIGKILL");
      await delay(CHANGE_PAUSE_MS);
    }
  };
  const changes = await api.countChanges(
    () => void endAll(),
    ({ metadata, status }) => {
      if ((status as { phase?: string }).phase === "Failed") isOver.delete(metadata.name);
      return isOver.size === 0;
    },
  );
  await delay(QUIET_MS);
  const bytes = tcpBytesTo(proxy.port).wireBytes - before;
  for (const name of names) await api.delete(name);
  await node.waitForPods("them gone", (left) => left.size === PODS_AT_REST);
  await delay(CHANGE_PAUSE_MS);
  return Math.round(bytes / changes);
}

interface Reconnect {
  readonly greetingBytes: number;
  readonly greetingRoundTrips: number;
  readonly roundTrips: number;
  readonly bytes: number;
}

/** The link is cut, nothing has changed, and the agent comes back over a link whose latency sets round trips apart. */
async function reconnect({ node, proxy }: JoinedBoard): Promise<Reconnect> {
  proxy.behave({ latencyMs: RECONNECT_LATENCY_MS });
  const cutAt = Date.now();
  let last = { connection: 0, bytes: 0, records: new TlsRecords() };
  proxy.onForwarded = ({ connection, direction, bytes }) => {
    if (connection !== last.connection) last = { connection, bytes: 0, records: new TlsRecords() };
    last.bytes += bytes.length;
    last.records.push(direction, bytes, performance.now());
  };
  proxy.cut();
  const { tunnel } = await node.waitForStatus("a new session", ({ tunnel: { state, since } }) => {
    return state === "connected" && since !== null && Date.parse(since) > cutAt;
  });
  // The reports about the outage come after it.
  await delay(QUIET_MS + 4 * RECONNECT_LATENCY_MS);
  proxy.onForwarded = () => undefined;
  proxy.heal();
  const liveAtMs = Date.parse(tunnel.since ?? "") - performance.timeOrigin;
  const trips = last.records.roundTrips(RECONNECT_LATENCY_MS).filter(([first]) => (first?.atMs ?? 0) < liveAtMs);
  const greeting = trips.slice(TRIPS_BEFORE_GREETING);
  return {
    greetingBytes: plainBytesOf(greeting.flat()),
    greetingRoundTrips: greeting.length,
    roundTrips: TCP_ROUND_TRIPS + trips.length,
    bytes: last.bytes,
  };
}

/** The proxy takes a connection before it has one itself: TCP's own round trip is not seen in it. */
const TCP_ROUND_TRIPS = 1;
/** TLS 1.3's handshake and WebSocket's: RFC 8446, section 2; RFC 6455, section 4. */
const TRIPS_BEFORE_GREETING = 2;

async function halfOpen({ node, proxy }: JoinedBoard): Promise<number> {
  await nextTraffic(proxy);
  const silentAt = performance.now();
  proxy.behave({ silent: true });
  await node.waitForStatus("the link's loss", ({ tunnel }) => tunnel.state !== "connected");
  return round((performance.now() - silentAt) / 1000);
}

const quantiles = (samples: readonly number[]): Quantiles => ({
  p50: round(percentile(samples, 0.5)),
  p95: round(percentile(samples, 0.95)),
  ...{ min: round(percentile(samples, 0)), max: round(percentile(samples, 1)) },
});

async function applyToStarted(board: JoinedBoard, runs: number): Promise<TunnelFigures["applyToStarted"]> {
  const { api, fleet } = board;
  const pod = containerPod("p");
  const posted = await startsAfter(board, runs, () => api.create(pod));
  const isWithoutKubectl = kubectlMissing("1.32") !== false;
  const applied = isWithoutKubectl ? [] : await startsAfter(board, runs, () => fleet.apply(pod));
  return { ...quantiles(posted), kubectlP50: isWithoutKubectl ? null : quantiles(applied).p50 };
}

/** Seconds from the beginning of `apply` to the start of the pod's container. */
async function startsAfter(
  { node, api, containerd }: JoinedBoard,
  runs: number,
  apply: () => Promise<unknown>,
): Promise<number[]> {
  const samples: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const appliedAt = Date.now();
    const applying = apply();
    const pods = await node.waitForPods("a ready pod", allReady(1));
    await applying;
    samples.push(((await startedAtMs(containerd, containerIdOf(pods.get("p")))) - appliedAt) / 1000);
    await api.delete("p");
    await node.waitForPods("an empty node", (left) => left.size === 0);
    await api.untilGone("p");
  }
  return samples;
}

async function execFirstByte(board: JoinedBoard, runs: number): Promise<TunnelFigures["execFirstByte"]> {
  const { api, node, containerd } = board;
  const command = ["echo", "hello"];
  await api.create(containerPod("exec"));
  const pods = await node.waitForPods("a ready pod", allReady(1));
  const containerId = containerIdOf(pods.get("exec"));
  using runtime = new GrpcClient({ clock: systemClock }, { path: containerd.socketPath });
  const byHand = async (): Promise<number> => {
    const startedAt = performance.now();
    const request = { containerId, cmd: command, tty: false, stdin: false, stdout: true, stderr: false };
    const { url } = await runtime.unary(RuntimeService.exec, request, EXEC_LIMIT_MS, limit());
    const asked = (performance.now() - startedAt) / 1000;
    return asked + (await firstByte(url, {}));
  };
  const samples: number[] = [];
  const floor: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    samples.push(await api.execFirstByte("exec", command));
    floor.push(await byHand());
  }
  await board.drain();
  return { ...quantiles(samples), floorP50: quantiles(floor).p50 };
}

const EXEC_LIMIT_MS = 60_000;

/** MiB a second of a log that is all there, read through the API server. */
async function logThroughput(board: JoinedBoard, mebibytes: number): Promise<number> {
  const { api, node } = board;
  const lines = Math.ceil((mebibytes * MIB) / (LOG_LINE.length + 1));
  const script = `yes ${LOG_LINE} | head -n ${lines}`;
  await api.create(containerPod("log", script, { restartPolicy: "Never" }));
  const hasEnded = (pods: PodsByName): boolean => pods.get("log")?.status?.phase === "Succeeded";
  await node.waitForPods("the whole log", hasEnded);
  const { bytes, seconds } = await api.readLog("log");
  if (bytes !== lines * (LOG_LINE.length + 1)) throw new Error(`the log has ${bytes} bytes`);
  await board.drain();
  return round(bytes / MIB / seconds);
}

if (import.meta.main) {
  await using containerd = await Containerd.start();
  if (process.argv.includes("--status-bytes")) console.log(await bytesPerStatusChange(containerd));
  else {
    const figures = await tunnelFigures(containerd, { quick: process.argv.includes("--quick"), step });
    console.log(JSON.stringify(figures, undefined, 2));
  }
}
