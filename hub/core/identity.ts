/** Between the hub's join and renewal (`hub/identity`) and whoever signs (`hub/bridge` through Kubernetes' CSR API). */

export interface NodeSigner {
  /**
   * A client certificate for `system:node:<node>` of `system:nodes`. The request has been checked by then: its subject,
   * its signature, no other names.
   * @param requestPem PKCS#10
   * @returns PEM, the certificate then its issuers
   * @throws `unavailable` (retryable) while nobody has signed it, `permission_denied` when it was denied
   */
  sign(node: string, requestPem: string, signal: AbortSignal): Promise<string>;
  /** PEM: whom a node's client certificate has to be issued by. */
  clientCa(signal: AbortSignal): Promise<string>;
}

/** Kubernetes' bootstrap tokens: Secrets `bootstrap-token-<id>` in kube-system. */
export interface JoinTokens {
  /**
   * @param token `<6 characters>.<16 characters>`
   * @throws `permission_denied`: unknown, wrong, expired, or without `usage-bootstrap-authentication`; takes the same time
   *   for all of these
   */
  verify(token: string, signal: AbortSignal): Promise<{ readonly id: string; readonly groups: readonly string[] }>;
}

/** The hub's record of which key a node has: a node that exists cannot be joined by somebody else with a token. */
export interface NodeKeys {
  /** SPKI SHA-256 of the key that was certified last for `node`, and when; undefined: never. */
  get(
    node: string,
    signal: AbortSignal,
  ): Promise<{ readonly spkiHash: string; readonly certifiedAtMs: number } | undefined>;
  set(
    node: string,
    record: { readonly spkiHash: string; readonly certifiedAtMs: number },
    signal: AbortSignal,
  ): Promise<void>;
}
