/** Gives boards their certificates: HTTP on the tunnel's own TLS port (protocol/pki/join-messages.ts). */
import { randomBytes, sign as signBytes, verify as verifyBytes, X509Certificate } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { TLSSocket } from "node:tls";
import { AddressLimits } from "@picolet/hub-core/fairness/address-limits.ts";
import type { JoinTokens, NodeSigner } from "@picolet/hub-core/node-credentials.ts";
import { bodyOf, endAnswer } from "@picolet/kubelet-api/pipes/unread-body.ts";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, type ErrorCode, ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import {
  CA_PATH,
  type CertificateAnswer,
  JOIN_PATH,
  MAX_JOIN_REQUEST_BYTES,
  NONCE_BYTES,
  NONCE_PATH,
  type NonceAnswer,
  possessionStatement,
  RENEW_PATH,
  TIME_PATH,
  type TimeAnswer,
  TOKEN_PATTERN,
  timeStatement,
} from "@picolet/protocol/pki/join-messages.ts";
import { decodeBase64, encodeBase64 } from "@picolet/protocol/pki/pem.ts";
import { type Clock, type Log, millis } from "@picolet/protocol/ports.ts";
import { type AuthenticatedNode, type NodeAuthenticator, peerChain } from "./authenticate-node.ts";
import { REPLACE_NODES_GROUP } from "./bootstrap-tokens.ts";
import type { NodeCertifier, NodeClaim } from "./node-certifier.ts";
import { checkNodeRequest, type NodeRequest } from "./node-request.ts";
import type { Serving } from "./serving.ts";

export interface JoinServiceComponents {
  readonly tokens: JoinTokens;
  readonly certifier: Pick<NodeCertifier, "claim">;
  readonly signer: NodeSigner;
  readonly authenticator: NodeAuthenticator;
  readonly serving: Serving;
  readonly clock: Clock;
  /** Also the audit: one entry for every certificate given and every refusal. */
  readonly log: Log;
}

export interface JoinServiceInit {
  /**
   * How long after its end a certificate can still be renewed by the holder of its key. 0: never, a board that was away
   * for too long joins again with a token. The command line's default is 180 days: a season in a shed, or in a drawer
   * for spare parts. It costs little: a thief who has the key of a board keeps its certificate alive by renewing it in
   * time, window or not, until the node is reset, and that works within the window as well. It extends the use of a key
   * whose theft went unnoticed from the certificate's year to a year and a half.
   */
  readonly renewalWindowMs: number;
}

/** Signing asks Kubernetes; a fleet that joins at once waits its turn on its own side. Beyond it: 503, try again. */
export const MAX_AT_ONCE = 64;
/** From the request's head to its answer. Kubernetes' approvers and signers take a second or two. */
export const REQUEST_LIMIT = millis(30_000);
/** All refusals of a token come this late at least, so that their time says nothing of what is wrong with it. */
const REFUSAL_DELAY = millis(250);
/** Counted on top for a token that was refused: guessing is over after some twenty. */
const REFUSED_TOKEN_COST = 9;
/** From the nonce to its use: one round trip and a signature. */
export const NONCE_LIFE_MS = 60_000;

interface Nonce {
  readonly bytes: Uint8Array;
  readonly atMs: number;
}

/** The client of a request; read at once, as a request whose connection is gone no longer knows it. */
interface Caller {
  readonly request: IncomingMessage;
  readonly socket: TLSSocket;
  readonly address: string;
}

type Handler = (caller: Caller, signal: AbortSignal) => Promise<Answer> | Answer;
type Answer = { readonly kind: "json"; readonly body: object } | { readonly kind: "pem"; readonly text: string };

