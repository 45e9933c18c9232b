/** The board's requests to a hub for a certificate, a bundle of CAs and the time, and the checks of the answers. */
import { createPrivateKey, createPublicKey, randomBytes, sign, verify, X509Certificate } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import {
  CA_PATH,
  type CertificateAnswer,
  JOIN_PATH,
  type JoinRequest,
  NONCE_BYTES,
  NONCE_PATH,
  possessionStatement,
  RENEW_PATH,
  type RenewRequest,
  TIME_PATH,
  type TimeRequest,
  timeStatement,
} from "@picolet/protocol/pki/join-messages.ts";
import { nodeSubject } from "@picolet/protocol/pki/node-subject.ts";
import { certificatesOf, decodeBase64, encodeBase64, encodePem } from "@picolet/protocol/pki/pem.ts";
import { type HubConnection, parseObject } from "./hub-connection.ts";

/** @param key PEM, P-256. @returns PKCS#10, DER */
export function makeNodeRequest(node: string, key: string): Uint8Array {
  const privateKey = createPrivateKey(key);
  const publicKey = createPublicKey(privateKey).export({ type: "spki", format: "der" });
  return encodeCertificateRequest(nodeSubject(node), publicKey, (signed) => sign("sha256", signed, privateKey));
}

/** PEM, of an unverified sender: as trustworthy as the connection. */
export const requestCa = (connection: HubConnection, signal: AbortSignal): Promise<string> =>
  connection.get(CA_PATH, signal);

/** Over a connection whose peer was verified: it sees the token. */
export async function join(
  connection: HubConnection,
  request: { readonly node: string; readonly key: string; readonly token: string },
  signal: AbortSignal,
): Promise<CertificateAnswer> {
  const csr = encodePem("CERTIFICATE REQUEST", makeNodeRequest(request.node, request.key));
  const body: JoinRequest = { token: request.token, csr };
  return certificateAnswer(await connection.post(JOIN_PATH, body, signal));
}

/** @param request.oldKey of the certificate that the connection was made with */
export async function renew(
  connection: HubConnection,
  request: { readonly node: string; readonly key: string; readonly oldKey: string },
  signal: AbortSignal,
): Promise<CertificateAnswer> {
  const nonce = decodeBase64(textOf(parseObject(await connection.get(NONCE_PATH, signal)), "nonce"));
  if (nonce.length !== NONCE_BYTES) throw new PicoletError("invalid", "the hub's nonce is of another length");
  const csr = makeNodeRequest(request.node, request.key);
  const signature = sign("sha256", possessionStatement(nonce, csr), createPrivateKey(request.oldKey));
  const body: RenewRequest = { csr: encodePem("CERTIFICATE REQUEST", csr), signature: encodeBase64(signature) };
  return certificateAnswer(await connection.post(RENEW_PATH, body, signal));
}

/**
 * Requests the time, signed by one of the CAs of `hubCa` for this request: trusted with any certificate of the peer.
 * @throws `permission_denied` when no CA signed it
 */
export async function requestTime(connection: HubConnection, hubCa: string, signal: AbortSignal): Promise<number> {
  const nonce = randomBytes(NONCE_BYTES);
  const question: TimeRequest = { nonce: encodeBase64(nonce) };
  const { timeMs, signatures } = await connection.post(TIME_PATH, question, signal);
  if (typeof timeMs !== "number" || !Number.isSafeInteger(timeMs) || !Array.isArray(signatures)) {
    throw new PicoletError("invalid", "the hub's time is none");
  }
  const statement = timeStatement(nonce, timeMs);
  const keys = certificatesOf(hubCa).map((each) => new X509Certificate(each).publicKey);
  const isSigned = signatures.slice(0, MAX_SIGNATURES).some((signature: unknown) => {
    const bytes = typeof signature === "string" ? decodeBase64(signature) : new Uint8Array();
    return keys.some((key) => verify(key.asymmetricKeyType === "ed25519" ? null : "sha256", statement, key, bytes));
  });
  if (!isSigned) throw new PicoletError("permission_denied", "the hub's time is not signed by its CA");
  return timeMs;
}

/** One by the CA, one by the CA before it. */
const MAX_SIGNATURES = 4;

/** Parses the answer; the certificate's fields are checked elsewhere. @throws `invalid` */
export function certificateAnswer(body: Readonly<Record<string, unknown>>): CertificateAnswer {
  const { timeMs } = body;
  if (typeof timeMs !== "number" || !Number.isSafeInteger(timeMs)) throw new PicoletError("invalid", "no time");
  const [certificate, hubCa] = [textOf(body, "certificate"), textOf(body, "hubCa")];
  for (const text of [certificate, hubCa]) certificatesOf(text);
  return { certificate, hubCa, timeMs };
}

function textOf(body: Readonly<Record<string, unknown>>, field: string): string {
  const value = Object.hasOwn(body, field) ? body[field] : undefined;
  if (typeof value !== "string") throw new PicoletError("invalid", `the hub's answer has no ${field}`);
  return value;
}
