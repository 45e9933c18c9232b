/** The node's identity towards a hub. `agent/security` implements it, `agent/tunnel` dials with it. */
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { type ErrorCode, isPicoletError } from "@picolet/protocol/errors.ts";

/** All PEM. Key and certificate belong together: they are kept and replaced as one. */
export interface NodeCredentials {
  readonly privateKey: string;
  /** The node's, then its issuers. Subject `O=system:nodes, CN=system:node:NAME`. */
  readonly certificateChain: string;
  /** The CA certificates that verify a hub's certificate, as PEM. */
  readonly hubCa: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

export type IdentityState =
  /**
   * No certificate yet: the tunnel waits. `problem`: why the last attempt failed, "" at first. `isRefused` as
   * `isRefusal`.
   */
  | { readonly kind: "joining"; readonly problem: string; readonly isRefused: boolean }
  | { readonly kind: "joined"; readonly credentials: NodeCredentials };

/** The codes of an answer: the hub was reached, and it or this board said no. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set([
  "permission_denied",
  "invalid",
  "conflict",
  "not_found",
  "unimplemented",
]);

/** @returns whether a retry is futile until the configuration, the token or the hub changes */
export const isRefusal = (error: unknown): boolean => isPicoletError(error) && REFUSALS.has(error.code);

/** For one TLS connection to a hub; `tls.connect` options. */
export interface HubTlsOptions {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** False only where the node's clock cannot be right, and then `verify` has to be called with the peer's chain. */
  readonly rejectUnauthorized: boolean;
  readonly servername: string;
}

export interface NodeIdentity {
  readonly state: Watch<IdentityState>;
  /** @param host name or address of the hub */
  tlsOptions(credentials: NodeCredentials, host: string): HubTlsOptions;
  /**
   * To be called with every connection before a byte is sent.
   * @param peerChain DER, the hub's certificate first. A resumed session shows none: then that of the session it began
   * with, which is kept with its ticket once `verify` has passed it
   * @throws `permission_denied` when the peer is not the hub
   */
  verify(peerChain: readonly Uint8Array[], host: string): void;
  /** A session was authenticated with `credentials`: the pair before it is no longer needed. */
  worked(credentials: NodeCredentials): void;
  /** The hub refused `credentials` (expired, revoked, unknown): renew or join again if that is allowed. */
  refused(credentials: NodeCredentials, reason: string): void;
  /** Takes the time of an authenticated hub. Corrects `Clock.wall` if the machine's clock is behind it. */
  observeTime(hubTimeMs: number, roundTripMs: number): void;
}
