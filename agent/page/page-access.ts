/** The token, key and certificate of a page on an address of the network: made once and kept. */
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { mkdir, open, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { encodeCertificate } from "@picolet/protocol/pki/certificate.ts";
import { derOid, derSequence } from "@picolet/protocol/pki/der.ts";
import { encodeName } from "@picolet/protocol/pki/distinguished-name.ts";
import {
  basicConstraints,
  extendedKeyUsage,
  KEY_USAGE,
  keyUsage,
  SERVER_AUTH,
  subjectAltName,
} from "@picolet/protocol/pki/extensions.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";

export interface PageAccess {
  readonly token: string;
  /** PEM: the key and its self-signed certificate. */
  readonly keyAndCertificate: string;
}

const TOKEN_BYTES = 32;
const MIN_TOKEN_LENGTH = 32;
const SERIAL_BYTES = 16;
const ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2";
/** RFC 5280: a certificate without a well-defined end. A board's clock may be anything. */
const NOT_AFTER_MS = Date.UTC(9999, 11, 31, 23, 59, 59);
const NOT_BEFORE_MS = Date.UTC(2020, 0, 1);

/** @param folder made with mode 0700 @param name of the node */
export async function pageAccess(folder: string, name: string): Promise<PageAccess> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const token = await keptText(join(folder, "token"), () => randomBytes(TOKEN_BYTES).toString("hex"));
  if (token.length < MIN_TOKEN_LENGTH || /[^!-~]/.test(token)) {
    const message = `the token in ${join(folder, "token")} has less than ${MIN_TOKEN_LENGTH} printable characters`;
    throw new PicoletError("invalid", `${message}; without the file a new one is made`);
  }
  return { token, keyAndCertificate: await keptText(join(folder, "tls.pem"), () => selfSigned(name)) };
}

async function keptText(path: string, make: () => string): Promise<string> {
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw error;
  }
  const text = make();
  // Whole or not at all, also after a power cut.
  const file = await open(`${path}.new`, "w", 0o600);
  try {
    await file.writeFile(`${text}\n`);
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
  return text;
}

/** For a browser whose user accepts it once; nothing else trusts it. */
function selfSigned(name: string): string {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const subject = encodeName([{ type: "CN", value: name }]);
  const serial = randomBytes(SERIAL_BYTES);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  const certificate = encodeCertificate(
    {
      ...{ serial, issuer: subject, subject, notBeforeMs: NOT_BEFORE_MS, notAfterMs: NOT_AFTER_MS },
      publicKey: publicKey.export({ type: "spki", format: "der" }),
      extensions: [
        basicConstraints(undefined),
        keyUsage(KEY_USAGE.digitalSignature),
        extendedKeyUsage(SERVER_AUTH),
        subjectAltName({ dns: [name], addresses: [] }),
      ],
      signatureAlgorithm: derSequence(derOid(ECDSA_WITH_SHA256)),
    },
    (signed) => sign("sha256", signed, privateKey),
  );
  const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  return `${key}${encodePem("CERTIFICATE", certificate)}`.trim();
}
