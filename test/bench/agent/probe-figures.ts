/**
 * The cost of probes in the agent: real targets on loopback in this process, and only the prober, with the agent's
 * flags, in another. CPU in percent of one core, memory in KiB, times in milliseconds.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, createServer, type Server } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { cpuPercentOf, memoryOf, percentile, round, type Spread, spreadOf } from "../measure/process-usage.ts";
import { forkWithAgentFlags, messageOf } from "./agent-fork.ts";

export type ProbeMix = "http" | "mixed" | "exec";

/** To the prober's process. */
export interface ProbeOrder {
  readonly mix: ProbeMix;
  readonly pods: number;
  readonly httpPort: number;
  readonly grpcPort: number;
}

/** From it: bytes of its heap after a collection, when all wait. */
export interface HeapAnswer {
  readonly heapUsed: number;
}

interface MixFigures {
  readonly cpuPercent: number;
  /** JavaScript heap after a collection, without the pod itself. */
  readonly heapKiBPerProbe: number;
  /** Anonymous memory, with the code and what the allocator keeps. */
  readonly anonKiBPerProbe: number;
  /** Over the parts of the window. */
  readonly spread: Readonly<Record<"cpuPercent", Spread>>;
}

export interface ProbeFigures {
  readonly pods: number;
  readonly probes: number;
  readonly periodSeconds: number;
  readonly http: MixFigures & {
    readonly p99LateMs: number;
    readonly maxLateMs: number;
    readonly runs: number;
    readonly spread: MixFigures["spread"] & { readonly lateMs: Spread };
  };
  /** A third each of httpGet, tcpSocket and grpc. */
  readonly mixed: MixFigures;
  /** Commands that a runtime in memory answers at once: schedule, thresholds, metrics. */
  readonly exec: MixFigures;
}

const PODS = 100;
const PROBES_PER_POD = 3;
const PERIOD_SECONDS = 10;
/** Every probe has run once, so that what it needs is loaded. */
const SETTLE_MS = 12_000;

/** Milliseconds at which requests of each probe came, by path. */
type Arrivals = Map<string, number[]>;
type Ports = Pick<ProbeOrder, "httpPort" | "grpcPort">;

/** Targets in this process, and a process for each mix that is measured. */
export class ProbeBench implements AsyncDisposable {
  readonly #arrivals: Arrivals;
  readonly #ports: Ports;
  readonly #started: AsyncDisposableStack;

  private constructor(arrivals: Arrivals, ports: Ports, started: AsyncDisposableStack) {
    this.#arrivals = arrivals;
    this.#ports = ports;
    this.#started = started;
  }

  static async start(): Promise<ProbeBench> {
    await using started = new AsyncDisposableStack();
    const arrivals: Arrivals = new Map();
    const listen = async (server: Server): Promise<number> =>
      portOf(started.adopt(await listening(server), (each) => void each.close()));
    const ports = { httpPort: await listen(httpTarget(arrivals)), grpcPort: await listen(grpcTarget()) };
    return new ProbeBench(arrivals, ports, started.move());
  }

  /** What is CPU time and memory of a process alone: another may do so beside it. */
  async measure(mix: ProbeMix, windowMs: number): Promise<MixFigures> {
    await using prober = Prober.start({ mix, pods: PODS, ...this.#ports });
    return await prober.measure(windowMs);
  }

  /** How late requests arrive, too. */
  async measureHttp(windowMs: number): Promise<ProbeFigures["http"]> {
    this.#arrivals.clear();
    const figures = await this.measure("http", windowMs);
    const late = [...this.#arrivals.values()].flatMap(latenessOf);
    return {
      ...figures,
      p99LateMs: round(percentile(late, 0.99)),
      maxLateMs: round(percentile(late, 1)),
      runs: late.length,
      spread: { ...figures.spread, lateMs: spreadOf(late) },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started.disposeAsync();
  }
}

export const PROBES = { pods: PODS, probes: PODS * PROBES_PER_POD, periodSeconds: PERIOD_SECONDS };

class Prober implements AsyncDisposable {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static start(order: ProbeOrder): Prober {
    const prober = new Prober(forkWithAgentFlags(new URL("probes-main.ts", import.meta.url)));
    prober.#child.send(order);
    return prober;
  }

  async measure(windowMs: number): Promise<MixFigures> {
    const pid = this.#child.pid ?? 0;
    // The pods are there in any case; a probe's share is what comes on top.
    const before = await this.#heap();
    const anonBefore = memoryOf(pid).anonMiB;
    this.#child.send("begin");
    await delay(SETTLE_MS);
    const { cpuPercent, spread } = await cpuPercentOf(pid, windowMs);
    const after = await this.#heap();
    return {
      cpuPercent,
      heapKiBPerProbe: round((after - before) / 1024 / PROBES.probes),
      anonKiBPerProbe: round(((memoryOf(pid).anonMiB - anonBefore) * 1024) / PROBES.probes),
      spread: { cpuPercent: spread },
    };
  }

  async #heap(): Promise<number> {
    this.#child.send("heap");
    return (await messageOf<HeapAnswer>(this.#child)).heapUsed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill();
    await ended;
  }
}

/** As little of a server as there can be; what takes connections takes the tcpSocket probes too. */
function httpTarget(arrivals: Arrivals): Server {
  const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
  return createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", (request) => {
      const [, target = ""] = request.toString("latin1").split(" ", 2);
      const times = arrivals.get(target) ?? [];
      times.push(performance.now());
      arrivals.set(target, times);
      socket.end(answer);
    });
  });
}

function grpcTarget(): Server {
  const server = createHttp2Server();
  server.on("session", (session) => session.on("error", () => undefined));
  server.on("stream", (stream) => {
    stream.on("error", () => undefined).resume();
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.end(Buffer.from([0, 0, 0, 0, 2, 8, 1]));
  });
  return server;
}

async function listening(server: Server): Promise<Server> {
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  return server;
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

/**
 * How much later each request of one probe came than its beat, as the earliest of them shows the beat. The first of all
 * is before the beat.
 */
function latenessOf([_, ...times]: readonly number[]): number[] {
  const offsets = times.map((time, beat) => time - beat * PERIOD_SECONDS * 1000);
  const earliest = Math.min(...offsets);
  return offsets.map((offset) => offset - earliest);
}

if (import.meta.main) {
  const windowMs = process.argv.includes("--quick") ? 20_000 : 60_000;
  await using bench = await ProbeBench.start();
  const http = await bench.measureHttp(windowMs);
  const [mixed, exec] = await Promise.all([bench.measure("mixed", windowMs), bench.measure("exec", windowMs)]);
  console.log(JSON.stringify({ ...PROBES, http, mixed, exec }, undefined, 2));
}
