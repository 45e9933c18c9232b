import { generateKeyPairSync, sign } from "node:crypto";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";

/** PEM: a request for `O=system:nodes, CN=<commonName>` by a new key. */
export function nodesRequest(commonName: string): string {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const subject = [
    { type: "O", value: "system:nodes" },
    { type: "CN", value: commonName },
  ] as const;
  const spki = publicKey.export({ type: "spki", format: "der" });
  return encodePem(
    "CERTIFICATE REQUEST",
    encodeCertificateRequest(subject, spki, (bytes) => sign("sha256", bytes, privateKey)),
  );
}
