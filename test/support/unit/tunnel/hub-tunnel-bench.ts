/** A hub's tunnel end on real TLS sockets, and agents that say what a test tells them to. */

import { once } from "node:events";
import { createServer, type Server } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { TunnelServer, type TunnelServerInit } from "@picolet/hub/tunnel/tunnel-server.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import { EMPTY_DIGEST } from "@picolet/protocol/tunnel/digest.ts";
import {
  type Hello,
  type HubMessage,
  TUNNEL_PATH,
  TUNNEL_SUBPROTOCOL,
  type TunnelMessage,
} from "@picolet/protocol/tunnel/messages.ts";
import { Mux } from "@picolet/protocol/tunnel/mux.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { WebSocket } from "ws";
import { TlsAuthority } from "../identity/tls-authority.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";
import { MemoryFleetBackend } from "./memory-fleet-backend.ts";

const HEARTBEAT_MS = 20_000;

const authority = new TlsAuthority();
const serverPair = authority.issueServer();
const clientPairs = new Map<string, ReturnType<TlsAuthority["issueClient"]>>();

function clientPair(node: string): ReturnType<TlsAuthority["issueClient"]> {
  let pair = clientPairs.get(node);
  if (pair === undefined) {
    pair = authority.issueClient([
      { type: "O", value: "system:nodes" },
      { type: "CN", value: `system:node:${node}` },
    ]);
    clientPairs.set(node, pair);
  }
  return pair;
}

