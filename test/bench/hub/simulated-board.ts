/** The tunnel's end of a simulated board: it connects, keeps what it receives, and reports what the test asks for. */
import { createHash } from "node:crypto";
import { createSecureContext, type SecureContext } from "node:tls";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { addToDigest, digestOf, EMPTY_DIGEST, removeFromDigest, statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { MAX_FRAME_BYTES } from "@picolet/protocol/tunnel/frames.ts";
import {
  type Desired,
  type NodeReportContent,
  type ObjectHash,
  type ObjectKey,
  type StatusItem,
  TUNNEL_PATH,
  TUNNEL_SUBPROTOCOL,
  type TunnelMessage,
  type Welcome,
} from "@picolet/protocol/tunnel/messages.ts";
import { type Link, Mux } from "@picolet/protocol/tunnel/mux.ts";
import { WebSocket } from "ws";

export interface BoardCredentials {
  readonly ca: string;
  readonly certificate: string;
  readonly privateKey: string;
}

export interface BoardInit {
  readonly node: string;
  /** `https://127.0.0.1:10270` */
  readonly hub: string;
  readonly credentials: BoardCredentials;
}

export interface BoardEvents {
  /** An object is on the board's disk, as it were. */
  readonly onObject: (board: SimulatedBoard, key: ObjectKey, object: Readonly<Record<string, unknown>>) => void;
  readonly onWelcome: (board: SimulatedBoard, welcome: Welcome) => void;
  readonly onClosed: (board: SimulatedBoard, reason: string) => void;
}

const sha256 = (bytes: Uint8Array): Uint8Array => createHash("sha256").update(bytes).digest();

class SocketLink implements Link {
  readonly #socket: WebSocket;
  onDrained: () => void = () => undefined;
  readonly #sent = (): void => this.onDrained();

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  send(bytes: Uint8Array): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(bytes, this.#sent);
  }

  close(code: number, reason: string): void {
    this.#socket.close(code, reason);
  }
}

export class SimulatedBoard {
  readonly node: string;
  readonly report: NodeReportContent;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #url: string;
  readonly #context: SecureContext;
  readonly #events: BoardEvents;
  readonly #objects = new Map<ObjectKey, ObjectHash>();
  #epoch: Uint8Array = new Uint8Array();
  #revision = 0;
  #digest = EMPTY_DIGEST;
  #session: { readonly socket: WebSocket; readonly mux: Mux } | undefined;
  #reportAcked: (() => void) | undefined;
  #sequence = 0;
  readonly #acks = new Map<number, { readonly resolve: () => void; readonly reject: (error: Error) => void }>();
  bytes = 0;

  constructor({ clock, log }: { readonly clock: Clock; readonly log: Log }, init: BoardInit, events: BoardEvents) {
    const { ca, certificate, privateKey } = init.credentials;
    this.node = init.node;
    this.#clock = clock;
    this.#log = log;
    this.#url = `${init.hub.replace(/^http/, "ws")}${TUNNEL_PATH}`;
    this.#context = createSecureContext({ ca, cert: certificate, key: privateKey });
    this.#events = events;
    const resources = { cpu: "4", memory: "948220Ki", pods: "110" };
    this.report = {
      register: true,
      labels: { "kubernetes.io/arch": "arm64", "kubernetes.io/hostname": init.node, "kubernetes.io/os": "linux" },
      taints: [],
      providerID: "",
      status: {
        capacity: resources,
        allocatable: resources,
        conditions: [{ type: "Ready", status: "True", reason: "KubeletReady", message: "picolet is ready" }],
        nodeInfo: { architecture: "arm64", operatingSystem: "linux", kubeletVersion: "v1.34.0" },
      },
    };
  }

  get isConnected(): boolean {
    return this.#session !== undefined;
  }

  connect(): void {
    const socket = new WebSocket(this.#url, TUNNEL_SUBPROTOCOL, {
      secureContext: this.#context,
      perMessageDeflate: false,
      maxPayload: MAX_FRAME_BYTES,
    } as ConstructorParameters<typeof WebSocket>[2]);
    const link = new SocketLink(socket);
    const onMessage = (message: TunnelMessage): void => this.#onMessage(message);
    const mux = new Mux(
      { clock: this.#clock, log: this.#log, link },
      {
        role: "agent",
        onMessage,
        onStream: (stream) => stream.reject({ code: "unimplemented", message: "simulated" }),
      },
    );
    link.onDrained = () => mux.drained();
    this.#session = { socket, mux };
    let problem = "";
    socket.on("open", () => this.#hello(mux));
    socket.on("message", (data: Buffer) => mux.receive(data));
    socket.on("error", (error) => {
      problem = error.message;
    });
    socket.on("close", (_, reason) => {
      this.bytes += mux.bytesSent + mux.bytesReceived;
      const error = new PicoletError("unavailable", "the connection is closed");
      mux.close(error);
      this.#session = undefined;
      for (const { reject } of this.#acks.values()) reject(error);
      this.#acks.clear();
      this.#events.onClosed(this, problem || reason.toString() || "closed");
    });
  }

  #hello(mux: Mux): void {
    this.#sequence = 0;
    mux.send({
      kind: "hello",
      agentVersion: "0.1.0",
      cursor: { epoch: this.#epoch, revision: this.#revision, digest: this.#digest },
      mirrorsDigest: new Uint8Array(8),
      nodeHash: statusHash(sha256, this.report),
      timeMs: this.#clock.wall().getTime(),
      pendingStatuses: 0,
    });
  }

  #send(message: TunnelMessage): void {
    this.#session?.mux.send(message);
  }

  #onMessage(message: TunnelMessage): void {
    switch (message.kind) {
      case "welcome":
        this.#onWelcome(message);
        return;
      case "desired":
        this.#onDesired(message);
        return;
      case "statusesAck":
        for (const [sequence, { resolve }] of this.#acks) {
          if (sequence > message.sequence) break;
          this.#acks.delete(sequence);
          resolve();
        }
        return;
      case "nodeAck":
        this.#reportAcked?.();
        return;
      default:
        return;
    }
  }

  #onWelcome(welcome: Welcome): void {
    this.#epoch = welcome.epoch;
    if (welcome.desired === "current") this.#revision = welcome.revision;
    if (welcome.desired === "inventory") {
      // The objects of a simulated board fit into one message.
      const items = [...this.#objects].map(([key, hash]) => ({ key, hash }));
      this.#send({ kind: "inventory", items, last: true });
    }
    if (welcome.wantsNode) {
      this.#send({ kind: "node", hash: statusHash(sha256, this.report), body: { kind: "full", report: this.report } });
    }
    this.#events.onWelcome(this, welcome);
  }

  #onDesired({ revision, upserts, deletes, last }: Desired): void {
    for (const key of deletes) this.#drop(key);
    for (const { key, hash, object } of upserts) {
      this.#drop(key);
      this.#objects.set(key, hash);
      this.#digest = addToDigest(sha256, this.#digest, { key, hash });
      this.#events.onObject(this, key, object);
    }
    if (!last) return;
    this.#revision = revision;
    this.#send({ kind: "desiredAck", revision });
  }

  #drop(key: ObjectKey): void {
    const hash = this.#objects.get(key);
    if (hash !== undefined) this.#digest = removeFromDigest(sha256, this.#digest, { key, hash });
    this.#objects.delete(key);
  }

  /** True when its counters agree with its objects. */
  get isConsistent(): boolean {
    const digest = digestOf(
      sha256,
      [...this.#objects].map(([key, hash]) => ({ key, hash })),
    );
    return Buffer.compare(digest, this.#digest) === 0;
  }

  /** Resolves when the hub has written it. @throws `unavailable` when the connection ends before that */
  reportStatus(items: readonly StatusItem[]): Promise<void> {
    if (this.#session === undefined) {
      return Promise.reject(new PicoletError("unavailable", "cannot report a status: there is no connection"));
    }
    this.#sequence += 1;
    const sequence = this.#sequence;
    return new Promise((resolve, reject) => {
      this.#acks.set(sequence, { resolve, reject });
      this.#send({ kind: "statuses", sequence, items });
    });
  }

  /** Resolves when the hub has written the node's report. */
  reportNode(): Promise<void> {
    return new Promise((resolve) => {
      this.#reportAcked = resolve;
      this.#send({ kind: "node", hash: statusHash(sha256, this.report), body: { kind: "full", report: this.report } });
    });
  }

  /** A heartbeat. Without an answer the hub is gone, which the socket reports as well. */
  ping(): void {
    this.#session?.mux.ping(NEVER).catch(() => undefined);
  }

  end(): void {
    this.#session?.socket.terminate();
  }
}

const NEVER = new AbortController().signal;
