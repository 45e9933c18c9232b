/** PEM (RFC 7468): strict about what is between the lines of a block, indifferent to what is between blocks. */
import { PicoletError } from "../errors.ts";

export interface PemBlock {
  /** `CERTIFICATE`, `PRIVATE KEY` … */
  readonly label: string;
  readonly der: Uint8Array;
}

/** A chain, a bundle of CAs in rotation, a key: none comes near it. A longer text is refused unread. */
export const MAX_PEM_CHARACTERS = 65_536;
/** Bounds the blocks in one text, which is a chain or a bundle of certificates. */
const MAX_PEM_BLOCKS = 32;
const LINE_LENGTH = 64;

export function encodePem(label: string, bytes: Uint8Array): string {
  const base64 = encodeBase64(bytes);
  const lines = base64.match(new RegExp(`.{1,${LINE_LENGTH}}`, "g")) ?? [];
  return `-----BEGIN ${label}-----\n${lines.map((line) => `${line}\n`).join("")}-----END ${label}-----\n`;
}

/**
 * @returns all blocks, in their order; none is fine
 * @throws `invalid` for a text that is too long, a block without its end, and what is no base64
 */
export function parsePem(text: string): PemBlock[] {
  if (text.length > MAX_PEM_CHARACTERS) throw new PicoletError("invalid", "the PEM text is too long");
  const blocks: PemBlock[] = [];
  let open: { label: string; base64: string } | undefined;
  for (const raw of text.split("\n")) {
    const line = raw.trimEnd();
    const [, kind, label] = /^-----(BEGIN|END) ([A-Z0-9 ]{1,64})-----$/.exec(line) ?? [];
    if (kind === "BEGIN" && label !== undefined) {
      if (open !== undefined) throw new PicoletError("invalid", "a PEM block begins within another");
      open = { label, base64: "" };
    } else if (kind === "END") {
      if (open === undefined || open.label !== label) throw new PicoletError("invalid", "a PEM block ends as another");
      blocks.push({ label, der: decodeBase64(open.base64) });
      open = undefined;
      if (blocks.length > MAX_PEM_BLOCKS) throw new PicoletError("invalid", "too many PEM blocks");
    } else if (open !== undefined) open.base64 += line;
  }
  if (open !== undefined) throw new PicoletError("invalid", "a PEM block has no end");
  return blocks;
}

/** The DER of every certificate in `text`, in order. @throws `invalid` as `parsePem`, and when there is none */
export function certificatesOf(text: string): Uint8Array[] {
  const found = parsePem(text)
    .filter(({ label }) => label === "CERTIFICATE")
    .map(({ der }) => der);
  if (found.length === 0) throw new PicoletError("invalid", "there is no certificate in the PEM text");
  return found;
}

const CHUNK = 8192;

export function encodeBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += CHUNK) binary += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(binary);
}

/** @throws `invalid` for anything but padded base64 without spaces */
export function decodeBase64(text: string): Uint8Array {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) throw new PicoletError("invalid", "no base64");
  let binary: string;
  try {
    binary = atob(text);
  } catch (error) {
    throw new PicoletError("invalid", "no base64", { cause: error });
  }
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
