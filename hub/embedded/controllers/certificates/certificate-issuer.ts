import type { RequestedNames } from "@picolet/protocol/pki/extensions.ts";

/** The holder of the CA (`hub/identity`) as the certificate controllers see it; `hub/main` connects them. */
export interface CertificateIssuer {
  /**
   * Reads what a request asks for.
   * @param requestPem PKCS#10
   * @throws `invalid` for what is no request, or is not signed by its own key
   */
  read(requestPem: string): RequestFacts;
  /**
   * Issues the client certificate of a user who is no node.
   * @param expirationSeconds undefined: as long as the CA allows; the certificate may always be shorter
   * @returns PEM, the certificate then its issuers
   */
  issue(requestPem: string, expirationSeconds: number | undefined): string;
  /**
   * Issues a node's client certificate and records its key. The record decides whether the requestor may have the name.
   * @throws `permission_denied`, `invalid`; a retryable error when the record cannot be read
   */
  issueNode(request: NodeCertificateRequest, signal: AbortSignal): Promise<string>;
  /**
   * Issues a kubelet's serving certificate with the names of the request.
   * @throws `permission_denied` for a name of the hub and for a revoked requestor; as `issueNode` otherwise
   */
  issueServing(request: NodeCertificateRequest, signal: AbortSignal): Promise<string>;
}

export interface RequestFacts {
  /** "" unless there is exactly one. */
  readonly commonName: string;
  readonly organizations: readonly string[];
  /** True when it asks for anything besides a subject of common name and organizations: names, addresses. */
  readonly hasOthers: boolean;
  readonly names: RequestedNames;
}

export interface NodeCertificateRequest {
  readonly requestPem: string;
  readonly expirationSeconds: number | undefined;
  /** The requestor as the API server recorded it. */
  readonly requestor: {
    readonly name: string;
    readonly groups: readonly string[];
    readonly extra: Readonly<Record<string, readonly string[]>>;
  };
}
