/** Reads boards' certificate requests, which ask to be one node and nothing else. */
import { createPublicKey } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { nodeOfSubject } from "@picolet/protocol/pki/node-subject.ts";
import { encodePem, parsePem } from "@picolet/protocol/pki/pem.ts";
import { readRequest, spkiHash } from "./certificate-authority.ts";

export interface NodeRequest {
  readonly node: string;
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array;
  readonly spkiHash: string;
  /** PEM of the request alone, without what may have stood around it. */
  readonly pem: string;
  readonly der: Uint8Array;
}

/**
 * Reads a node's request by a key of any kind that can sign it, as the signer of kubelets' client certificates does.
 * @throws `invalid`, `permission_denied` for another subject than a node's
 */
export function readNodeRequest(csr: string): NodeRequest {
  const request = readRequest(csr);
  const { publicKey } = request;
  const node = nodeOfSubject(request.subject);
  if (request.extensions.length > 0 || request.hasOtherAttributes) {
    throw new PicoletError("invalid", "the request asks for more than a name: no extensions, no other attributes");
  }
  const der = parsePem(csr)[0]?.der ?? new Uint8Array();
  return { node, publicKey, spkiHash: spkiHash(publicKey), pem: encodePem("CERTIFICATE REQUEST", der), der };
}

const CURVES: ReadonlySet<string | undefined> = new Set(["prime256v1", "secp384r1"]);

/**
 * Reads a board's request: `readNodeRequest`, with the kinds of keys that boards make.
 * @param csr PEM
 * @throws `invalid`, `permission_denied` for another subject than a node's
 */
export function checkNodeRequest(csr: string): NodeRequest {
  const wanted = readNodeRequest(csr);
  const key = createPublicKey({ key: Buffer.from(wanted.publicKey), type: "spki", format: "der" });
  if (key.asymmetricKeyType !== "ec" || !CURVES.has(key.asymmetricKeyDetails?.namedCurve)) {
    throw new PicoletError("invalid", "the request's key has to be ECDSA on P-256 or P-384");
  }
  return wanted;
}
