/**
 * A hub as far as identity goes, on real TLS, and a board that dials it: what join, renewal and the tunnel's door need.
 */

import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Server } from "node:https";
import type { AddressInfo } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import type { IdentityState, NodeCredentials, NodeIdentity } from "@picolet/agent/core/hub/identity.ts";
import { CorrectedClock } from "@picolet/agent/security/corrected-clock.ts";
import { ATTEMPT_LIMIT } from "@picolet/agent/security/hub-authority.ts";
import type { OpenSocket } from "@picolet/agent/security/hub-connection.ts";
import { NodeIdentityOnDisk } from "@picolet/agent/security/node-identity.ts";
import { NodeAuthenticator, peerChain } from "@picolet/hub/identity/authenticate-node.ts";
import { BootstrapTokens } from "@picolet/hub/identity/bootstrap-tokens.ts";
import { type CertificateAuthority, makeAuthority } from "@picolet/hub/identity/certificate-authority.ts";
import { HubCa } from "@picolet/hub/identity/hub-ca.ts";
import { JoinService } from "@picolet/hub/identity/join-service.ts";
import { NodeCertifier } from "@picolet/hub/identity/node-certifier.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes } from "@picolet/hub/identity/node-keys.ts";
import { FilePemStore } from "@picolet/hub/identity/pem-store.ts";
import { createNodeServer, followCertificates } from "@picolet/hub/identity/tls-server.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import { TempFolder } from "../machine/temp-folder.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";
import { LocalSigner } from "./local-signer.ts";
import { MemorySecrets } from "./memory-secrets.ts";

export const DAY_MS = 86_400_000;
/** Now: OpenSSL, which looks too where a board's clock is right, has no other clock. */
export const START_MS: number = Date.now();
const NEVER = new AbortController().signal;
/** Bounds the hub's own short delays, which take no time here: the delay of a refusal. */
const SHORT_MS = 1000;

class HubClock extends VirtualClock {
  override sleep(duration: Millis, signal: AbortSignal): Promise<void> {
    return duration <= SHORT_MS ? Promise.resolve() : super.sleep(duration, signal);
  }
}

/** Knows whether an attempt is under way, by its deadline: while it is, time must not pass. */
class BoardClock extends VirtualClock {
  #attempts = 0;

  get isAttempting(): boolean {
    return this.#attempts > 0;
  }

  override async sleep(duration: Millis, signal: AbortSignal): Promise<void> {
    if (duration !== ATTEMPT_LIMIT) return await super.sleep(duration, signal);
    this.#attempts += 1;
    try {
      await super.sleep(duration, signal);
    } finally {
      this.#attempts -= 1;
    }
  }
}

export interface TestHubInit {
  readonly names?: readonly string[];
  readonly wallMs?: number;
  readonly nodeDays?: number;
  readonly windowMs?: number;
}

export class TestHub implements AsyncDisposable {
  readonly folder = new TempFolder();
  readonly clock: HubClock;
  readonly log = new RecordedLog();
  readonly secrets = new MemorySecrets();
  readonly tokens: BootstrapTokens;
  readonly keys: NodeKeysInKubernetes;
  readonly revoked: RevokedKeysInKubernetes;
  readonly certifier: NodeCertifier;
  readonly nodeCa: CertificateAuthority;
  readonly ca: HubCa;
  /** The first hash that boards are configured with; they keep it after a rotation of the CA. */
  readonly firstHash: string;
  readonly authenticator: NodeAuthenticator;
  readonly service: JoinService;
  readonly server: Server;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  /** Called instead of answering, when set. */
  intercept: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined;

