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
import { MEBIBYTE } from "@picolet/protocol/units.ts";
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
import { ApiClient, firstByte, limit } from "../measure/api-client.ts";
import {
  mapValues,
  percentile,
  type Quantiles,
  quantilesOf,
  round,
  type Spread,
  type Spreads,
  spreadOf,
  writtenBytesOf,
} from "../measure/process-usage.ts";
import { step } from "../measure/progress.ts";
import { tcpBytesTo } from "../measure/tcp-figures.ts";
import { plainBytesOf, TlsRecords } from "../measure/tls-records.ts";

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
  readonly applyToStarted: Quantiles & { readonly kubectlP50: number | null; readonly kubectlSpread?: Spread };
  /** The floor is the same command through containerd's own streaming server. */
  readonly execFirstByte: Quantiles & { readonly floorP50: number; readonly floorSpread: Spread };
  readonly logThroughputMiBs: number;
  /** Spreads of the figures that have none of their own. */
  readonly spread: Spreads;
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
/** On a machine that does nothing else each beat takes the same. */
const IDLE_BEATS = 3;
const RECONNECTS = 2;
const HALF_OPENS = 2;
const LOG_READS = 3;
/** One way. It is far above the machine's own delays, so that round trips can be distinguished. */
const RECONNECT_LATENCY_MS = 150;
const LOG_LINE = "0123456789".repeat(10);

