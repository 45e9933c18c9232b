/**
 * The cost of a program on Node that does nothing: the floor under the agent's memory and CPU, with the agent's own
 * settings.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:tls";
import { TlsAuthority } from "../../support/unit/identity/tls-authority.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { round } from "../measure/process-usage.ts";
import { type RestFigures, restOf } from "./agent-figures.ts";
import { agentEnvironment, agentFlags } from "./agent-fork.ts";

export interface FloorFigures {
  /** A timer, and the collection of garbage that the agent makes when it is quiet. */
  readonly bareNode: RestFigures;
  /** The same with one TCP connection, and what an agent without a hub has loaded besides. */
  readonly bareTcp: RestFigures;
  /** The same with TLS over it, its server verified. */
  readonly bareTls: RestFigures;
  /** The least that any hub adds to an agent that has none. */
  readonly tlsAddsAnonMiB: number;
}

const START_LIMIT_MS = 30_000;
/** Its garbage has been collected. */
const SETTLE_MS = 15_000;
const NODE = "node_modules/node/bin/node";

/** CommonJS, as the agent is. */
const REST = "setTimeout(() => gc(), 10_000); setInterval(() => undefined, 2 ** 30); console.log('rests');";
const TCP = `
const [, , port] = process.argv;
require("node:crypto");
require("node:http");
require("node:net").connect({ host: "127.0.0.1", port: Number(port) }, () => { ${REST} }).resume();
`;
const TLS = `
const [, , port, ca] = process.argv;
require("node:http");
const authority = require("node:fs").readFileSync(ca);
const options = { host: "127.0.0.1", port: Number(port), ca: authority, minVersion: "TLSv1.3" };
require("node:tls").connect(options, () => { ${REST} }).resume();
`;

/** Processes that do nothing. */
export interface Floors extends AsyncDisposable {
  rest(windowMs: number): Promise<FloorFigures>;
}

export async function startFloors(): Promise<Floors> {
  await using started = new AsyncDisposableStack();
  const folder = started.use(new TempFolder());
  writeFileSync(folder.at("rest.cjs"), REST);
  writeFileSync(folder.at("tcp.cjs"), TCP);
  writeFileSync(folder.at("tls.cjs"), TLS);
  const authority = new TlsAuthority();
  writeFileSync(folder.at("ca.pem"), authority.ca);
  const { certificate, privateKey } = authority.issueServer();
  const server = createServer({ cert: certificate, key: privateKey }, (socket) => socket.on("error", () => undefined));
  started.defer(() => void server.close());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const start = async (...args: readonly string[]): Promise<number> => {
    const child = started.adopt(startNode(args), (each) => void each.kill("SIGKILL"));
    await firstWord(child);
    return child.pid ?? 0;
  };
  const bareNodePid = await start(folder.at("rest.cjs"));
  const bareTcpPid = await start(folder.at("tcp.cjs"), String(port));
  const bareTlsPid = await start(folder.at("tls.cjs"), String(port), folder.at("ca.pem"));
  const processes = started.move();
  return {
    rest: async (windowMs) => {
      const restOfNode = (pid: number) => restOf(pid, windowMs, SETTLE_MS);
      const [bareNode, bareTcp, bareTls] = await Promise.all([
        restOfNode(bareNodePid),
        restOfNode(bareTcpPid),
        restOfNode(bareTlsPid),
      ]);
      return { bareNode, bareTcp, bareTls, tlsAddsAnonMiB: round(bareTls.anonMiB - bareTcp.anonMiB) };
    },
    [Symbol.asyncDispose]: () => processes.disposeAsync(),
  };
}

const startNode = (args: readonly string[]): ChildProcess =>
  spawn(NODE, [...agentFlags(), ...args], { env: agentEnvironment(), stdio: ["ignore", "pipe", "pipe"] });

/** @throws with what it said when it ends before that */
async function firstWord(child: ChildProcess): Promise<void> {
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const stopped = new AbortController();
  const signal = AbortSignal.any([stopped.signal, AbortSignal.timeout(START_LIMIT_MS)]);
  const ended = once(child, "close", { signal }).then(() => {
    throw new Error(`a bare Node has ended: ${said}`);
  });
  try {
    await Promise.race([once(child.stdout ?? child, "data", { signal }), ended]);
  } finally {
    ended.catch(() => undefined);
    stopped.abort();
  }
}

if (import.meta.main) {
  await using floors = await startFloors();
  console.log(JSON.stringify(await floors.rest(60_000), undefined, 2));
}