export class JoinService {
  readonly #components: JoinServiceComponents;
  readonly #windowMs: number;
  readonly #limits: AddressLimits;
  /** By connection: a nonce is of no use on another one, and none is left behind when it closes. */
  readonly #nonces = new WeakMap<object, Nonce>();
  /** Names that are being certified: two boards that want one name do not both find it free. */
  readonly #busy = new Set<string>();
  #active = 0;
  readonly #routes: Readonly<Record<string, { readonly method: "GET" | "POST"; readonly handle: Handler }>> = {
    [CA_PATH]: { method: "GET", handle: () => ({ kind: "pem", text: this.#components.serving.current.caBundle }) },
    [NONCE_PATH]: { method: "GET", handle: (caller) => this.#nonce(caller) },
    [TIME_PATH]: { method: "POST", handle: async ({ request }) => this.#time(await readBody(request)) },
    [JOIN_PATH]: { method: "POST", handle: (caller, signal) => this.#join(caller, signal) },
    [RENEW_PATH]: { method: "POST", handle: (caller, signal) => this.#renew(caller, signal) },
  };

  constructor(components: JoinServiceComponents, init: JoinServiceInit) {
    this.#components = components;
    this.#windowMs = init.renewalWindowMs;
    this.#limits = new AddressLimits(components);
  }

  /**
   * For the `request` event of the server that the tunnel is on.
   * @returns false when the path is none of ours; nothing was done then
   */
  handle(request: IncomingMessage, response: ServerResponse): boolean {
    const path = (request.url ?? "").split("?")[0] ?? "";
    const route = Object.hasOwn(this.#routes, path) ? this.#routes[path] : undefined;
    if (route === undefined) return false;
    void this.#serve(route.method, route.handle, request, response);
    return true;
  }

  async #serve(method: string, handle: Handler, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const address = request.socket.remoteAddress ?? "";
    const caller: Caller = { request, socket: request.socket as TLSSocket, address };
    this.#active += 1;
    using life = joinSignals();
    response.once("close", () => life.abort());
    response.on("error", () => life.abort());
    try {
      if (request.method !== method) throw new PicoletError("unimplemented", `only ${method} is offered here`);
      if (!this.#limits.take(address))
        throw new PicoletError("resource_exhausted", "too many attempts from your address");
      if (this.#active > MAX_AT_ONCE) throw new PicoletError("unavailable", "too many boards are joining at once");
      send(response, await this.#withinLimit(handle, caller, life.signal));
    } catch (error) {
      this.#refuse(error, caller, response);
    } finally {
      this.#active -= 1;
      life.abort();
    }
  }

  async #withinLimit(handle: Handler, caller: Caller, signal: AbortSignal): Promise<Answer> {
    using limited = joinSignals(signal);
    const { clock } = this.#components;
    const late = clock.sleep(REQUEST_LIMIT, limited.signal).then(() => {
      throw new PicoletError("unavailable", "the certificate was not signed in time", { retryable: true });
    });
    try {
      return await Promise.race([handle(caller, limited.signal), late]);
    } finally {
      limited.abort();
      late.catch(ignore("the race is over"));
    }
  }

  #refuse(error: unknown, { request, address }: Caller, response: ServerResponse): void {
    const code = isPicoletError(error) ? error.code : "internal";
    const { log } = this.#components;
    const where = { path: request.url, address };
    if (code === "internal") log.error("cannot answer a board", { ...where, error: describeError(error) });
    else if (code !== "cancelled") log.warn("refused a board", { ...where, code, reason: describeError(error) });
    if (response.destroyed || response.headersSent) return;
    const message = code === "internal" ? "the hub failed; its log says why" : describeError(error);
    const headers = { "content-type": "application/json", connection: "close" };
    void endAnswer(response, JOIN_STATUS[code] ?? 500, headers, `${JSON.stringify({ error: { code, message } })}\n`);
  }

  #nonce({ socket }: Caller): Answer {
    const bytes = randomBytes(NONCE_BYTES);
    this.#nonces.set(socket, { bytes, atMs: this.#components.clock.monotonic() });
    return { kind: "json", body: { nonce: encodeBase64(bytes) } satisfies NonceAnswer };
  }

  /** The nonce of this connection, which is used up by it. */
  #takeNonce({ socket }: Caller): Uint8Array {
    const nonce = this.#nonces.get(socket);
    this.#nonces.delete(socket);
    if (nonce === undefined || this.#components.clock.monotonic() - nonce.atMs > NONCE_LIFE_MS) {
      throw new PicoletError("permission_denied", `get ${NONCE_PATH} first, on the same connection`);
    }
    return nonce.bytes;
  }

  #time(body: Readonly<Record<string, unknown>>): Answer {
    const nonce = bytesOf(body, "nonce");
    if (nonce.length !== NONCE_BYTES) throw new PicoletError("invalid", `field nonce has to be ${NONCE_BYTES} bytes`);
    const timeMs = this.#components.clock.wall().getTime();
    const statement = timeStatement(nonce, timeMs);
    const signatures = this.#components.serving.current.caKeys.map((key) =>
      encodeBase64(signBytes(key.asymmetricKeyType === "ed25519" ? null : "sha256", statement, key)),
    );
    return { kind: "json", body: { timeMs, signatures } satisfies TimeAnswer };
  }

  async #join({ request, address }: Caller, signal: AbortSignal): Promise<Answer> {
    const body = await readBody(request);
    const token = await this.#verifyToken(textOf(body, "token"), address, signal);
    const wanted = checkNodeRequest(textOf(body, "csr"));
    const audit = { how: "join", token: token.id, address };
    const claim: NodeClaim = { kind: "token", mayReplace: token.groups.includes(REPLACE_NODES_GROUP) };
    return await this.#alone(wanted.node, async () => {
      await this.#components.tokens.use(token, wanted.node, signal);
      return await this.#certify(wanted, claim, audit, signal);
    });
  }

