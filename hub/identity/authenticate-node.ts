/**
 * Authenticates the other end of a TLS connection by its client certificate, and by nothing else that it sends.
 */
import { X509Certificate } from "node:crypto";
import type { TLSSocket } from "node:tls";
import { isRevoked, type Revocations } from "@picolet/hub-core/node-credentials.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Certificate } from "@picolet/protocol/pki/certificate.ts";
import { type ChainRefusal, verifyChain } from "@picolet/protocol/pki/chain.ts";
import { DerReader } from "@picolet/protocol/pki/der.ts";
import { readName } from "@picolet/protocol/pki/distinguished-name.ts";
import { CLIENT_AUTH } from "@picolet/protocol/pki/extensions.ts";
import { nodeOfSubject } from "@picolet/protocol/pki/node-subject.ts";
import { certificatesOf } from "@picolet/protocol/pki/pem.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { spkiHash } from "./certificate-authority.ts";

export interface AuthenticatedNode {
  readonly name: string;
  /** Hash of the certificate's key, as NodeKeys has it. */
  readonly spkiHash: string;
  /** DER. */
  readonly certificate: Uint8Array;
  readonly notAfterMs: number;
}

export interface NodeAuthenticatorComponents {
  /** PEM: the CAs that issue nodes' certificates. Several while the cluster changes its CA. */
  readonly clientCa: Watch<string>;
  readonly revoked: Watch<Revocations>;
  readonly clock: Clock;
}

/** CAs between a node's certificate and the client CA: usually none. The oldest is forgotten. */
const MAX_INTERMEDIATES = 8;

export class NodeAuthenticator {
  readonly #components: NodeAuthenticatorComponents;
  /** Seen in chains that were good: a resumed TLS session shows the node's own certificate alone. */
  readonly #intermediates: Uint8Array[] = [];
  #anchors: { readonly text: string; readonly certificates: readonly Uint8Array[] } | undefined;

  constructor(components: NodeAuthenticatorComponents) {
    this.#components = components;
  }

  /**
   * @param chain DER, the node's own first (`peerChain`)
   * @param graceMs how long after its end a certificate still counts: 0 for everything but its renewal
   * @throws `permission_denied`: not from the client CA, not (any more) valid, not a node's, revoked
   */
  authenticate(chain: readonly Uint8Array[], graceMs = 0): AuthenticatedNode {
    const { clock, revoked } = this.#components;
    if (chain.length === 0) throw refusal("CertificateUntrusted", "there is no client certificate");
    const path = verifyChain({
      chain: [...chain, ...this.#intermediates],
      anchors: this.#currentAnchors(),
      purpose: CLIENT_AUTH,
      time: { atMs: clock.wall().getTime(), isLowerBound: false, graceMs },
      isSignedBy,
    });
    const [own] = path;
    if (own === undefined) throw refusal("CertificateUntrusted", "there is no client certificate");
    const name = nodeOfSubject(readName(new DerReader(own.subject)));
    const hash = spkiHash(own.publicKey);
    if (isRevoked(revoked.current, { node: name, spkiHash: hash })) {
      throw refusal("CertificateRevoked", `the certificate of node ${name} was revoked`);
    }
    for (const { raw } of path.slice(1, -1)) this.#remember(raw);
    return { name, spkiHash: hash, certificate: own.raw, notAfterMs: own.notAfterMs };
  }

  #currentAnchors(): readonly Uint8Array[] {
    const text = this.#components.clientCa.current;
    if (this.#anchors?.text !== text) this.#anchors = { text, certificates: certificatesOf(text) };
    return this.#anchors.certificates;
  }

  #remember(certificate: Uint8Array): void {
    if (this.#intermediates.some((each) => Buffer.compare(each, certificate) === 0)) return;
    this.#intermediates.push(certificate);
    if (this.#intermediates.length > MAX_INTERMEDIATES) this.#intermediates.shift();
  }
}

const refusal = (reason: ChainRefusal | "CertificateRevoked" | "NodeRefused", message: string): PicoletError =>
  new PicoletError("permission_denied", message, { reason });

/** OpenSSL checks names, key identifiers and key usage too. */
export function isSignedBy(child: Certificate, issuer: Certificate): boolean {
  try {
    const [below, above] = [new X509Certificate(child.raw), new X509Certificate(issuer.raw)];
    return below.checkIssued(above) && below.verify(above.publicKey);
  } catch {
    // Something that OpenSSL does not take for a certificate, or a key.
    return false;
  }
}

/** More than any node has. */
const MAX_PEER_CHAIN = 8;

/** DER of what the peer of `socket` showed, its own first; empty: nothing. After the handshake, before data. */
export function peerChain(socket: TLSSocket): Uint8Array[] {
  const chain: Uint8Array[] = [];
  let certificate = socket.getPeerX509Certificate();
  while (certificate !== undefined && chain.length < MAX_PEER_CHAIN) {
    chain.push(certificate.raw);
    const { issuerCertificate } = certificate;
    certificate = issuerCertificate === certificate ? undefined : issuerCertificate;
  }
  return chain;
}
