/**
 * Decides whether a certificate leads to a trusted CA, at a time that the caller knows better than the machine's clock
 * does. Both ends of the tunnel judge their peer with it: the agent because its clock may be at 1970, the hub because
 * it must admit certificates that expired while their board was offline. Follows RFC 5280, 6.1, without policies, name
 * constraints and revocation lists: a certificate with a critical extension that is not supported here is refused.
 */
import { PicoletError } from "../errors.ts";
import { type Certificate, parseCertificate } from "./certificate.ts";
import { equalBytes } from "./der.ts";
import { EXTENSION, KEY_USAGE, readBasicConstraints, readExtendedKeyUsage, readKeyUsage } from "./extensions.ts";

export interface ChainRequest {
  /** DER as the peer sent it: its own first, the others in any order. */
  readonly chain: readonly Uint8Array[];
  /** DER of the CAs that are trusted, roots or not. */
  readonly anchors: readonly Uint8Array[];
  /** Extended key usage that the peer's certificate has to have: SERVER_AUTH or CLIENT_AUTH. */
  readonly purpose: string;
  readonly time: ChainTime;
  /** @returns whether `issuer`'s key signed `child`; implemented with node:crypto */
  readonly isSignedBy: (child: Certificate, issuer: Certificate) => boolean;
}

export interface ChainTime {
  readonly atMs: number;
  /** `atMs` is only known to be no later than now: what begins later is valid. */
  readonly isLowerBound: boolean;
  /** How long after its end the peer's own certificate still counts. 0 but where renewal after expiry is decided. */
  readonly graceMs: number;
}

/** Reasons of the `permission_denied` errors, for those who can do something about one of them. */
export type ChainRefusal =
  | "CertificateExpired"
  | "CertificateNotYetValid"
  | "CertificateUntrusted"
  | "CertificateUnfit";

/** Bounds the chain: a root, two intermediates and the peer's own certificate. */
const MAX_DEPTH = 4;
/** Bounds the certificates that a peer may send. */
const MAX_CHAIN = 8;
/** A hostile peer could send look-alikes to make work. */
const MAX_SIGNATURE_CHECKS = 24;

/** ECDSA, RSA and RSA-PSS with SHA-2, Ed25519: nothing that rests on MD5 or SHA-1. */
const SIGNATURE_ALGORITHMS: ReadonlySet<string> = new Set([
  "1.2.840.10045.4.3.2",
  "1.2.840.10045.4.3.3",
  "1.2.840.10045.4.3.4",
  "1.2.840.113549.1.1.10",
  "1.2.840.113549.1.1.11",
  "1.2.840.113549.1.1.12",
  "1.2.840.113549.1.1.13",
  "1.3.101.112",
]);

const UNDERSTOOD: ReadonlySet<string> = new Set(Object.values(EXTENSION));
const ANY_PURPOSE = "2.5.29.37.0";

const refusal = (reason: ChainRefusal, message: string): PicoletError =>
  new PicoletError("permission_denied", message, { reason });

/**
 * @returns the peer's own certificate and those above it, the anchor last
 * @throws `permission_denied` with a ChainRefusal as reason, `invalid` for what is no certificate
 */
export function verifyChain(request: ChainRequest): readonly Certificate[] {
  const [leaf, ...others] = request.chain.slice(0, MAX_CHAIN).map(parseCertificate);
  if (leaf === undefined) throw refusal("CertificateUntrusted", "the peer showed no certificate");
  const anchors = request.anchors.map(parseCertificate);
  const path = new PathSearch(others, anchors, request.isSignedBy).from([leaf]);
  if (path === undefined)
    throw refusal("CertificateUntrusted", "the certificate is not from a CA that is trusted here");
  for (const [depth, certificate] of path.entries()) {
    checkUse(certificate, depth, request.purpose);
    checkTime(certificate, depth, request.time);
  }
  return path;
}

