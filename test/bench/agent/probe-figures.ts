/**
 * The cost of probes in the agent: real targets on loopback in this process, and only the prober, with the agent's
 * flags, in another. CPU in percent of one core, memory in KiB, times in milliseconds.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, createServer, type Server } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { cpuSecondsOf, memoryOf, percentile, round } from "../measure/process-usage.ts";
import { forkWithAgentFlags } from "./agent-fork.ts";

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
}

export interface ProbeFigures {
  readonly pods: number;
  readonly probes: number;
  readonly periodSeconds: number;
  readonly http: MixFigures & { readonly p99LateMs: number; readonly maxLateMs: number; readonly runs: number };
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

export async function probeFigures(windowMs: number): Promise<ProbeFigures> {
  const arrivals = new Map<string, number[]>();
  const http = await listening(httpTarget(arrivals));
  const grpc = await listening(grpcTarget());
  const ports = { httpPort: portOf(http), grpcPort: portOf(grpc) };
  const probes = PODS * PROBES_PER_POD;
  try {
    const httpOnly = await measure({ mix: "http", pods: PODS, ...ports }, windowMs);
    const late = [...arrivals.values()].flatMap(latenessOf);
    return {
      ...{ pods: PODS, probes, periodSeconds: PERIOD_SECONDS },
      http: {
        ...httpOnly,
        p99LateMs: round(percentile(late, 0.99)),
        maxLateMs: round(percentile(late, 1)),
        runs: late.length,
      },
      mixed: await measure({ mix: "mixed", pods: PODS, ...ports }, windowMs),
      exec: await measure({ mix: "exec", pods: PODS, ...ports }, windowMs),
    };
  } finally {
    http.close();
    grpc.close();
  }
}

async function measure(order: ProbeOrder, windowMs: number): Promise<MixFigures> {
  const child = forkWithAgentFlags(new URL("probes-main.ts", import.meta.url));
  try {
    const pid = child.pid ?? 0;
    child.send(order);
    // The pods are there in any case; a probe's share is what comes on top.
    const before = await heapOf(child);
    const anonBefore = memoryOf(pid).anonMiB;
    child.send("begin");
    await delay(SETTLE_MS);
    const cpu = cpuSecondsOf(pid);
    await delay(windowMs);
    const cpuPercent = round(((cpuSecondsOf(pid) - cpu) / windowMs) * 100_000);
    const after = await heapOf(child);
    const probes = order.pods * PROBES_PER_POD;
    return {
      cpuPercent,
      heapKiBPerProbe: round((after - before) / 1024 / probes),
      anonKiBPerProbe: round(((memoryOf(pid).anonMiB - anonBefore) * 1024) / probes),
    };
  } finally {
    child.kill();
    await once(child, "exit");
  }
}

async function heapOf(child: ChildProcess): Promise<number> {
  child.send("heap");
  const [answer] = (await once(child, "message")) as [HeapAnswer];
  return answer.heapUsed;
}

/** As little of a server as there can be; what takes connections takes the tcpSocket probes too. */
function httpTarget(arrivals: Map<string, number[]>): Server {
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

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const quick = process.argv.includes("--quick");
  console.log(JSON.stringify(await probeFigures(quick ? 20_000 : 60_000), undefined, 2));
}
