/** Checks that a peer is the hub: its certificate leads to a CA that this board trusts, and names the dialled host. */
import { hash, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Certificate, parseCertificate } from "@picolet/protocol/pki/certificate.ts";
import { verifyChain } from "@picolet/protocol/pki/chain.ts";
import { SERVER_AUTH } from "@picolet/protocol/pki/extensions.ts";
import { certificatesOf, encodePem } from "@picolet/protocol/pki/pem.ts";

export interface HubPins {
  /** `sha256:<hex>` over the SubjectPublicKeyInfo of a CA of the hub, as kubeadm's discovery-token-ca-cert-hash. */
  readonly caHashes: readonly string[];
  /** PEM: the CAs themselves; "" when only their hashes are given. */
  readonly ca: string;
}

/**
 * Identifies the configured trust: it changes with the configuration, so that a board with another CA learns the hub
 * again.
 */
export const trustOf = ({ caHashes, ca }: HubPins): string =>
  [...caHashes.map((each) => each.toLowerCase()), ...(ca === "" ? [] : [`file:${hash("sha256", ca)}`])]
    .toSorted()
    .join(",");

/**
 * The CAs of `bundle`, which any peer may have sent, that are pinned.
 * @returns PEM
 * @throws `permission_denied` when there is none, `invalid` for what is no bundle
 */
export function pinnedCas(bundle: string, { caHashes, ca }: HubPins): string {
  if (ca !== "") return ca;
  const pins = new Set(caHashes.map((each) => each.toLowerCase()));
  const pinned = certificatesOf(bundle).filter((each) => pins.has(`sha256:${spkiHashOf(each)}`));
  if (pinned.length > 0) return pinned.map((each) => encodePem("CERTIFICATE", each)).join("");
  const shown = certificatesOf(bundle).map((each) => `sha256:${spkiHashOf(each)}`);
  throw new PicoletError(
    "permission_denied",
    `this is not the hub: its CA is ${shown.join(", ")}, and the configuration (hub.caHash) has ${caHashes.join(", ")}`,
  );
}

const spkiHashOf = (certificate: Uint8Array): string => hash("sha256", parseCertificate(certificate).publicKey);

export interface HubTime {
  readonly atMs: number;
  /** `atMs` is only known to be no later than now. */
  readonly isLowerBound: boolean;
}

/**
 * @param chain DER, the hub's own certificate first
 * @param host name or address that was dialled
 * @param hubCa PEM
 * @returns the hub's certificate and those above it
 * @throws `permission_denied` with a ChainRefusal as reason
 */
export function verifyHub(
  chain: readonly Uint8Array[],
  host: string,
  hubCa: string,
  time: HubTime,
): readonly Certificate[] {
  const path = verifyChain({
    chain,
    anchors: certificatesOf(hubCa),
    purpose: SERVER_AUTH,
    time: { ...time, graceMs: 0 },
    isSignedBy,
  });
  const own = new X509Certificate(chain[0] ?? new Uint8Array());
  const isNamed =
    isIP(host) === 0 ? own.checkHost(host, { subject: "never", partialWildcards: false }) : own.checkIP(host);
  if (isNamed === undefined) {
    throw new PicoletError("permission_denied", `the hub's certificate is for ${own.subjectAltName}, not for ${host}`, {
      reason: "CertificateUnfit",
    });
  }
  return path;
}

/** OpenSSL also checks names, key identifiers and key usage. */
function isSignedBy({ raw }: Certificate, issuer: Certificate): boolean {
  try {
    const authority = new X509Certificate(issuer.raw);
    const own = new X509Certificate(raw);
    return own.checkIssued(authority) && own.verify(authority.publicKey);
  } catch {
    // A certificate that OpenSSL cannot read is refused, even if our parser accepts it.
    return false;
  }
}
