/** X.509 certificates (RFC 5280): written for those we issue, read as far as the checks of a chain need it. */

import { PicoletError } from "../errors.ts";
import {
  bitStringOf,
  contextConstructed,
  contextPrimitive,
  DerReader,
  der,
  derBitString,
  derInteger,
  derOf,
  derSequence,
  derTime,
  equalBytes,
  TAG,
} from "./der.ts";
import { type Extension, encodeExtension, readExtensions } from "./extensions.ts";

/** A certificate with a hundred names has 4 KiB. A longer one is refused unread. */
export const MAX_CERTIFICATE_BYTES = 16_384;

const VERSION_3 = derInteger(Uint8Array.of(2));

export interface Certificate {
  readonly raw: Uint8Array;
  /** The bytes that the issuer signed. */
  readonly signed: Uint8Array;
  /** Names as DER: compared byte by byte, read only where their content matters. */
  readonly issuer: Uint8Array;
  readonly subject: Uint8Array;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array;
  readonly extensions: readonly Extension[];
  readonly signatureAlgorithm: string;
}

export interface CertificateContent {
  /** Big-endian, at most 20 bytes. */
  readonly serial: Uint8Array;
  readonly issuer: Uint8Array;
  readonly subject: Uint8Array;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly publicKey: Uint8Array;
  readonly extensions: readonly Extension[];
  /** AlgorithmIdentifier, DER. */
  readonly signatureAlgorithm: Uint8Array;
}

/** @returns DER */
export function encodeCertificate(content: CertificateContent, sign: (signed: Uint8Array) => Uint8Array): Uint8Array {
  const { serial, issuer, subject, notBeforeMs, notAfterMs, publicKey, extensions, signatureAlgorithm } = content;
  const signed = derSequence(
    der(contextConstructed(0), VERSION_3),
    derInteger(serial),
    signatureAlgorithm,
    issuer,
    derSequence(derTime(notBeforeMs), derTime(notAfterMs)),
    subject,
    publicKey,
    der(contextConstructed(3), derSequence(...extensions.map(encodeExtension))),
  );
  return derSequence(signed, signatureAlgorithm, derBitString(sign(signed)));
}

/** @throws `invalid`. The signature is not checked here. */
export function parseCertificate(bytes: Uint8Array): Certificate {
  if (bytes.length > MAX_CERTIFICATE_BYTES) throw new PicoletError("invalid", "the certificate is too long");
  const certificate = derOf(bytes, TAG.sequence, "certificate");
  const signed = certificate.expect(TAG.sequence, "certificate's content");
  const algorithm = certificate.expect(TAG.sequence, "signature algorithm");
  bitStringOf(certificate.expect(TAG.bitString, "signature"));
  certificate.end("the certificate");
  const content = new DerReader(signed.content);
  const version = content.expect(contextConstructed(0), "version").content;
  if (!equalBytes(version, VERSION_3)) throw new PicoletError("invalid", "the certificate is not of version 3");
  content.expect(TAG.integer, "serial number");
  if (!equalBytes(content.expect(TAG.sequence, "signature algorithm").whole, algorithm.whole)) {
    throw new PicoletError("invalid", "the certificate names two signature algorithms");
  }
  const issuer = content.expect(TAG.sequence, "issuer").whole;
  const validity = content.sequence("validity");
  const notBeforeMs = readTime(validity);
  const notAfterMs = readTime(validity);
  validity.end("the validity");
  const subject = content.expect(TAG.sequence, "subject").whole;
  const publicKey = content.expect(TAG.sequence, "public key").whole;
  content.optional(contextPrimitive(1));
  content.optional(contextPrimitive(2));
  const extensions = content.optional(contextConstructed(3));
  content.end("the certificate's content");
  return {
    raw: bytes,
    signed: signed.whole,
    issuer,
    subject,
    notBeforeMs,
    notAfterMs,
    publicKey,
    extensions: extensions === undefined ? [] : readExtensions(extensions.content),
    signatureAlgorithm: new DerReader(algorithm.content).oid("signature algorithm"),
  };
}

/** The forms that RFC 5280 allows: to the second, in UTC. */
function readTime(reader: DerReader): number {
  const { tag, content } = reader.next();
  const text = String.fromCharCode(...content.subarray(0, 16));
  const isUtc = tag === TAG.utcTime;
  const full = isUtc ? `${Number(text.slice(0, 2)) >= 50 ? "19" : "20"}${text}` : text;
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(full) ?? [];
  const iso = `${year}-${month}-${day}T${hour}:${minute}:${second}Z`;
  const atMs = Date.parse(iso);
  const isTime = isUtc || tag === TAG.generalizedTime;
  // Date.parse takes the 31st of February for March.
  if (!isTime || Number.isNaN(atMs) || new Date(atMs).toISOString() !== iso.replace("Z", ".000Z")) {
    throw new PicoletError("invalid", "malformed time in a certificate");
  }
  return atMs;
}
