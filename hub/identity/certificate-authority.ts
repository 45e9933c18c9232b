/** A CA with its key, and what is issued with it: to nodes and users as clients, to hubs and API servers as servers. */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign as signBytes,
  verify as verifyBytes,
  X509Certificate,
} from "node:crypto";
import { isIP } from "node:net";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { encodeCertificate, parseCertificate } from "@picolet/protocol/pki/certificate.ts";
import { type CertificateRequest, parseCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { derOid, derSequence, TAG } from "@picolet/protocol/pki/der.ts";
import { encodeName, type NameAttribute } from "@picolet/protocol/pki/distinguished-name.ts";
import {
  type AlternativeNames,
  authorityKeyIdentifier,
  basicConstraints,
  CLIENT_AUTH,
  type Extension,
  extendedKeyUsage,
  KEY_USAGE,
  keyUsage,
  SERVER_AUTH,
  subjectAltName,
  subjectKeyIdentifier,
} from "@picolet/protocol/pki/extensions.ts";
import { certificatesOf, encodePem, parsePem } from "@picolet/protocol/pki/pem.ts";

export interface CertificateAuthority {
  /** PEM, one certificate. */
  readonly certificate: string;
  readonly key: KeyObject;
}

export interface KeyPair {
  /** PEM, PKCS#8. */
  readonly privateKey: string;
  /** PEM, the certificate first, then its issuers without the root. */
  readonly certificate: string;
}

export interface IssueInit {
  readonly days: number;
  readonly now: Date;
}

const DAY_MS = 86_400_000;
/** A certificate is valid from a little earlier, as with Kubernetes' signer: clocks differ by minutes. */
const BACKDATE_MS = 5 * 60_000;
/** 127 bits at random: positive, and never the same twice. */
const SERIAL_BYTES = 16;

/** A new self-signed CA, P-256. It may have one other below it: the one that follows it. */
export function makeAuthority(commonName: string, { days, now }: IssueInit): CertificateAuthority {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  const name = encodeName([{ type: "CN", value: commonName }]);
  const extensions = [
    basicConstraints(1),
    keyUsage(KEY_USAGE.digitalSignature | KEY_USAGE.keyCertSign | KEY_USAGE.cRLSign),
    subjectKeyIdentifier(keyIdentifier(spki)),
  ];
  const subject = { name, publicKey: spki, extensions };
  const certificate = issue({ name, key: privateKey, notAfterMs: Number.POSITIVE_INFINITY }, subject, { days, now });
  return { certificate, key: privateKey };
}

/**
 * `next`'s certificate as it would be if `old` had issued it: leads those who trust `old` to what `next` signs. PEM.
 */
export function crossSign(old: CertificateAuthority, next: CertificateAuthority, now: Date): string {
  const [oldDer = new Uint8Array()] = certificatesOf(old.certificate);
  const [nextDer = new Uint8Array()] = certificatesOf(next.certificate);
  const [issuer, subject] = [parseCertificate(oldDer), parseCertificate(nextDer)];
  const extensions = [
    basicConstraints(0),
    keyUsage(KEY_USAGE.digitalSignature | KEY_USAGE.keyCertSign | KEY_USAGE.cRLSign),
    subjectKeyIdentifier(keyIdentifier(subject.publicKey)),
    authorityKeyIdentifier(subjectKeyIdentifierOf(oldDer) ?? keyIdentifier(issuer.publicKey)),
  ];
  const { notAfterMs } = issuer;
  const days = (subject.notAfterMs - now.getTime()) / DAY_MS;
  const from = { name: issuer.subject, key: old.key, notAfterMs };
  return issue(from, { name: subject.subject, publicKey: subject.publicKey, extensions }, { days, now });
}

/** @param certificatePem only its first certificate is used. @throws `invalid` when the two do not belong together */
export function loadAuthority(certificatePem: string, keyPem: string): CertificateAuthority {
  const [first] = certificatesOf(certificatePem);
  if (first === undefined) throw new PicoletError("invalid", "there is no CA certificate");
  let key: KeyObject;
  let parsed: X509Certificate;
  try {
    key = createPrivateKey(keyPem);
    parsed = new X509Certificate(first);
  } catch (error) {
    throw new PicoletError("invalid", "cannot read the CA", { cause: error });
  }
  if (!parsed.ca) throw new PicoletError("invalid", "the certificate of the CA is not that of a CA");
  if (!parsed.checkPrivateKey(key))
    throw new PicoletError("invalid", "the CA's key does not belong to its certificate");
  return { certificate: encodePem("CERTIFICATE", first), key };
}

/** SHA-256 over the SubjectPublicKeyInfo, as kubeadm's discovery-token-ca-cert-hash: `sha256:<hex>`. */
export function caHash(certificatePem: string): string {
  const [first] = certificatesOf(certificatePem);
  return `sha256:${spkiHash(parseCertificate(first ?? new Uint8Array()).publicKey)}`;
}

/** Lower-case hex. */
export const spkiHash = (publicKey: Uint8Array): string => createHash("sha256").update(publicKey).digest("hex");

/**
 * @param csr PEM
 * @throws `invalid` for what is no request, or is not signed by its own key
 */
export function readRequest(csr: string): CertificateRequest {
  const [block, ...more] = parsePem(csr);
  if (block === undefined || more.length > 0 || !/^(NEW )?CERTIFICATE REQUEST$/.test(block.label)) {
    throw new PicoletError("invalid", "there is not exactly one certificate request in the PEM text");
  }
  const request = parseCertificateRequest(block.der);
  if (!isSelfSigned(request)) throw new PicoletError("invalid", "the request is not signed by its own key");
  return request;
}

/**
 * For TLS clients. The subject is the request's; nothing else of it but the key is taken over.
 * @param csr PEM, or what `readRequest` made of it
 * @returns PEM, one certificate
 */
export function issueClientCertificate(
  ca: CertificateAuthority,
  csr: string | CertificateRequest,
  init: IssueInit,
): string {
  const request = typeof csr === "string" ? readRequest(csr) : csr;
  return issueFor(ca, request, [extendedKeyUsage(CLIENT_AUTH)], init);
}

/**
 * For TLS servers, with these names and addresses instead of the request's.
 * @param names DNS names (`*.example` too) and IP addresses
 * @returns PEM, one certificate
 */
export function issueServerCertificate(
  ca: CertificateAuthority,
  request: Pick<CertificateRequest, "subject" | "publicKey">,
  names: readonly string[],
  init: IssueInit,
): string {
  return issueServingCertificate(ca, request, alternativeNames(names), init);
}

/** For TLS servers, with the names and addresses of `names`, which the caller has checked. @returns PEM */
export function issueServingCertificate(
  ca: CertificateAuthority,
  request: Pick<CertificateRequest, "subject" | "publicKey">,
  names: AlternativeNames,
  init: IssueInit,
): string {
  return issueFor(ca, request, [extendedKeyUsage(SERVER_AUTH), subjectAltName(names)], init);
}

/** A new P-256 key with a server certificate for it. */
export function makeServerPair(ca: CertificateAuthority, names: readonly string[], init: IssueInit): KeyPair {
  return makePair([{ type: "CN", value: "picolet-hub" }], (request) =>
    issueServerCertificate(ca, request, names, init),
  );
}

/** A new P-256 key with a client certificate for `subject`. */
export function makeClientPair(ca: CertificateAuthority, subject: readonly NameAttribute[], init: IssueInit): KeyPair {
  return makePair(subject, (request) => issueFor(ca, request, [extendedKeyUsage(CLIENT_AUTH)], init));
}

type Wish = Pick<CertificateRequest, "subject" | "publicKey">;

function makePair(subject: readonly NameAttribute[], issueTo: (request: Wish) => string): KeyPair {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const certificate = issueTo({ subject, publicKey: publicKey.export({ type: "spki", format: "der" }) });
  return { privateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(), certificate };
}

function issueFor(
  ca: CertificateAuthority,
  { subject, publicKey }: Pick<CertificateRequest, "subject" | "publicKey">,
  purposes: readonly Extension[],
  init: IssueInit,
): string {
  const [caDer = new Uint8Array()] = certificatesOf(ca.certificate);
  const issuer = parseCertificate(caDer);
  const isRsa =
    createPublicKey({ key: Buffer.from(publicKey), type: "spki", format: "der" }).asymmetricKeyType === "rsa";
  const extensions = [
    basicConstraints(undefined),
    keyUsage(KEY_USAGE.digitalSignature | (isRsa ? KEY_USAGE.keyEncipherment : 0)),
    ...purposes,
    subjectKeyIdentifier(keyIdentifier(publicKey)),
    authorityKeyIdentifier(subjectKeyIdentifierOf(caDer) ?? keyIdentifier(issuer.publicKey)),
  ];
  const { notAfterMs } = issuer;
  return issue(
    { name: issuer.subject, key: ca.key, notAfterMs },
    { name: encodeName(subject), publicKey, extensions },
    init,
  );
}

interface Issuer {
  readonly name: Uint8Array;
  readonly key: KeyObject;
  /** Nothing that it issues counts longer than it does itself. */
  readonly notAfterMs: number;
}

function issue(
  issuer: Issuer,
  subject: { readonly name: Uint8Array; readonly publicKey: Uint8Array; readonly extensions: readonly Extension[] },
  { days, now }: IssueInit,
): string {
  const serial = randomBytes(SERIAL_BYTES);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  const { digest, algorithm } = signatureOf(issuer.key);
  const bytes = encodeCertificate(
    {
      serial,
      issuer: issuer.name,
      subject: subject.name,
      notBeforeMs: now.getTime() - BACKDATE_MS,
      notAfterMs: Math.min(now.getTime() + days * DAY_MS, issuer.notAfterMs),
      publicKey: subject.publicKey,
      extensions: subject.extensions,
      signatureAlgorithm: algorithm,
    },
    (signed) => signBytes(digest, signed, issuer.key),
  );
  return encodePem("CERTIFICATE", bytes);
}

/** By the kind of the CA's key; kubeadm's CAs are RSA 2048. */
function signatureOf(key: KeyObject): { readonly digest: "sha256" | "sha384" | null; readonly algorithm: Uint8Array } {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  if (type === "rsa") {
    return { digest: "sha256", algorithm: derSequence(derOid("1.2.840.113549.1.1.11"), Uint8Array.of(TAG.null, 0)) };
  }
  if (type === "ed25519") return { digest: null, algorithm: derSequence(derOid("1.3.101.112")) };
  if (type !== "ec") throw new PicoletError("invalid", `cannot sign with a CA key of type ${type}`);
  return details?.namedCurve === "secp384r1"
    ? { digest: "sha384", algorithm: derSequence(derOid("1.2.840.10045.4.3.3")) }
    : { digest: "sha256", algorithm: derSequence(derOid("1.2.840.10045.4.3.2")) };
}

/** Method 1 of RFC 7093: the first 160 bits of the SHA-256 over the key. */
const keyIdentifier = (publicKey: Uint8Array): Uint8Array =>
  createHash("sha256").update(publicKey).digest().subarray(0, 20);

function subjectKeyIdentifierOf(certificate: Uint8Array): Uint8Array | undefined {
  const { oid } = subjectKeyIdentifier(new Uint8Array());
  const value = parseCertificate(certificate).extensions.find((each) => each.oid === oid)?.value;
  return value === undefined ? undefined : value.subarray(2);
}

const DIGESTS: Readonly<Record<string, string>> = {
  "1.2.840.10045.4.3.2": "sha256",
  "1.2.840.10045.4.3.3": "sha384",
  "1.2.840.10045.4.3.4": "sha512",
  "1.2.840.113549.1.1.11": "sha256",
  "1.2.840.113549.1.1.12": "sha384",
  "1.2.840.113549.1.1.13": "sha512",
};
const ED25519 = "1.3.101.112";

function isSelfSigned({ publicKey, signed, signature, signatureAlgorithm }: CertificateRequest): boolean {
  const digest = signatureAlgorithm === ED25519 ? null : DIGESTS[signatureAlgorithm];
  if (digest === undefined) throw new PicoletError("invalid", `the request is signed with ${signatureAlgorithm}`);
  try {
    const key = createPublicKey({ key: Buffer.from(publicKey), type: "spki", format: "der" });
    const isOfKey = (key.asymmetricKeyType === "ed25519") === (digest === null);
    return isOfKey && verifyBytes(digest, signed, key, signature);
  } catch (error) {
    throw new PicoletError("invalid", "the request's key is of an unknown kind", { cause: error });
  }
}

function alternativeNames(names: readonly string[]): AlternativeNames {
  return {
    dns: names.filter((name) => isIP(name) === 0),
    addresses: names.filter((name) => isIP(name) !== 0).map(addressBytes),
  };
}
