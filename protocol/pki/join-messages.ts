/**
 * How a board gets its certificate from a hub: HTTP/1.1 over TLS 1.3 on the tunnel's own port, JSON both ways.
 *
 * - `GET /v1/ca` the CAs of the hub's certificate, PEM. Asked without knowing yet who answers: worth nothing until one
 *   of them is the pinned one and the hub's own certificate leads up to it.
 * - `POST /v1/join` JoinRequest → CertificateAnswer
 * - `GET /v1/nonce` NonceAnswer: for one renewal on the same connection
 * - `POST /v1/renew` RenewRequest → CertificateAnswer; the connection's client certificate is the one to be renewed,
 *   which may have ended within the hub's window
 * - `POST /v1/time` TimeRequest → TimeAnswer: the time, signed by the hub's CA itself
 *
 * Refusals: a status of 4xx or 5xx with `{"error":{"code":ErrorCode,"message":…}}`.
 */
import { concatBytes } from "./der.ts";

export const CA_PATH = "/v1/ca";
export const JOIN_PATH = "/v1/join";
export const NONCE_PATH = "/v1/nonce";
export const RENEW_PATH = "/v1/renew";
export const TIME_PATH = "/v1/time";

/** A request with its CSR has 1 KiB. Longer bodies are refused, unread from there on. */
export const MAX_JOIN_REQUEST_BYTES = 16_384;
/** Two chains and a bundle of CAs. */
export const MAX_JOIN_ANSWER_BYTES = 131_072;
export const NONCE_BYTES = 32;

/** Kubernetes' bootstrap tokens: id and secret. */
export const TOKEN_PATTERN: RegExp = /^[a-z0-9]{6}\.[a-z0-9]{16}$/;

export interface JoinRequest {
  readonly token: string;
  /** PKCS#10 as PEM: subject `O=system:nodes, CN=system:node:NAME`, nothing else. */
  readonly csr: string;
}

export interface NonceAnswer {
  /** NONCE_BYTES, base64. */
  readonly nonce: string;
}

export interface RenewRequest {
  /** The same name, a new key. */
  readonly csr: string;
  /** Base64, of `possessionStatement`, by the key of the connection's client certificate. */
  readonly signature: string;
}

export interface CertificateAnswer {
  /** PEM: the node's certificate, then its issuers. */
  readonly certificate: string;
  /** PEM: all CAs of hubs, also those that will sign or have signed. */
  readonly hubCa: string;
  readonly timeMs: number;
}

export interface TimeRequest {
  /** NONCE_BYTES, base64. */
  readonly nonce: string;
}

export interface TimeAnswer {
  readonly timeMs: number;
  /** Base64, of `timeStatement`, one by each CA whose key the hub holds; none: its certificate comes from elsewhere. */
  readonly signatures: readonly string[];
}

const statement = (purpose: string, ...parts: readonly Uint8Array[]): Uint8Array =>
  concatBytes([new TextEncoder().encode(`picolet ${purpose} v1\0`), ...parts]);

/**
 * The statement that the old key signs (ECDSA or RSA with SHA-256, as DER), so that a stolen certificate alone renews
 * nothing.
 */
export const possessionStatement = (nonce: Uint8Array, request: Uint8Array): Uint8Array =>
  statement("renewal", nonce, request);

/** The statement that a hub's CA signs; the nonce has NONCE_BYTES bytes. */
export const timeStatement = (nonce: Uint8Array, timeMs: number): Uint8Array =>
  statement("time", nonce, new TextEncoder().encode(String(timeMs)));