/** What is timed. */
export async function throughTunnel(containerd: Containerd, quick: boolean): Promise<TimedFigures> {
  const runs = quick ? 5 : 20;
  await using board = await JoinedBoard.start(containerd, { containerLogMaxSize: "1Gi" });
  const started = await step("apply to started", () => applyToStarted(board, runs));
  const firstByte = await step("exec to its first byte", () => execFirstByte(board, runs));
  const log = await step("a log through the tunnel", () => logThroughput(board, quick ? 16 : 32));
  return {
    applyToStarted: started,
    execFirstByte: firstByte,
    logThroughputMiBs: round(percentile(log, 0.5)),
    spread: { logThroughputMiBs: spreadOf(log) },
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

type TimedFigures = Pick<TunnelFigures, "applyToStarted" | "execFirstByte" | "logThroughputMiBs" | "spread">;
export type LinkFigures = Omit<TunnelFigures, Exclude<keyof TimedFigures, "spread">>;

/**
 * Boards whose links are counted, in front of a containerd of their own; most of it is waiting for heartbeats. What
 * happens on one would be seen in the bytes of another, so that each has its own.
 */
export class LinkBoards implements AsyncDisposable {
  /** With ten pods at rest. */
  readonly #idle: JoinedBoard;
  /** With ten pods, and others that end. */
  readonly #changing: JoinedBoard;
  /** Without a pod. */
  readonly #empty: JoinedBoard;
  readonly #ending: Ending;
  readonly #started: AsyncDisposableStack;

  private constructor(
    boards: Readonly<Record<"idle" | "changing" | "empty", JoinedBoard>>,
    ending: Ending,
    started: AsyncDisposableStack,
  ) {
    this.#idle = boards.idle;
    this.#changing = boards.changing;
    this.#empty = boards.empty;
    this.#ending = ending;
    this.#started = started;
  }

  static async start(): Promise<LinkBoards> {
    await using started = new AsyncDisposableStack();
    const containerd = started.use(await Containerd.start());
    const board = async (): Promise<JoinedBoard> => started.use(await JoinedBoard.start(containerd, {}, true));
    const boards = { idle: await board(), changing: await board(), empty: await board() };
    await boards.idle.createPods(PODS_AT_REST, "-at-rest");
    await boards.changing.createPods(PODS_AT_REST);
    const ending = await podsThatEnd(boards.changing);
    return new LinkBoards(boards, ending, started.move());
  }

  /** @param quietMs for so long nothing happens but to the board without pods: others rest on the same machine */
  async rest({ quick, quietMs }: { readonly quick: boolean; readonly quietMs: number }): Promise<LinkFigures> {
    const [idle, { status, reconnects }, detections] = await Promise.all([
      step("the tunnel at rest", () => idleBytes(this.#idle, quick ? 2 : IDLE_BEATS)),
      this.#changes(quietMs),
      step("half-open links", () => repeated(quick ? 1 : HALF_OPENS, () => halfOpen(this.#empty))),
    ]);
    const samplesOf = (name: keyof Reconnect): number[] => reconnects.map((each) => each[name]);
    const worst = {
      reconnectBytesUnchanged: samplesOf("greetingBytes"),
      reconnectRoundTrips: samplesOf("greetingRoundTrips"),
      reconnectRoundTripsInAll: samplesOf("roundTrips"),
      reconnectBytesInAll: samplesOf("bytes"),
      halfOpenDetectionSeconds: detections,
    };
    return {
      ...{ bytesPerDayIdle: idle.figure, bytesPerStatusChange: status.figure },
      ...mapValues(worst, (samples) => Math.max(...samples)),
      spread: mapValues({ bytesPerDayIdle: idle.samples, bytesPerStatusChange: status.samples, ...worst }, spreadOf),
    };
  }

  /** After the reconnects the agent's session is a new one: what a status adds to one that has been sent comes first. */
  async #changes(quietMs: number): Promise<{ readonly status: Counted; readonly reconnects: readonly Reconnect[] }> {
    await delay(Math.max(IDLE_SETTLE_MS, quietMs));
    const status = await step("changes of a status", () => this.statusBytes());
    const reconnects = await step("reconnects", () => repeated(RECONNECTS, () => reconnect(this.#changing)));
    return { status, reconnects };
  }

  /** Once, when the starts of the pods have been reported. */
  statusBytes(): Promise<Counted> {
    return statusBytes(this.#changing, this.#ending);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#started.defer(async () => {
      await Promise.all([this.#idle.drain(), this.#changing.drain()]);
    });
    await this.#started.disposeAsync();
  }
}

async function repeated<T>(times: number, work: () => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let time = 0; time < times; time += 1) results.push(await work());
  return results;
}

/** Bytes of several times, and of all of them together. */
interface Counted {
  readonly figure: number;
  readonly samples: readonly number[];
}

/**
 * Counts the bytes from the end of one heartbeat to the end of a later one: whole heartbeats, with everything that came
 * between them. Rarer events of a day (a certificate's renewal, a report whose content has changed) are left out; they
 * come to some kilobytes.
 */
async function idleBytes({ proxy }: JoinedBoard, beats: number): Promise<Counted> {
  await delay(IDLE_SETTLE_MS);
  await nextTraffic(proxy);
  const now = () => ({ bytes: tcpBytesTo(proxy.port).wireBytes, atMs: performance.now() });
  const perDay = (from: ReturnType<typeof now>, to: ReturnType<typeof now>): number =>
    Math.round(((to.bytes - from.bytes) / ((to.atMs - from.atMs) / 1000)) * DAY_SECONDS);
  const first = now();
  const samples: number[] = [];
  let last = first;
  for (let beat = 0; beat < beats; beat += 1) {
    await nextTraffic(proxy);
    const next = now();
    samples.push(perDay(last, next));
    last = next;
  }
  return { figure: perDay(first, last), samples };
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

/** Processes of pods that are not started again, by the pod's name. */
type Ending = ReadonlyMap<string, number>;

async function podsThatEnd({ api, node, containerd }: JoinedBoard): Promise<Ending> {
  const names = Array.from({ length: STATUS_CHANGES }, (_, index) => `ends${index}`);
  for (const name of names) await api.create(boundPod(name, { restartPolicy: "Never" }));
  const pods = await node.waitForPods("pods that will end", allReady(PODS_AT_REST + STATUS_CHANGES));
  return new Map(names.map((name) => [name, containerd.pidOf(containerIdOf(pods.get(name)))]));
}

/** They end one after the other: one status each, and no event. A sample is what one end has caused by the next. */
async function statusBytes({ api, node, proxy }: JoinedBoard, ending: Ending): Promise<Counted> {
  const isOver = new Set(ending.keys());
  const marks = [tcpBytesTo(proxy.port).wireBytes];
  const endAll = async (): Promise<void> => {
    for (const pid of ending.values()) {
      process.kill(pid, "SIGKILL");
      await delay(CHANGE_PAUSE_MS);
      marks.push(tcpBytesTo(proxy.port).wireBytes);
    }
  };
  const ended = Promise.withResolvers<void>();
  const counting = api.countChanges(
    () => void endAll().then(ended.resolve, ended.reject),
    ({ metadata, status }) => {
      if ((status as { phase?: string }).phase === "Failed") isOver.delete(metadata.name);
      return isOver.size === 0;
    },
  );
  const [changes] = await Promise.all([counting, ended.promise]);
  await delay(QUIET_MS);
  const [first = 0] = marks;
  const bytes = tcpBytesTo(proxy.port).wireBytes - first;
  for (const name of ending.keys()) await api.delete(name);
  await node.waitForPods("them gone", (left) => left.size === PODS_AT_REST);
  await delay(CHANGE_PAUSE_MS);
  // One end may be several changes.
  const share = ending.size / changes;
  const samples = marks.slice(1).map((mark, index) => (mark - (marks[index] ?? 0)) * share);
  return { figure: Math.round(bytes / changes), samples };
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

/** Seconds from a link's silence until its loss is seen; then it is mended. */
async function halfOpen({ node, proxy }: JoinedBoard): Promise<number> {
  await nextTraffic(proxy);
  const silentAt = performance.now();
  proxy.behave({ silent: true });
  await node.waitForStatus("the link's loss", ({ tunnel }) => tunnel.state !== "connected");
  const seconds = round((performance.now() - silentAt) / 1000);
  proxy.heal();
  await node.waitForStatus("the tunnel again", ({ tunnel }) => tunnel.state === "connected");
  return seconds;
}

async function applyToStarted(board: JoinedBoard, runs: number): Promise<TunnelFigures["applyToStarted"]> {
  const { api, fleet } = board;
  const pod = containerPod("p");
  const posted = await startsAfter(board, runs, () => api.create(pod));
  const isWithoutKubectl = kubectlMissing("1.32") !== false;
  if (isWithoutKubectl) return { ...quantilesOf(posted), kubectlP50: null };
  const applied = await startsAfter(board, Math.ceil(runs / 2), () => fleet.apply(pod));
  return { ...quantilesOf(posted), kubectlP50: quantilesOf(applied).p50, kubectlSpread: spreadOf(applied) };
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
    const [, pods] = await Promise.all([apply(), node.waitForPods("a ready pod", allReady(1))]);
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
  return { ...quantilesOf(samples), floorP50: quantilesOf(floor).p50, floorSpread: spreadOf(floor) };
}

const EXEC_LIMIT_MS = 60_000;

/** MiB a second of a log that is all there, read through the API server. */
async function logThroughput(board: JoinedBoard, mebibytes: number): Promise<number[]> {
  const { api, node } = board;
  const lines = Math.ceil((mebibytes * MEBIBYTE) / (LOG_LINE.length + 1));
  const script = `yes ${LOG_LINE} | head -n ${lines}`;
  await api.create(containerPod("log", script, { restartPolicy: "Never" }));
  const hasEnded = (pods: PodsByName): boolean => pods.get("log")?.status?.phase === "Succeeded";
  await node.waitForPods("the whole log", hasEnded);
  const samples = await repeated(LOG_READS, async () => {
    const { bytes, seconds } = await api.readLog("log");
    if (bytes !== lines * (LOG_LINE.length + 1)) throw new Error(`the log has ${bytes} bytes`);
    return bytes / MEBIBYTE / seconds;
  });
  await board.drain();
  return samples;
}

if (import.meta.main) {
  await using containerd = await Containerd.start();
  const quick = process.argv.includes("--quick");
  await using boards = await LinkBoards.start();
  if (process.argv.includes("--status-bytes")) {
    await delay(IDLE_SETTLE_MS);
    console.log((await boards.statusBytes()).figure);
  } else {
    const link = await boards.rest({ quick, quietMs: 0 });
    console.log(JSON.stringify({ ...link, ...(await throughTunnel(containerd, quick)) }, undefined, 2));
  }
}
