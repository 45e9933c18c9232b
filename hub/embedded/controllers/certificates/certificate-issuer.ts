/** What the certificate controllers need of whoever holds the CA (`hub/identity`); `hub/main` joins them. */
export interface CertificateIssuer {
  /**
   * What a request asks for.
   * @param requestPem PKCS#10
   * @throws `invalid` for what is no request, or is not signed by its own key
   */
  read(requestPem: string): {
    readonly commonName: string;
    readonly organizations: readonly string[];
    /** Whether it asks for anything besides a subject of common name and organizations: names, addresses. */
    readonly hasOthers: boolean;
  };
  /**
   * A certificate for TLS clients.
   * @param expirationSeconds undefined: as long as the CA likes; it may always be shorter
   * @returns PEM, the certificate then its issuers
   */
  issue(requestPem: string, expirationSeconds: number | undefined): string;
}
