import { generateKeyPairSync, sign } from "node:crypto";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import {
  contextConstructed,
  der,
  derBitString,
  derInteger,
  derOid,
  derSequence,
  derSet,
} from "@picolet/protocol/pki/der.ts";
import { encodeName } from "@picolet/protocol/pki/distinguished-name.ts";
import { type Extension, encodeExtension } from "@picolet/protocol/pki/extensions.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";

const EXTENSION_REQUEST = "1.2.840.113549.1.9.14";
const ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2";

/** PEM: a request for `O=system:nodes, CN=<commonName>` by a new key. */
export function nodesRequest(commonName: string): string {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  return encodePem(
    "CERTIFICATE REQUEST",
    encodeCertificateRequest(subjectOf(commonName), spki, (bytes) => sign("sha256", bytes, privateKey)),
  );
}

/** PEM: as `nodesRequest`, with one attribute of requested extensions for each list. */
export function requestWithExtensions(commonName: string, ...lists: readonly (readonly Extension[])[]): string {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const attributes = lists.map((extensions) =>
    derSequence(derOid(EXTENSION_REQUEST), derSet(derSequence(...extensions.map(encodeExtension)))),
  );
  const signed = derSequence(
    derInteger(Uint8Array.of(0)),
    encodeName(subjectOf(commonName)),
    publicKey.export({ type: "spki", format: "der" }),
    der(contextConstructed(0), ...attributes),
  );
  const signature = derBitString(sign("sha256", signed, privateKey));
  return encodePem("CERTIFICATE REQUEST", derSequence(signed, derSequence(derOid(ECDSA_WITH_SHA256)), signature));
}

const subjectOf = (commonName: string) =>
  [
    { type: "O", value: "system:nodes" },
    { type: "CN", value: commonName },
  ] as const;
