import { createPrivateKey, X509Certificate } from "node:crypto";

/** PEM. The certificate may have its issuers behind it. */
export interface Pair {
  readonly cert: string;
  readonly key: string;
}

/** A file of a certificate and its key. A power cut leaves the former or the new one. */
export interface PairFile {
  read(): string | undefined;
  write(text: string): void;
  /** Nothing happens when there is none. */
  remove(): void;
}

/** Certificates, then the key. */
const PAIR =
  /^((?:-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n)+)(-----BEGIN PRIVATE KEY-----[\s\S]*)$/;

/** Undefined for a file that is missing or damaged: another pair is made. */
export function parsePair(text: string | undefined): Pair | undefined {
  const [, cert, key] = PAIR.exec(text ?? "") ?? [];
  if (cert === undefined || key === undefined) return undefined;
  try {
    return new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)) ? { cert, key } : undefined;
  } catch {
    return undefined;
  }
}