  async #verifyToken(text: string, address: string, signal: AbortSignal) {
    const { tokens, clock, log } = this.#components;
    const due = clock.sleep(REFUSAL_DELAY, signal);
    due.catch(ignore("it is awaited before a refusal alone"));
    try {
      if (!TOKEN_PATTERN.test(text)) throw new PicoletError("permission_denied", "the token is not of the form of one");
      return await tokens.verify(text, signal);
    } catch (error) {
      if (!isPicoletError(error, "permission_denied")) throw error;
      this.#limits.take(address, REFUSED_TOKEN_COST);
      log.warn("refused a token", { address, reason: describeError(error) });
      await due;
      const help = "it is unknown, wrong or has expired; make a new one with `picolet-hub token create`";
      throw new PicoletError("permission_denied", `the token is not accepted: ${help}`);
    }
  }

  async #renew(caller: Caller, signal: AbortSignal): Promise<Answer> {
    const nonce = this.#takeNonce(caller);
    const { address, socket } = caller;
    const body = await readBody(caller.request);
    const { authenticator, clock } = this.#components;
    const old = this.#authenticateForRenewal(authenticator, socket);
    const wanted = checkNodeRequest(textOf(body, "csr"));
    const { publicKey } = new X509Certificate(old.certificate);
    if (!verifyBytes("sha256", possessionStatement(nonce, wanted.der), publicKey, bytesOf(body, "signature"))) {
      throw new PicoletError("permission_denied", "the request is not signed by the key of the old certificate");
    }
    if (wanted.node !== old.name) {
      throw new PicoletError("permission_denied", `the certificate is that of node ${old.name}, not of ${wanted.node}`);
    }
    const hasExpired = clock.wall().getTime() > old.notAfterMs;
    const audit = { how: hasExpired ? "renewal after expiry" : "renewal", address };
    const claim: NodeClaim = { kind: "renewal", spkiHash: old.spkiHash, hasExpired };
    return await this.#alone(wanted.node, () => this.#certify(wanted, claim, audit, signal));
  }

  #authenticateForRenewal(authenticator: NodeAuthenticator, socket: TLSSocket): AuthenticatedNode {
    try {
      return authenticator.authenticate(peerChain(socket), this.#windowMs);
    } catch (error) {
      if (!isPicoletError(error, "permission_denied") || error.reason !== "CertificateExpired") throw error;
      const days = Math.round(this.#windowMs / 86_400_000);
      const help = `more than ${days} days ago (--renewal-window): join again with a token of \`picolet-hub token create\``;
      throw new PicoletError("permission_denied", `the certificate ended ${help}`, { cause: error });
    }
  }

  /** @throws `unavailable` while the same name is being certified for another request */
  async #alone(node: string, task: () => Promise<Answer>): Promise<Answer> {
    if (this.#busy.has(node)) throw new PicoletError("unavailable", `node ${node} is being certified just now`);
    this.#busy.add(node);
    try {
      return await task();
    } finally {
      this.#busy.delete(node);
    }
  }

  async #certify(wanted: NodeRequest, claim: NodeClaim, audit: object, signal: AbortSignal): Promise<Answer> {
    const { certifier, signer, serving, clock, log } = this.#components;
    await certifier.claim(wanted, claim, signal);
    const certificate = await signer.sign(wanted.node, wanted.pem, signal);
    const timeMs = clock.wall().getTime();
    log.info("certified a node", { node: wanted.node, key: wanted.spkiHash, ...audit });
    const body: CertificateAnswer = { certificate, hubCa: serving.current.caBundle, timeMs };
    return { kind: "json", body };
  }
}

export const JOIN_STATUS: Readonly<Partial<Record<ErrorCode, number>>> = {
  invalid: 400,
  permission_denied: 403,
  unimplemented: 405,
  conflict: 409,
  resource_exhausted: 429,
  unavailable: 503,
  deadline_exceeded: 503,
};

function send(response: ServerResponse, answer: Answer): void {
  if (response.destroyed) return;
  const isJson = answer.kind === "json";
  const text = isJson ? `${JSON.stringify(answer.body)}\n` : answer.text;
  const contentType = isJson ? "application/json" : "application/x-pem-file";
  response.writeHead(200, { "content-type": contentType, "content-length": Buffer.byteLength(text) });
  response.end(text);
}

/** @throws `invalid` for what is too long or no JSON object */
async function readBody(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    // One that is given up must not take the connection with it: the refusal goes over it.
    for await (const chunk of bodyOf(request)) {
      length += chunk.length;
      if (length > MAX_JOIN_REQUEST_BYTES) break;
      chunks.push(chunk);
    }
  } catch (error) {
    throw new PicoletError("cancelled", "the request was cut off", { cause: error });
  }
  if (length > MAX_JOIN_REQUEST_BYTES) {
    throw new PicoletError("invalid", `the request is longer than ${MAX_JOIN_REQUEST_BYTES} bytes`);
  }
  let value: unknown;
  try {
    value = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch (error) {
    throw new PicoletError("invalid", "the request is no JSON", { cause: error });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new PicoletError("invalid", "the request is no JSON object");
  }
  return value as Readonly<Record<string, unknown>>;
}

function textOf(body: Readonly<Record<string, unknown>>, field: string): string {
  const value = Object.hasOwn(body, field) ? body[field] : undefined;
  if (typeof value !== "string") throw new PicoletError("invalid", `field ${field} has to be text`);
  return value;
}

const bytesOf = (body: Readonly<Record<string, unknown>>, field: string): Uint8Array =>
  decodeBase64(textOf(body, field));
