/**
 * Reads what `wasm.http.caFile` names: authorities for components' https requests. Loaded where it is needed: most
 * nodes have no such file, and most components make no such request.
 */
import { X509Certificate } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";

/** All authorities of the web are 220 KiB. It goes to a runner with its launch, and stays in its memory. */
export const MAX_AUTHORITIES_BYTES = 256 * KIBIBYTE;

const BEGIN = "-----BEGIN CERTIFICATE-----";
const END = "-----END CERTIFICATE-----";
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;

/** @returns its certificates and nothing else of it: PEM. @throws `invalid` with what is wrong and how to mend it */
export function readAuthorities(path: string): string {
  try {
    return certificatesOf(textOf(path));
  } catch (error) {
    throw new PicoletError("invalid", `cannot use the authorities in ${path} (wasm.http.caFile): ${reasonOf(error)}`, {
      retryable: true,
    });
  }
}

/** Why a file is none, in words of this module. */
class Unusable extends Error {}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file; put them there, or name none",
  ENOTDIR: "there is no such file; put them there, or name none",
  EACCES: "the agent may not read it",
  ELOOP: "its links lead in a circle",
};

function reasonOf(error: unknown): string {
  if (error instanceof Unusable) return error.message;
  const errno = errnoOf(error);
  return REASONS[errno] ?? `it cannot be read (${errno})`;
}

/** @throws for anything but a regular file: reading a FIFO would hold up the agent */
function textOf(path: string): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new Unusable("it is no file");
    const bytes = Buffer.alloc(MAX_AUTHORITIES_BYTES + 1);
    let length = 0;
    for (let more = -1; more !== 0 && length < bytes.length; length += more) {
      more = readSync(fd, bytes, length, bytes.length - length, null);
    }
    if (length > MAX_AUTHORITIES_BYTES) {
      throw new Unusable(
        `it has ${Math.max(length, stat.size)} bytes, more than ${MAX_AUTHORITIES_BYTES}: name those that are needed alone`,
      );
    }
    return bytes.toString("latin1", 0, length);
  } finally {
    closeSync(fd);
  }
}

function certificatesOf(text: string): string {
  let found = "";
  for (let at = text.indexOf(BEGIN), number = 1; at >= 0; number += 1) {
    const end = text.indexOf(END, at);
    if (end < 0) throw new Unusable(`certificate ${number} has no end: the file was cut off`);
    const block = text.slice(at, end + END.length);
    checkAuthority(block, number);
    found += `${block}\n`;
    at = text.indexOf(BEGIN, end);
  }
  if (found !== "") return found;
  throw new Unusable(
    text.startsWith("0")
      ? "it is DER, not PEM: convert it with openssl x509 -inform der"
      : `it holds no certificate: PEM begins with ${BEGIN}`,
  );
}

function checkAuthority(block: string, number: number): void {
  let certificate: X509Certificate;
  try {
    // OpenSSL passes over what is none, and may find another certificate behind it.
    if (!BASE64.test(block.slice(BEGIN.length, -END.length))) throw new Unusable("there is more in it");
    certificate = new X509Certificate(block);
  } catch {
    throw new Unusable(`certificate ${number} cannot be read: the file is damaged`);
  }
  const { ca, subject, issuer } = certificate;
  // A self-signed server certificate is an authority for itself.
  if (ca || subject === issuer) return;
  throw new Unusable(
    `certificate ${number} (${shown(subject)}) is no authority's: name that of who signed it, ${shown(issuer)}`,
  );
}

/** Shortens a distinguished name, which OpenSSL writes on several lines. */
const shown = (name: string | undefined): string => (name ?? "").replaceAll("\n", ", ").slice(0, 200);
