/** PKCS#10 (RFC 2986): made by hand on the board, which spares it an ASN.1 library, and read strictly on the hub. */

import { PicoletError } from "../errors.ts";
import {
  bitStringOf,
  contextConstructed,
  DerReader,
  der,
  derBitString,
  derInteger,
  derOf,
  derOid,
  derSequence,
  derSet,
  equalBytes,
  TAG,
} from "./der.ts";
import { encodeName, type NameAttribute, readName } from "./distinguished-name.ts";
import { type Extension, encodeExtension, readExtensions } from "./extensions.ts";

/** RSA 4096 with some names has 2 KiB. A longer one is refused unread. */
export const MAX_REQUEST_BYTES = 8192;

export interface CertificateRequest {
  readonly subject: readonly NameAttribute[];
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array;
  /** The requested extensions; never copied into a certificate without a check. */
  readonly extensions: readonly Extension[];
  readonly hasOtherAttributes: boolean;
  /** The bytes that `signature` covers. */
  readonly signed: Uint8Array;
  readonly signatureAlgorithm: string;
  readonly signature: Uint8Array;
}

/** `pkcs-9-at-extensionRequest` */
const EXTENSION_REQUEST = "1.2.840.113549.1.9.14";
const ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2";

/**
 * @param publicKey SubjectPublicKeyInfo of a P-256 key
 * @param sign ECDSA with SHA-256 by that key, as DER
 * @param extensions requested ones; none: the request has no attribute
 * @returns DER
 */
export function encodeCertificateRequest(
  subject: readonly NameAttribute[],
  publicKey: Uint8Array,
  sign: (signed: Uint8Array) => Uint8Array,
  extensions: readonly Extension[] = [],
): Uint8Array {
  const version = derInteger(Uint8Array.of(0));
  const attributes = extensions.length === 0 ? [] : [extensionRequest(extensions)];
  const signed = derSequence(version, encodeName(subject), publicKey, der(contextConstructed(0), ...attributes));
  return derSequence(signed, derSequence(derOid(ECDSA_WITH_SHA256)), derBitString(sign(signed)));
}

const extensionRequest = (extensions: readonly Extension[]): Uint8Array =>
  derSequence(derOid(EXTENSION_REQUEST), derSet(derSequence(...extensions.map(encodeExtension))));

/** @throws `invalid`. The signature is not checked here. */
export function parseCertificateRequest(bytes: Uint8Array): CertificateRequest {
  if (bytes.length > MAX_REQUEST_BYTES) throw new PicoletError("invalid", "the certificate request is too long");
  const request = derOf(bytes, TAG.sequence, "certificate request");
  const signed = request.expect(TAG.sequence, "certification request info");
  const algorithm = request.sequence("signature algorithm");
  const signatureAlgorithm = algorithm.oid("signature algorithm");
  const signature = bitStringOf(request.expect(TAG.bitString, "signature"));
  request.end("the certificate request");
  const info = new DerReader(signed.content);
  const version = info.expect(TAG.integer, "version");
  if (!equalBytes(version.content, Uint8Array.of(0)))
    throw new PicoletError("invalid", "the request's version is not 1");
  const subject = readName(info);
  const publicKey = info.expect(TAG.sequence, "public key").whole;
  const attributes = info.optional(contextConstructed(0));
  info.end("the certification request info");
  return {
    subject,
    publicKey,
    ...readAttributes(attributes?.content ?? new Uint8Array()),
    signed: signed.whole,
    signatureAlgorithm,
    signature,
  };
}

function readAttributes(content: Uint8Array): Pick<CertificateRequest, "extensions" | "hasOtherAttributes"> {
  const attributes = new DerReader(content);
  const extensions: Extension[] = [];
  let hasOtherAttributes = false;
  while (!attributes.atEnd) {
    const attribute = attributes.sequence("attribute");
    const type = attribute.oid("type of an attribute");
    const values = new DerReader(attribute.expect(TAG.set, "values of an attribute").content);
    attribute.end("an attribute");
    if (type === EXTENSION_REQUEST) {
      extensions.push(...readExtensions(values.expect(TAG.sequence, "extensions").whole));
      values.end("the extensions");
    } else hasOtherAttributes = true;
  }
  return { extensions, hasOtherAttributes };
}
