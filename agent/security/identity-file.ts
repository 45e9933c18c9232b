/**
 * The one file that a node's identity is: key, certificate and the hub's CAs together, so that none can be there
 * without the others. PEM blocks between comment lines, which `openssl x509 -in` and people can read.
 */
import { createPrivateKey, hash, X509Certificate } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseCertificate } from "@picolet/protocol/pki/certificate.ts";
import { DerReader } from "@picolet/protocol/pki/der.ts";
import { readName } from "@picolet/protocol/pki/distinguished-name.ts";
import { nodeOfSubject } from "@picolet/protocol/pki/node-subject.ts";
import { certificatesOf } from "@picolet/protocol/pki/pem.ts";

export interface StoredIdentity {
  /** PEM, PKCS#8. */
  readonly privateKey: string;
  /** PEM, the node's own first. */
  readonly certificateChain: string;
  /** PEM. */
  readonly hubCa: string;
  /** The configured trust when `hubCa` was learned (`trustOf`). */
  readonly trust: string;
}

export interface NodeCertificateFacts {
  readonly node: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

const HEAD = "# picolet node identity 1: key, certificate, CAs of the hub. Replaced as a whole; do not edit.";
const TRUST = "# trust ";
const CERTIFICATE = "# certificate";
const HUB_CA = "# hub ca";
const CHECKSUM = "# sha256 ";

export function encodeIdentity({ privateKey, certificateChain, hubCa, trust }: StoredIdentity): string {
  const lines = [
    HEAD,
    `${TRUST}${trust}`,
    privateKey.trim(),
    CERTIFICATE,
    certificateChain.trim(),
    HUB_CA,
    hubCa.trim(),
  ];
  const text = `${lines.join("\n")}\n`;
  return `${text}${CHECKSUM}${hash("sha256", text)}\n`;
}

/** @throws `corrupt` for anything that `encodeIdentity` did not make, and where key and certificate do not match */
export function parseIdentity(text: string): StoredIdentity {
  const end = text.lastIndexOf(CHECKSUM);
  const content = text.slice(0, Math.max(0, end));
  if (end < 0 || text.slice(end) !== `${CHECKSUM}${hash("sha256", content)}\n`) {
    throw new PicoletError("corrupt", "the identity file is cut off or changed");
  }
  const match =
    /^(# picolet node identity 1:.*)\n# trust (.*)\n([^#]+\n)# certificate\n([^#]+\n)# hub ca\n([^#]+\n)$/.exec(
      content,
    );
  const [, , trust, privateKey, certificateChain, hubCa] = match ?? [];
  if (trust === undefined || privateKey === undefined || certificateChain === undefined || hubCa === undefined) {
    throw new PicoletError("corrupt", "the identity file is not as this version writes it");
  }
  const identity = { trust, privateKey, certificateChain, hubCa };
  checkIdentity(identity);
  return identity;
}

/**
 * @returns whose it is. @throws `corrupt` unless it can be used: certificates that can be read, a key that belongs to
 * the first
 */
export function checkIdentity({ privateKey, certificateChain, hubCa }: StoredIdentity): NodeCertificateFacts {
  try {
    certificatesOf(hubCa).forEach(parseCertificate);
    const [own = new Uint8Array()] = certificatesOf(certificateChain);
    const { subject, notBeforeMs, notAfterMs } = parseCertificate(own);
    const node = nodeOfSubject(readName(new DerReader(subject)));
    if (!new X509Certificate(own).checkPrivateKey(createPrivateKey(privateKey))) {
      throw new PicoletError("corrupt", "the key does not belong to the certificate");
    }
    return { node, notBeforeMs, notAfterMs };
  } catch (error) {
    throw new PicoletError("corrupt", "the node's identity cannot be used", { cause: error });
  }
}
