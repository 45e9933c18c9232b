/** The file of one kept token: sealed, bound to its pod and volume; plain where the agent has no keys. */
import type { Sealer } from "../../core/store/sealer.ts";

/** A token on disk. */
export interface KeptToken {
  readonly token: string;
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
  /** The pod, account, audience and duration it was issued for. With any of them changed, a new token is needed. */
  readonly purpose: string;
}

/** The file: its pod's folder and its own name. */
export interface KeptTokenFile {
  readonly uid: string;
  readonly name: string;
}

const identityOf = ({ uid, name }: KeptTokenFile): readonly string[] => ["token", uid, name];

export function encodeKeptToken(token: KeptToken, file: KeptTokenFile, sealer: Sealer | undefined): string {
  const text = JSON.stringify(token);
  if (sealer === undefined) return text;
  return JSON.stringify({ sealed: sealer.seal(identityOf(file), Buffer.from(text)).toString("base64") });
}

/** @returns undefined for one that is damaged or does not open: a token can always be asked for again */
export function parseKeptToken(text: string, file: KeptTokenFile, sealer: Sealer | undefined): KeptToken | undefined {
  const { sealed, token, issuedAtMs, expiresAtMs, purpose } = fieldsOf(text);
  if (typeof sealed === "string") {
    const plain = sealer?.open(identityOf(file), Buffer.from(sealed, "base64"));
    return plain && parseKeptToken(plain.toString("utf8"), file, undefined);
  }
  if (typeof token !== "string" || typeof purpose !== "string") return undefined;
  if (typeof issuedAtMs !== "number" || typeof expiresAtMs !== "number") return undefined;
  return { token, issuedAtMs, expiresAtMs, purpose };
}

/** @returns the generation of the key that the file is sealed with; 0 for a plain file */
export function generationOf(text: string, sealer: Sealer): number {
  const { sealed } = fieldsOf(text);
  return typeof sealed === "string" ? sealer.generationOf(Buffer.from(sealed, "base64")) : 0;
}

function fieldsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    return (JSON.parse(text) ?? {}) as Readonly<Record<string, unknown>>;
  } catch {
    return {};
  }
}