class PathSearch {
  readonly #others: readonly Certificate[];
  readonly #anchors: readonly Certificate[];
  readonly #isSignedBy: ChainRequest["isSignedBy"];
  #checks = 0;

  constructor(others: readonly Certificate[], anchors: readonly Certificate[], isSignedBy: ChainRequest["isSignedBy"]) {
    this.#others = others;
    this.#anchors = anchors;
    this.#isSignedBy = isSignedBy;
  }

  /** Upwards from the last of `path`; anchors first, so that the way is never longer than it has to be. */
  from(path: readonly Certificate[]): readonly Certificate[] | undefined {
    const child = path.at(-1);
    if (child === undefined || path.length >= MAX_DEPTH) return undefined;
    const anchor = this.#anchors.find((each) => this.#issued(each, child));
    if (anchor !== undefined) return [...path, anchor];
    for (const other of this.#others) {
      if (path.includes(other) || !this.#issued(other, child)) continue;
      const found = this.from([...path, other]);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #issued(issuer: Certificate, child: Certificate): boolean {
    if (!equalBytes(issuer.subject, child.issuer) || !SIGNATURE_ALGORITHMS.has(child.signatureAlgorithm)) return false;
    this.#checks += 1;
    return this.#checks <= MAX_SIGNATURE_CHECKS && this.#isSignedBy(child, issuer);
  }
}

/** @param depth 0 for the peer's own */
function checkUse(certificate: Certificate, depth: number, purpose: string): void {
  const unfit = (what: string): never => {
    throw refusal("CertificateUnfit", `the certificate ${depth === 0 ? "" : "of its CA "}${what}`);
  };
  const extensionValue = (oid: string): Uint8Array | undefined =>
    certificate.extensions.find((each) => each.oid === oid)?.value;
  const unknown = certificate.extensions.find(({ critical, oid }) => critical && !UNDERSTOOD.has(oid));
  if (unknown !== undefined) unfit(`has a critical extension that is not understood here: ${unknown.oid}`);
  const purposes = extensionValue(EXTENSION.extendedKeyUsage);
  const isFit = purposes === undefined ? depth > 0 : isAmong(readExtendedKeyUsage(purposes), purpose, depth);
  if (!isFit) unfit("is not for this purpose (extended key usage)");
  const usage = extensionValue(EXTENSION.keyUsage);
  const needed = depth === 0 ? KEY_USAGE.digitalSignature : KEY_USAGE.keyCertSign;
  if (usage !== undefined && (readKeyUsage(usage) & needed) === 0) unfit("is not for this purpose (key usage)");
  const constraints = extensionValue(EXTENSION.basicConstraints);
  const authority = constraints === undefined ? undefined : readBasicConstraints(constraints);
  if (depth === 0) {
    if (authority !== undefined) unfit("is that of a CA");
  } else if (authority === undefined) unfit("is not that of a CA");
  // Below it are the peer's own, which does not count, and the CAs in between.
  else if (authority.pathLength !== undefined && depth - 1 > authority.pathLength) unfit("allows no CA below it");
}

const isAmong = (purposes: readonly string[], purpose: string, depth: number): boolean =>
  purposes.includes(purpose) || (depth > 0 && purposes.includes(ANY_PURPOSE));

function checkTime({ notBeforeMs, notAfterMs }: Certificate, depth: number, time: ChainTime): void {
  const whose = depth === 0 ? "the certificate" : "the certificate of its CA";
  const now = new Date(time.atMs).toISOString();
  if (time.atMs > notAfterMs + (depth === 0 ? time.graceMs : 0)) {
    const end = new Date(notAfterMs).toISOString();
    throw refusal("CertificateExpired", `${whose} ended at ${end}, and it is ${now}`);
  }
  if (time.atMs < notBeforeMs && !time.isLowerBound) {
    const begin = new Date(notBeforeMs).toISOString();
    throw refusal("CertificateNotYetValid", `${whose} begins at ${begin}, and it is ${now}`);
  }
}