  private constructor(clock: HubClock, ca: HubCa, folder: TempFolder, init: TestHubInit) {
    this.clock = clock;
    this.ca = ca;
    this.firstHash = ca.hash;
    this.folder = folder;
    const { log, secrets: client } = this;
    this.tokens = new BootstrapTokens({ client, clock });
    this.keys = new NodeKeysInKubernetes({ client }, { namespace: "picolet" });
    const random = seededRandom(1);
    this.revoked = new RevokedKeysInKubernetes({ client, clock, random, log }, { namespace: "picolet" });
    this.nodeCa = makeAuthority("kubernetes", { days: 3650, now: clock.wall() });
    const { revoked } = this.revoked;
    const clientCa = new WatchSource(this.nodeCa.certificate);
    this.authenticator = new NodeAuthenticator({ clientCa, revoked, clock });
    const signer = new LocalSigner({ authority: () => this.nodeCa, clock }, { days: init.nodeDays ?? 365 });
    const { tokens, keys, authenticator } = this;
    this.certifier = new NodeCertifier({ keys, revoked: this.revoked, clock, log });
    this.service = new JoinService(
      {
        tokens,
        certifier: this.certifier,
        signer,
        authenticator,
        serving: ca.serving,
        clock,
        log,
      },
      { renewalWindowMs: init.windowMs ?? 180 * DAY_MS },
    );
    this.server = createNodeServer({ serving: ca.serving, clientCa });
    this.server.on("request", (request, response) => this.#serve(request, response));
    this.#running = endOfRun(ca.run(this.#stop.signal));
    void followCertificates(this.server, { serving: ca.serving, clientCa }, this.#stop.signal);
  }

  static async open(init: TestHubInit = {}): Promise<TestHub> {
    const clock = new HubClock(init.wallMs ?? START_MS);
    const folder = new TempFolder();
    const store = new FilePemStore({ path: folder.at("hub.json") });
    const names = init.names ?? ["127.0.0.1", "localhost"];
    const ca = await HubCa.open({ store, clock, log: new RecordedLog() }, { names }, NEVER);
    const hub = new TestHub(clock, ca, folder, init);
    await new Promise<void>((resolve) => hub.server.listen(0, "127.0.0.1", resolve));
    return hub;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  token(
    init: { readonly ttlMs?: number; readonly replaceNodes?: boolean; readonly uses?: number } = {},
  ): Promise<string> {
    return this.tokens.create({ ttlMs: 3_600_000, description: "", replaceNodes: false, ...init }, NEVER);
  }

  /** Time has passed: the hub has a new certificate, and a new CA if asked for. */
  async renewed({ rotateCa }: { readonly rotateCa: boolean }): Promise<void> {
    const { current } = this.ca.serving;
    if (rotateCa) await this.ca.rotateCa(NEVER);
    else await this.clock.advance(millis(3_600_001));
    // The files are real.
    while (this.ca.serving.current === current) await this.clock.settle();
    await this.clock.settle();
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    if (this.intercept?.(request, response) === true || this.service.handle(request, response)) return;
    try {
      const { name } = this.authenticator.authenticate(peerChain(request.socket as TLSSocket));
      response.end(`${name} ${(request.socket as TLSSocket).isSessionReused()}`);
    } catch (error) {
      response.writeHead(401).end(describeError(error));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    const closed = once(this.server, "close");
    this.server.close();
    this.server.closeAllConnections();
    await closed;
    this.folder[Symbol.dispose]();
  }
}

export interface TestBoardInit {
  readonly hub: Pick<TestHub, "port" | "firstHash">;
  readonly name?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly wallMs?: number;
  readonly caHashes?: readonly string[];
  readonly caFile?: string;
  /** The disk of a board that was switched off. */
  readonly folder?: string;
  readonly host?: string;
  readonly port?: number;
  readonly hubs?: readonly { readonly host: string; readonly port: number }[];
  readonly openSocket?: OpenSocket;
}

/** One life of an agent, as far as identity goes. */
export class TestBoard implements AsyncDisposable {
  readonly machine: BoardClock;
  readonly clock: CorrectedClock;
  readonly log = new RecordedLog();
  readonly identity: NodeIdentityOnDisk;
  readonly folder: string;
  /** How often a hub has let it in by a token. */
  joins = 0;
  readonly #temp: TempFolder | undefined;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  readonly #host: string;
  readonly #port: number;

  constructor(init: TestBoardInit) {
    this.#temp = init.folder === undefined ? new TempFolder() : undefined;
    this.folder = init.folder ?? this.#temp?.at("identity") ?? "";
    this.machine = new BoardClock(init.wallMs ?? START_MS);
    this.clock = new CorrectedClock(this.machine, { floorMs: 0 });
    this.#host = init.host ?? "127.0.0.1";
    this.#port = init.port ?? init.hub.port;
    this.identity = new NodeIdentityOnDisk(
      {
        clock: this.clock,
        random: seededRandom(7),
        log: this.log,
        onJoin: () => {
          this.joins += 1;
        },
        openSocket: init.openSocket,
      },
      {
        folder: this.folder,
        nodeName: init.name ?? "board-1",
        hubs: init.hubs ?? [{ host: this.#host, port: this.#port }],
        pins: {
          caHashes: init.caHashes ?? (init.caFile === undefined ? [init.hub.firstHash] : []),
          caFile: init.caFile ?? "",
        },
        token: init.token ?? "",
        tokenFile: init.tokenFile ?? "",
      },
    );
    this.#running = endOfRun(this.identity.run(this.#stop.signal));
  }

  /** Waits until the state is as asked. */
  async until<S extends IdentityState>(matches: (state: IdentityState) => state is S): Promise<S>;
  async until(matches: (state: IdentityState) => boolean): Promise<IdentityState>;
  async until(matches: (state: IdentityState) => boolean): Promise<IdentityState> {
    for await (const state of this.identity.state.changes(this.#stop.signal)) if (matches(state)) return state;
    throw new Error("the board was switched off");
  }

  async joined(except?: NodeCredentials): Promise<NodeCredentials> {
    const isNew = (state: IdentityState): state is Extract<IdentityState, { kind: "joined" }> =>
      state.kind === "joined" && state.credentials.certificateChain !== except?.certificateChain;
    return (await this.until(isNew)).credentials;
  }

  /** The first problem that says `pattern`. */
  async problem(pattern: RegExp): Promise<string> {
    const state = await this.until((each) => each.kind === "joining" && pattern.test(each.problem));
    return state.kind === "joining" ? state.problem : "";
  }

  /** Waits until it waits for nothing but its next alarm. */
  async idle(): Promise<void> {
    for (let quiet = 0; quiet < 3; quiet = this.machine.isAttempting || this.machine.sleeping === 0 ? 0 : quiet + 1) {
      // Each turn of the loop lets the sockets go on.
      await this.machine.settle();
    }
  }

  /** Lets time pass to its next alarm, and no deadline of an attempt before. @returns how long, milliseconds */
  async nextAlarm(): Promise<number> {
    await this.idle();
    const wait = this.machine.untilNext ?? 0;
    await this.machine.step();
    return wait;
  }

  /** Acts as the tunnel: connects, verifies, is accepted or not. */
  dial(options: { readonly ticket?: Ticket } = {}): Promise<DialResult> {
    const { current } = this.identity.state;
    if (current.kind !== "joined") throw new Error(`not joined: ${current.problem}`);
    const wallMs = this.machine.wall().getTime();
    return dial(this.identity, current.credentials, { host: this.#host, port: this.#port, wallMs, ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.#temp?.[Symbol.dispose]();
  }
}

export interface DialResult {
  readonly status: number;
  readonly text: string;
  readonly ticket: Ticket | undefined;
}

/** The ticket of a verified session. A resumed session shows no certificate: its peer is that of the first one. */
interface Ticket {
  readonly session: Buffer;
  readonly chain: readonly Uint8Array[];
}

interface DialInit {
  readonly host: string;
  readonly port: number;
  readonly ticket?: Ticket;
  /** The board's. */
  readonly wallMs: number;
}

/** @throws what `verify` throws */
export async function dial(
  identity: NodeIdentity,
  credentials: NodeCredentials,
  { host, port, ticket, wallMs }: DialInit,
): Promise<DialResult> {
  const { servername, ...tls } = identity.tlsOptions(credentials, host);
  const names = servername === "" ? {} : { servername };
  // When the test's time is not the machine's, OpenSSL must not check times.
  const isNow = Math.abs(wallMs - Date.now()) < DAY_MS;
  const rejectUnauthorized = tls.rejectUnauthorized && isNow;
  const socket = connect({
    ...tls,
    ...names,
    rejectUnauthorized,
    host,
    port,
    ...(ticket === undefined ? {} : { session: ticket.session }),
  });
  let newest: Buffer | undefined;
  socket.on("session", (each) => {
    newest = each;
  });
  try {
    await once(socket, "secureConnect");
    const chain = ticket !== undefined && socket.isSessionReused() ? ticket.chain : chainOf(socket);
    identity.verify(chain, host);
    socket.write(`GET /whoami HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n\r\n`);
    let answer = "";
    for await (const chunk of socket as AsyncIterable<Buffer>) answer += chunk.toString();
    const [head = "", text = ""] = answer.split("\r\n\r\n");
    return {
      status: Number(head.split(" ")[1]),
      text: bodyOf(head, text),
      ticket: newest === undefined ? undefined : { session: newest, chain },
    };
  } finally {
    socket.destroy();
  }
}

/** Node's chunked answers have one chunk here. */
const bodyOf = (head: string, text: string): string =>
  /transfer-encoding: chunked/i.test(head) ? (text.split("\r\n")[1] ?? "") : text;

function chainOf(socket: TLSSocket): Uint8Array[] {
  const chain: Uint8Array[] = [];
  for (
    let each = socket.getPeerX509Certificate();
    each !== undefined && chain.length < 8;
    each = each.issuerCertificate
  ) {
    chain.push(each.raw);
  }
  return chain;
}
