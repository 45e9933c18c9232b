/** What the certificate controllers need of whoever holds the CA (`hub/identity`); `hub/main` joins them. */
export interface CertificateIssuer {
  /**
   * What a request asks for.
   * @param requestPem PKCS#10
   * @throws `invalid` for what is no request, or is not signed by its own key
   */
  read(requestPem: string): {
    /** "" unless there is exactly one. */
    readonly commonName: string;
    readonly organizations: readonly string[];
    /** Whether it asks for anything besides a subject of common name and organizations: names, addresses. */
    readonly hasOthers: boolean;
  };
  /**
   * The certificate of a user who is no node.
   * @param expirationSeconds undefined: as long as the CA likes; it may always be shorter
   * @returns PEM, the certificate then its issuers
   */
  issue(requestPem: string, expirationSeconds: number | undefined): string;
  /**
   * The certificate of a node, recorded as its key. The record decides whether the requestor may have that name.
   * @throws `permission_denied` when he may not, `invalid`; what is retryable when the record cannot be asked
   */
  issueNode(request: NodeCertificateRequest, signal: AbortSignal): Promise<string>;
}

export interface NodeCertificateRequest {
  readonly requestPem: string;
  readonly expirationSeconds: number | undefined;
  /** As the API server has recorded it. */
  readonly requestor: {
    readonly name: string;
    readonly groups: readonly string[];
    readonly extra: Readonly<Record<string, readonly string[]>>;
  };
}