export class HubTunnel implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly backend = new MemoryFleetBackend();
  readonly tunnels: TunnelServer;
  readonly #server: Server;
  readonly #life = new AbortController();
  readonly #running: Promise<void>;
  readonly #agents: TestAgent[] = [];
  readonly #connections = new Set<Socket>();

  private constructor(init: Partial<TunnelServerInit>) {
    const { clock, log, backend } = this;
    this.tunnels = new TunnelServer({ clock, random: seededRandom(1), log, backend }, { hubVersion: "0.1.0", ...init });
    this.#server = createServer({
      key: serverPair.privateKey,
      cert: serverPair.certificate,
      ca: authority.ca,
      requestCert: true,
      rejectUnauthorized: true,
    });
    this.#server.on("secureConnection", (socket) => {
      this.#connections.add(socket);
      socket.once("close", () => this.#connections.delete(socket));
    });
    this.#server.on("upgrade", (request, socket, head) => {
      const name = (socket as TLSSocket).getPeerCertificate().subject.CN;
      this.tunnels.handleUpgrade(request, socket, head, String(name).replace("system:node:", ""));
    });
    this.#running = endOfRun(this.tunnels.run(this.#life.signal));
  }

  static async start(init: Partial<TunnelServerInit> = {}): Promise<HubTunnel> {
    const hub = new HubTunnel(init);
    hub.#server.listen(0, "127.0.0.1");
    await once(hub.#server, "listening");
    return hub;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Connects, and is silent until the test makes it speak. */
  async dial(node: string, onStream?: (stream: IncomingStream) => void): Promise<TestAgent> {
    const agent = new TestAgent(this.socket(node), this.clock, this.log, onStream);
    this.#agents.push(agent);
    await agent.opened;
    return agent;
  }

  /** One that has been welcomed. */
  async join(node: string, hello: Partial<Hello> = {}): Promise<TestAgent> {
    const agent = await this.dial(node);
    agent.hello(hello);
    await agent.next("welcome");
    return agent;
  }

  /** Until the hub has written something more, and knows it. */
  async nextWrite(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.backend.onWritten = resolve;
    });
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Waits until the hub has released the node. */
  async released(node: string): Promise<void> {
    for await (const held of this.backend.node(node).held.changes(this.#life.signal)) if (held === 0) return;
  }

  /** That the hub has not cut off. */
  get connections(): number {
    return [...this.#connections].filter(({ destroyed }) => !destroyed).length;
  }

  /** Until the hub has lost one of its connections. */
  async nextDisconnect(): Promise<void> {
    await Promise.race([...this.#connections].map((socket) => once(socket, "close")));
  }

  /** Until the hub has that many sessions, welcomed or not. */
  async sessions(count: number): Promise<void> {
    while (this.tunnels.sessionCount !== count) await this.nextDisconnect();
  }

  /** Lets time pass, the agents pinging as they do. */
  async pass(duration: Millis, ...agents: readonly TestAgent[]): Promise<void> {
    for (let left = duration as number; left > 0; left -= HEARTBEAT_MS) {
      await this.clock.advance(millis(Math.min(left, HEARTBEAT_MS)));
      for (const agent of agents) await agent.roundTrip();
    }
  }

  /** With which an agent joins as `node`; PEM. */
  credentials(node: string): ReturnType<TlsAuthority["issueClient"]> & { readonly ca: string } {
    return { ...clientPair(node), ca: authority.ca };
  }

  socket(node: string, protocol: string | string[] = TUNNEL_SUBPROTOCOL): WebSocket {
    const { privateKey, certificate } = clientPair(node);
    return new WebSocket(`wss://127.0.0.1:${this.port}${TUNNEL_PATH}`, protocol, {
      ca: authority.ca,
      cert: certificate,
      key: privateKey,
      perMessageDeflate: false,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const agent of this.#agents) agent.socket.terminate();
    await this.tunnels[Symbol.asyncDispose]();
    this.#life.abort();
    await this.#running;
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

type Kind = HubMessage["kind"];
type MessageOf<K extends Kind> = Extract<HubMessage, { readonly kind: K }>;

export class TestAgent {
  readonly socket: WebSocket;
  readonly mux: Mux;
  /** In the order they came; `next` takes them out. */
  readonly messages: TunnelMessage[] = [];
  readonly opened: Promise<void>;
  /** Resolves with the WebSocket's close code. */
  readonly closed: Promise<number>;
  readonly #waiting = new Set<() => void>();

  constructor(socket: WebSocket, clock: VirtualClock, log: RecordedLog, onStream?: (stream: IncomingStream) => void) {
    this.socket = socket;
    const link = {
      send: (bytes: Uint8Array) => socket.send(bytes, () => this.mux.drained()),
      get bufferedBytes() {
        return socket.bufferedAmount;
      },
      close: (code: number, reason: string) => socket.close(code, reason),
    };
    const onMessage = (message: TunnelMessage): void => {
      this.messages.push(message);
      for (const wake of [...this.#waiting]) wake();
    };
    const reject = (stream: IncomingStream): void =>
      stream.reject({ code: "unimplemented", message: "no streams here" });
    this.mux = new Mux({ clock, log, link }, { role: "agent", onMessage, onStream: onStream ?? reject });
    this.opened = once(socket, "open").then(() => undefined);
    this.closed = new Promise((resolve) => socket.once("close", (code: number) => resolve(code)));
    socket.on("error", () => undefined);
    socket.on("message", (data: Buffer) => this.mux.receive(data));
    socket.on("close", () => {
      this.mux.close(new PicoletError("unavailable", "the hub closed the connection"));
      for (const wake of [...this.#waiting]) wake();
    });
  }

  hello(hello: Partial<Hello> = {}): void {
    this.mux.send({
      kind: "hello",
      agentVersion: "0.1.0",
      cursor: { epoch: new Uint8Array(), revision: 0, digest: EMPTY_DIGEST },
      mirrorsDigest: new Uint8Array(8),
      nodeHash: new Uint8Array(),
      timeMs: 1_767_225_600_000,
      pendingStatuses: 0,
      ...hello,
    });
  }

  /** The next message of that kind, taken out. Rejects when the connection ends first. */
  async next<K extends Kind>(kind: K): Promise<MessageOf<K>> {
    for (;;) {
      const at = this.messages.findIndex((each) => each.kind === kind);
      if (at >= 0) return this.messages.splice(at, 1)[0] as MessageOf<K>;
      if (this.mux.closed.aborted) throw new Error(`the connection ended without ${kind}`);
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          this.#waiting.delete(wake);
          resolve();
        };
        this.#waiting.add(wake);
      });
    }
  }

  /** A ping there and back: everything that was sent before has been handled there. */
  async roundTrip(): Promise<void> {
    await this.mux.ping(new AbortController().signal);
  }
}
