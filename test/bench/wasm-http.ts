/**
 * Requests a second of a component that says two words, beside a plain `node:http` server that says the same and jco's own
 * server of the same component (preview2-shim). One after the other, by one client, the load that the client is included.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { WasmAdapter } from "../../runtime-adapters/wasm/wasm-adapter.ts";
import { testComponent } from "../support/components.ts";
import { fixedPorts } from "../support/fixed-port.ts";
import { WasmPod, type WasmRuntime } from "../support/wasm-runtime.ts";
import { httpLoad } from "./http-load.ts";
import { memoryOf, percentile, round } from "./process-figures.ts";

export interface WasmHttpFigures {
  readonly httpRequestsPerSecond: number;
  /** Of a plain `node:http` server in the same run. */
  readonly httpRatioToPlainNode: number;
  readonly httpAnonMiB: number;
  readonly httpShimRatioToPlainNode: number;
}

const IMAGE = "localhost/http-server:1";
const JCO = "node_modules/@bytecodealliance/jco/dist/jco.js";
const ROUNDS = 5;
const REQUESTS = 20_000;
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
  const rate = (at: number, requests: number) =>
    httpLoad({ port: at, path: "/hello", connections: CONNECTIONS, requests });
  const rates: { readonly plain: number; readonly ours: number; readonly shim: number }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const [plainRate, ours] = [await rate(plainPort, REQUESTS), await rate(port, REQUESTS)];
    rates.push({ plain: plainRate, ours, shim: await rate(shimPort, SHIM_REQUESTS) });
  }
  void [plain, shim];
  const pid = runtime.runner(id)?.pid;
  if (pid === undefined) throw new Error("the component is not running");
  const middle = (values: readonly number[]): number => percentile(values, 0.5);
  return {
    httpRequestsPerSecond: Math.round(middle(rates.map((each) => each.ours))),
    httpRatioToPlainNode: round(middle(rates.map((each) => each.ours / each.plain))),
    httpAnonMiB: memoryOf(pid).anonMiB,
    httpShimRatioToPlainNode: round(middle(rates.map((each) => each.shim / each.plain))),
  };
}

/** It says that it listens; its end is the end of all that it started. */
async function listeningChild(args: readonly string[]): Promise<Disposable> {
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"], detached: true });
  if (child.stdout === null || child.stderr === null || child.pid === undefined)
    throw new Error(`cannot start ${args[0]}`);
  const group = -child.pid;
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`${args[0]} has ended with ${code}`);
  });
  ended.catch(() => undefined);
  await Promise.race([once(child.stdout, "data"), once(child.stderr, "data"), ended]);
  return { [Symbol.dispose]: () => void process.kill(group, "SIGKILL") };
}
