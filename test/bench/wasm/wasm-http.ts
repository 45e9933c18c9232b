/**
 * Requests of a component that says two words, beside a plain `node:http` server that says the same and jco's own
 * server of the same component (preview2-shim): how many in a second, by one client, the load that the client is
 * included, and what each takes of CPU, which says the same on a machine that does something else besides. They are
 * asked in turns, each warmed up by the first.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { fixedPorts } from "../../support/unit/machine/fixed-port.ts";
import { testComponent } from "../../support/wasm/components.ts";
import { WasmPod, type WasmRuntime } from "../../support/wasm/wasm-runtime.ts";
import {
  cpuNanosOf,
  mapValues,
  memoryOf,
  percentile,
  round,
  type Spreads,
  spreadOf,
} from "../measure/process-usage.ts";
import { httpLoad } from "./http-load.ts";

export interface WasmHttpFigures {
  readonly httpRequestsPerSecond: number;
  /** Requests per second divided by those of a plain `node:http` server in the same turns. */
  readonly httpRatioToPlainNode: number;
  /** User and system time of the component's runner for one request, microseconds. */
  readonly httpCpuMicros: number;
  readonly httpPlainNodeCpuMicros: number;
  /** The CPU time of the plain server, divided by the runner's in the same turn. */
  readonly httpCpuRatioToPlainNode: number;
  readonly httpAnonMiB: number;
  readonly httpShimRatioToPlainNode: number;
  readonly spread: Spreads;
}

const IMAGE = "localhost/http-server:1";
const JCO = "node_modules/@bytecodealliance/jco/dist/jco.js";
/** Short and many: what else the machine does is in both of a turn, or in few turns. */
const ROUNDS = 25;
const REQUESTS = 8000;
/** V8 has optimised what it ever will. */
const WARM_UP_REQUESTS = 40_000;
const SHIM_ROUNDS = 5;
const SHIM_REQUESTS = 2000;
const CONNECTIONS = 16;
const PLAIN = `require("node:http").createServer((request, response) => {
  response.writeHead(200, { "content-type": "text/plain", "content-length": "11" });
  response.end("hello world");
}).listen(Number(process.argv[1]), () => console.log("listening"));`;

export async function httpFigures(runtime: WasmRuntime, adapter: WasmAdapter): Promise<WasmHttpFigures> {
  const component = await testComponent("http-server.c");
  await adapter.images.import(component, IMAGE, new AbortController().signal);
  const first = await fixedPorts(3);
  const [plainPort, port, shimPort] = [first, first + 1, first + 2];
  const options = { name: "http", image: IMAGE, container: { ports: [{ containerPort: port }] } };
  await using pod = await WasmPod.create(runtime, adapter, options);
  const { id } = await pod.start();
  using plain = await listeningChild(["-e", PLAIN, String(plainPort)]);
  using shim = await listeningChild([JCO, "serve", component, "--port", String(shimPort)]);
  const pid = runtime.runner(id)?.pid;
  if (pid === undefined) throw new Error("the component is not running");
  const [ours, node] = [
    { port, pid },
    { port: plainPort, pid: plain.pid },
  ];
  for (const each of [ours, node]) await served(each, WARM_UP_REQUESTS);
  const turns: { readonly node: Served; readonly ours: Served }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    // Who is first has it no better.
    const first = round % 2 === 0 ? await served(node, REQUESTS) : undefined;
    const own = await served(ours, REQUESTS);
    turns.push({ node: first ?? (await served(node, REQUESTS)), ours: own });
  }
  const shims: number[] = [];
  for (let round = 0; round < SHIM_ROUNDS; round += 1) {
    const theirs = await served({ port: shimPort, pid: shim.pid }, SHIM_REQUESTS);
    shims.push(theirs.rate / (await served(node, REQUESTS)).rate);
  }
  const samples = {
    httpRequestsPerSecond: turns.map((each) => Math.round(each.ours.rate)),
    httpRatioToPlainNode: turns.map((each) => each.ours.rate / each.node.rate),
    httpCpuMicros: turns.map((each) => each.ours.cpuMicros),
    httpPlainNodeCpuMicros: turns.map((each) => each.node.cpuMicros),
    httpCpuRatioToPlainNode: turns.map((each) => each.node.cpuMicros / each.ours.cpuMicros),
    httpShimRatioToPlainNode: shims,
  };
  return {
    ...mapValues(samples, (values) => round(percentile(values, 0.5))),
    httpAnonMiB: memoryOf(pid).anonMiB,
    spread: mapValues(samples, spreadOf),
  };
}

interface Server {
  readonly port: number;
  readonly pid: number;
}

interface Served {
  /** Requests a second. */
  readonly rate: number;
  /** CPU time of one request. */
  readonly cpuMicros: number;
}

async function served({ port, pid }: Server, requests: number): Promise<Served> {
  const before = cpuNanosOf(pid);
  const rate = await httpLoad({ port, path: "/hello", connections: CONNECTIONS, requests });
  return { rate, cpuMicros: (cpuNanosOf(pid) - before) / 1000 / requests };
}

/** It says that it listens; its end is the end of all that it started. */
async function listeningChild(args: readonly string[]): Promise<Disposable & { readonly pid: number }> {
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"], detached: true });
  if (child.stdout === null || child.stderr === null || child.pid === undefined)
    throw new Error(`cannot start ${args[0]}`);
  const group = -child.pid;
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`${args[0]} has ended with ${code}`);
  });
  ended.catch(() => undefined);
  await Promise.race([once(child.stdout, "data"), once(child.stderr, "data"), ended]);
  return { pid: child.pid, [Symbol.dispose]: () => void process.kill(group, "SIGKILL") };
}
