/**
 * A real hub under attack, and whom an attacker may be: boards that have joined, service accounts, holders of a join
 * token.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { CA_PATH, type CertificateAnswer, JOIN_PATH } from "@picolet/protocol/pki/join-messages.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";
import { EMPTY_DIGEST } from "@picolet/protocol/tunnel/digest.ts";
import { MAX_FRAME_BYTES } from "@picolet/protocol/tunnel/frames.ts";
import { TUNNEL_PATH, TUNNEL_SUBPROTOCOL, type TunnelMessage } from "@picolet/protocol/tunnel/messages.ts";
import { Mux } from "@picolet/protocol/tunnel/mux.ts";
import { HubProcess, runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import { Agent, request } from "undici";
import { WebSocket } from "ws";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import type { BystanderInit } from "./bystander.ts";

/** Any JSON object of the API. */
export type ApiObject = Readonly<Record<string, unknown>>;

export interface ApiAnswer {
  readonly status: number;
  /** Parsed where it is JSON, else the text. */
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

export interface Identity {
  readonly token?: string;
  /** PEM. */
  readonly certificate?: string;
  readonly privateKey?: string;
}

export interface ApiRequest {
  readonly method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** An object is sent as JSON, a text or bytes as they are. */
  readonly body?: object | string | Uint8Array;
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A client of the embedded API server over HTTPS. */
export class ApiClient implements AsyncDisposable {
  readonly #server: string;
  readonly #token: string | undefined;
  readonly #dispatcher: Agent;

  constructor(server: string, ca: string, { token, certificate, privateKey }: Identity) {
    this.#server = server;
    this.#token = token;
    const pair = certificate === undefined ? {} : { cert: certificate, key: privateKey };
    this.#dispatcher = new Agent({ connect: { ca, ...pair }, headersTimeout: 0, bodyTimeout: 0 });
  }

