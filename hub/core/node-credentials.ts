/**
 * The port between the hub's join and renewal (`hub/identity`) and the signer (`hub/bridge` through Kubernetes' CSR
 * API).
 */

export interface NodeSigner {
  /**
   * A client certificate for `system:node:<node>` of `system:nodes`. The request has been checked by then: its subject,
   * its signature, no other names.
   * @param requestPem PKCS#10
   * @returns PEM, the certificate then its issuers
   * @throws `unavailable` (retryable) while no signer has signed it, `permission_denied` when it was denied
   */
  sign(node: string, requestPem: string, signal: AbortSignal): Promise<string>;
  /** PEM: the CAs that issue nodes' client certificates. */
  clientCa(signal: AbortSignal): Promise<string>;
}

/** Kubernetes' bootstrap tokens: Secrets `bootstrap-token-<id>` in kube-system. */
export interface JoinTokens {
  /**
   * @param token `<6 characters>.<16 characters>`
   * @throws `permission_denied`: unknown, wrong, expired, or without `usage-bootstrap-authentication`; takes the same
   * time for all of these
   */
  verify(token: string, signal: AbortSignal): Promise<VerifiedToken>;
  /**
   * Counts a node that joins with a token of limited uses, once.
   * @throws `permission_denied` when other nodes have taken all of them
   */
  use(token: VerifiedToken, node: string, signal: AbortSignal): Promise<void>;
}

export interface VerifiedToken {
  readonly id: string;
  readonly groups: readonly string[];
  /** How many nodes may join with it; undefined: any number. */
  readonly uses?: number;
}

export interface NodeKeyRecord {
  /** SPKI SHA-256 of the key that was certified last for a node, lower-case hex. */
  readonly spkiHash: string;
  /** Time of the certification, by the hub's clock. */
  readonly certifiedAtMs: number;
}

/** The hub's record of which key a node has: a node that exists cannot be joined by another board with a token. */
export interface NodeKeys {
  /** Undefined: never certified, or reset. */
  get(node: string, signal: AbortSignal): Promise<(NodeKeyRecord & { readonly version: string }) | undefined>;
  /**
   * @param version of the record that the decision was made from; undefined: there was none
   * @throws `conflict` when the record is another by now
   */
  set(node: string, record: NodeKeyRecord, version: string | undefined, signal: AbortSignal): Promise<void>;
  delete(node: string, signal: AbortSignal): Promise<void>;
}

/**
 * A name that was reset or given to another key. From then on it is valid with keys that the hub has certified since,
 * and with no others: issuer and start of their certificates do not count, nor whether they are on record. So
 * neither a clock that is wrong nor a cluster that renews certificates without asking the hub brings a stolen board
 * back.
 */
export interface NodeRevocation {
  /** Counts resets, so that a decision from before one differs from a decision after it. */
  readonly resets: number;
  /** SPKI SHA-256, lower-case hex, the latest last. */
  readonly keys: readonly string[];
}

/** Keys and names that are refused before their certificates end. */
export interface Revocations {
  /** SPKI SHA-256 of keys that are refused with any certificate. */
  readonly keys: ReadonlySet<string>;
  readonly nodes: ReadonlyMap<string, NodeRevocation>;
}

/** The facts of a client certificate that decide whether it is revoked. */
export interface CertificateFacts {
  /** Undefined: it is no node's. */
  readonly node: string | undefined;
  readonly spkiHash: string;
}

export function isRevoked({ keys, nodes }: Revocations, { node, spkiHash }: CertificateFacts): boolean {
  if (keys.has(spkiHash)) return true;
  const entry = node === undefined ? undefined : nodes.get(node);
  return entry !== undefined && !entry.keys.includes(spkiHash);
}

/**
 * All that either refuses. Of a name that both know the later reset counts, and of one reset every key admitted since.
 */
export function joinedRevocations(one: Revocations, other: Revocations): Revocations {
  const nodes = new Map(one.nodes);
  for (const [node, entry] of other.nodes) {
    const known = nodes.get(node);
    if (known === undefined || known.resets < entry.resets) nodes.set(node, entry);
    else if (known.resets === entry.resets) {
      nodes.set(node, { resets: entry.resets, keys: [...new Set([...entry.keys, ...known.keys])] });
    }
  }
  return { keys: new Set([...one.keys, ...other.keys]), nodes };
}

/**
 * In `extra` of a user of the embedded API server who came with a node's certificate: SPKI SHA-256 of its key. It goes
 * into the node's CertificateSigningRequests, so that a renewal is judged by the key that it was asked for with.
 */
export const CERTIFICATE_KEY_EXTRA = "picolet.io/certificate-key";
