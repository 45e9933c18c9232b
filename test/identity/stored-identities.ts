/** Identities as they are stored, of one node, each with a key of its own. */
import { generateKeyPairSync } from "node:crypto";
import { makeNodeRequest } from "@picolet/agent/security/certificate-requests.ts";
import type { StoredIdentity } from "@picolet/agent/security/identity-file.ts";
import { issueClientCertificate, makeAuthority } from "@picolet/hub/identity/certificate-authority.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";

export function storedIdentities(count: number, now: Date = new Date()): StoredIdentity[] {
  const ca = makeAuthority("kubernetes", { days: 30, now });
  return Array.from({ length: count }, (): StoredIdentity => {
    const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
    const privateKey = key.export({ type: "pkcs8", format: "pem" }).toString();
    const csr = encodePem("CERTIFICATE REQUEST", makeNodeRequest("board-1", privateKey));
    const certificateChain = issueClientCertificate(ca, csr, { days: 20, now });
    return { privateKey, certificateChain, hubCa: ca.certificate, trust: "sha256:0" };
  });
}