  /** @param path with its query, from `/api` or `/apis` on */
  async ask(path: string, init: ApiRequest = {}): Promise<ApiAnswer> {
    const { method = "GET", body, contentType = "application/json", headers = {} } = init;
    const isRaw = typeof body === "string" || body instanceof Uint8Array;
    const answer = await request(`${this.#server}${path}`, {
      dispatcher: this.#dispatcher,
      method,
      headers: {
        ...(this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }),
        ...(body === undefined ? {} : { "content-type": contentType }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: isRaw ? body : JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    return { status: answer.statusCode, body: parsed(text), headers: answer.headers };
  }

  create(path: string, object: ApiObject): Promise<ApiAnswer> {
    return this.ask(path, { method: "POST", body: object });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#dispatcher.destroy();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export interface JoinAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** A board's end of the tunnel, opened by hand: it sends any bytes. */
export interface RawTunnel {
  readonly socket: WebSocket;
  readonly mux: Mux;
  /** Everything the hub has sent. */
  readonly received: readonly TunnelMessage[];
  /** Resolves with the first message of a kind, past or to come. @throws when the connection ends before it */
  next(kind: TunnelMessage["kind"]): Promise<TunnelMessage>;
  /** Greets as a board that has never been here. */
  greet(): void;
}

/** A board that has joined, in an attacker's hands. */
export class AttackBoard implements AsyncDisposable {
  readonly name: string;
  readonly certificate: string;
  readonly privateKey: string;
  /** The embedded API server, by the board's certificate. */
  readonly api: ApiClient;
  readonly #ground: AttackGround;
  readonly #sockets: WebSocket[] = [];

  constructor(ground: AttackGround, name: string, certificate: string, privateKey: string) {
    this.#ground = ground;
    this.name = name;
    this.certificate = certificate;
    this.privateKey = privateKey;
    this.api = ground.client({ certificate, privateKey });
  }

  /** Opens a connection; nothing is sent until the caller does. @throws when the hub refuses it */
  async openTunnel(): Promise<RawTunnel> {
    const socket = new WebSocket(`${this.#ground.tunnel.replace(/^http/, "ws")}${TUNNEL_PATH}`, TUNNEL_SUBPROTOCOL, {
      ca: this.#ground.ca,
      cert: this.certificate,
      key: this.privateKey,
      perMessageDeflate: false,
      maxPayload: MAX_FRAME_BYTES,
    });
    this.#sockets.push(socket);
    const received: TunnelMessage[] = [];
    const waiting: { kind: string; resolve: (m: TunnelMessage) => void; reject: (e: Error) => void }[] = [];
    const mux = new Mux(
      {
        clock: systemClock,
        log: new RecordedLog(),
        link: {
          get bufferedBytes() {
            return socket.bufferedAmount;
          },
          send: (bytes) => socket.readyState === WebSocket.OPEN && socket.send(bytes),
          close: (code, reason) => socket.close(code, reason),
        },
      },
      {
        role: "agent",
        onMessage: (message) => {
          received.push(message);
          for (const [index, each] of waiting.entries()) {
            if (each.kind !== message.kind) continue;
            waiting.splice(index, 1);
            each.resolve(message);
            break;
          }
        },
        onStream: (stream) => stream.reject({ code: "unimplemented", message: "an attacker answers nothing" }),
      },
    );
    socket.on("message", (data: Buffer) => mux.receive(data));
    socket.on("close", (code, reason) => {
      const error = new Error(`the tunnel ended with ${code} ${reason.toString()}`);
      for (const { reject } of waiting.splice(0)) reject(error);
    });
    await once(socket, "open");
    socket.on("error", () => undefined);
    return {
      socket,
      mux,
      received,
      next: (kind) => {
        const found = received.find((each) => each.kind === kind);
        if (found !== undefined) return Promise.resolve(found);
        return new Promise((resolve, reject) => waiting.push({ kind, resolve, reject }));
      },
      greet: () =>
        mux.send({
          kind: "hello",
          agentVersion: "0.1.0",
          cursor: { epoch: new Uint8Array(), revision: 0, digest: EMPTY_DIGEST },
          mirrorsDigest: new Uint8Array(8),
          nodeHash: new Uint8Array(8),
          timeMs: Date.now(),
          pendingStatuses: 0,
        }),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.terminate();
    await this.api[Symbol.asyncDispose]();
  }
}

export class AttackGround implements AsyncDisposable {
  readonly #folder = new TempFolder();
  readonly #flags: readonly string[];
  readonly dataDir: string = join(this.#folder.path, "hub");
  readonly hubLog: string[] = [];
  /** The administrator. */
  admin!: ApiClient;
  ca = "";
  #hub!: HubProcess;
  #adminToken = "";
  #names = 0;
  readonly #clients: AsyncDisposable[] = [];

  private constructor(flags: readonly string[]) {
    this.#flags = flags;
  }

  static async start(flags: readonly string[] = []): Promise<AttackGround> {
    const ground = new AttackGround(flags);
    await ground.#startHub(0, 0);
    return ground;
  }

  get hub(): HubProcess {
    return this.#hub;
  }

  /** `https://127.0.0.1:PORT`, where boards go. */
  get tunnel(): string {
    return this.#hub.ready.tunnel;
  }

  /** `https://127.0.0.1:PORT` of the embedded API server. */
  get api(): string {
    return this.#hub.ready.api;
  }

  async #startHub(tunnelPort: number, apiPort: number): Promise<void> {
    const { dataDir } = this;
    this.#hub = await HubProcess.start({
      dataDir,
      tunnelPort,
      apiPort,
      flags: this.#flags,
      onLog: (line) => this.hubLog.push(line),
    });
    const config = JSON.parse(readFileSync(this.#hub.ready.kubeconfig, "utf8")) as {
      clusters: [{ cluster: { "certificate-authority-data": string } }];
      users: [{ user: { token: string } }];
    };
    this.ca = Buffer.from(config.clusters[0].cluster["certificate-authority-data"], "base64").toString();
    this.#adminToken = config.users[0].user.token;
    this.admin = this.client({ token: this.#adminToken });
  }

  /** The same data directory and ports, another process. */
  async restartHub(signal: "SIGTERM" | "SIGKILL" = "SIGTERM", whileDown: () => void = () => undefined): Promise<void> {
    const [tunnelPort, apiPort] = [this.tunnel, this.api].map((url) => Number(new URL(url).port));
    await this.#hub.end(signal);
    whileDown();
    await this.#startHub(tunnelPort ?? 0, apiPort ?? 0);
  }

  /** A name that no other case has. */
  unique(prefix: string): string {
    this.#names += 1;
    return `${prefix}-${this.#names}`;
  }

  client(identity: Identity): ApiClient {
    const client = new ApiClient(this.api, this.ca, identity);
    this.#clients.push(client);
    return client;
  }

  /** The requests of another client that has no part in the attack. */
  bystander(): BystanderInit {
    return { url: `${this.api}/api/v1/namespaces/default`, token: this.#adminToken, ca: this.ca };
  }

  /** One of the hub's own commands on its data directory: `("token", "create")`. */
  command(...words: readonly string[]): Promise<string> {
    return runHubCommand(this.dataDir, ...words);
  }

  /** A join token, as an operator makes it. */
  async token(...flags: readonly string[]): Promise<string> {
    return (await this.command("token", "create", ...flags)).split("\n")[0] ?? "";
  }

  /** PEM: a request for any subject, by the key given or a new one. */
  request(
    subject: readonly { readonly type: "O" | "CN"; readonly value: string }[],
    privateKey: string = newKey(),
  ): { readonly csr: string; readonly privateKey: string } {
    const key = createPrivateKey(privateKey);
    const spki = createPublicKey(key).export({ type: "spki", format: "der" });
    const der = encodeCertificateRequest(subject, spki, (bytes) => sign("sha256", bytes, key));
    return { csr: encodePem("CERTIFICATE REQUEST", der), privateKey };
  }

  /** Asks the hub's join port for a certificate, as a board does. */
  async askToJoin(token: string, csr: string): Promise<JoinAnswer> {
    const dispatcher = new Agent({ connect: { ca: this.ca } });
    try {
      const { statusCode, body } = await request(`${this.tunnel}${JOIN_PATH}`, {
        dispatcher,
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ token, csr }),
      });
      return { status: statusCode, body: parsed(await body.text()) };
    } finally {
      await dispatcher.destroy();
    }
  }

  /** The hub's CAs, as anyone gets them. */
  async publicCa(): Promise<string> {
    const dispatcher = new Agent({ connect: { ca: this.ca } });
    try {
      const { body } = await request(`${this.tunnel}${CA_PATH}`, { dispatcher });
      return await body.text();
    } finally {
      await dispatcher.destroy();
    }
  }

  /** A board that joins with a token of its own. @throws when it is refused */
  async board(name: string = this.unique("board")): Promise<AttackBoard> {
    const { csr, privateKey } = this.request([
      { type: "O", value: "system:nodes" },
      { type: "CN", value: `system:node:${name}` },
    ]);
    const { status, body } = await this.askToJoin(await this.token(), csr);
    if (status !== 200) throw new Error(`the board ${name} was refused: ${JSON.stringify(body)}`);
    const board = new AttackBoard(this, name, (body as CertificateAnswer).certificate, privateKey);
    this.#clients.push(board);
    return board;
  }

  /** A service account with the rights of every user alone, and a token of an hour. */
  async serviceAccount(namespace = "default", name: string = this.unique("account")): Promise<ApiClient> {
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts`;
    await this.#expect(this.admin.create(path, { apiVersion: "v1", kind: "ServiceAccount", metadata: { name } }));
    const asked = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { expirationSeconds: 3600 } };
    const { body } = await this.#expect(this.admin.create(`${path}/${name}/token`, asked));
    return this.client({ token: (body as { status: { token: string } }).status.token });
  }

  /** As the administrator. @throws when it is refused */
  async make(path: string, object: ApiObject): Promise<ApiAnswer> {
    return await this.#expect(this.admin.create(path, object));
  }

  async namespace(name: string = this.unique("tenant")): Promise<string> {
    await this.make("/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name } });
    return name;
  }

  async #expect(answer: Promise<ApiAnswer>): Promise<ApiAnswer> {
    const got = await answer;
    if (got.status >= 300) throw new Error(`the administrator was refused: ${JSON.stringify(got.body)}`);
    return got;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of this.#clients.splice(0)) await each[Symbol.asyncDispose]();
    await this.#hub.end("SIGTERM");
    this.#folder[Symbol.dispose]();
  }
}

const newKey = (): string =>
  generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ type: "pkcs8", format: "pem" }).toString();
