/** wasi:http/types.error-code, as far as this host uses it, and the codes of Node's errors. */
import { errnoOf } from "@picolet/protocol/guards.ts";
import { Failure } from "../resources/failure.ts";
import { HostError, type StreamContext } from "../resources/streams.ts";

export type HttpErrorCode =
  | { readonly tag: PlainCode }
  | {
      readonly tag: "DNS-error";
      readonly val: { readonly rcode: string | undefined; readonly infoCode: number | undefined };
    }
  | {
      readonly tag: "TLS-alert-received";
      readonly val: { readonly alertId: number | undefined; readonly alertMessage: string | undefined };
    }
  | { readonly tag: "HTTP-request-body-size" | "HTTP-response-body-size"; readonly val: bigint | undefined }
  | { readonly tag: "HTTP-response-header-section-size"; readonly val: number | undefined }
  | { readonly tag: "HTTP-response-transfer-coding" | "internal-error"; readonly val: string | undefined };

/** Codes without a payload. */
export type PlainCode =
  | "DNS-timeout"
  | "destination-not-found"
  | "destination-unavailable"
  | "destination-IP-prohibited"
  | "destination-IP-unroutable"
  | "connection-refused"
  | "connection-terminated"
  | "connection-timeout"
  | "connection-read-timeout"
  | "connection-write-timeout"
  | "connection-limit-reached"
  | "TLS-protocol-error"
  | "TLS-certificate-error"
  | "HTTP-request-denied"
  | "HTTP-request-length-required"
  | "HTTP-request-method-invalid"
  | "HTTP-request-URI-invalid"
  | "HTTP-request-URI-too-long"
  | "HTTP-response-incomplete"
  | "HTTP-response-timeout"
  | "HTTP-upgrade-failed"
  | "HTTP-protocol-error"
  | "loop-detected"
  | "configuration-error";

const OF_NODE: Readonly<Record<string, HttpErrorCode>> = {
  EAI_AGAIN: { tag: "DNS-timeout" },
  ENOTFOUND: { tag: "DNS-error", val: { rcode: "NXDOMAIN", infoCode: undefined } },
  ENODATA: { tag: "DNS-error", val: { rcode: "NODATA", infoCode: undefined } },
  ECONNREFUSED: { tag: "connection-refused" },
  ECONNRESET: { tag: "connection-terminated" },
  EPIPE: { tag: "connection-terminated" },
  ERR_STREAM_PREMATURE_CLOSE: { tag: "HTTP-response-incomplete" },
  ETIMEDOUT: { tag: "connection-timeout" },
  EHOSTUNREACH: { tag: "destination-IP-unroutable" },
  ENETUNREACH: { tag: "destination-IP-unroutable" },
  EADDRNOTAVAIL: { tag: "destination-unavailable" },
  EACCES: { tag: "destination-IP-prohibited" },
  EMFILE: { tag: "connection-limit-reached" },
  HPE_HEADER_OVERFLOW: { tag: "HTTP-response-header-section-size", val: undefined },
  EPROTO: { tag: "TLS-protocol-error" },
};

/**
 * Matches the peer's TLS alert (RFC 8446, 6), which only OpenSSL's text has: "…:ssl/tls alert bad
 * certificate:FILE:LINE:SSL alert number 42".
 */
const ALERT = /:[a-z0-9/]+ (?:alert )?([a-z ]{1,64}):[^:]*:[^:]*:SSL alert number (\d{1,3})/;
const MAX_ALERT = 255;
/**
 * OpenSSL's codes for problems of a certificate: UNABLE_TO_VERIFY_LEAF_SIGNATURE, CERT_HAS_EXPIRED, ERR_TLS_CERT_…,
 * INVALID_CA, and Node's for the rarer ones (keys that are too small).
 */
const CERTIFICATE =
  /CERT|^UNABLE_TO_|^INVALID_(?:CA|PURPOSE)$|^PATH_LENGTH_EXCEEDED$|^HOSTNAME_MISMATCH$|^UNSPECIFIED$/;

/** @param error from `node:http`, `node:https` or `node:dns` */
export function httpErrorCode(error: unknown): HttpErrorCode {
  if (error instanceof HttpError) return error.reason;
  const errno = errnoOf(error);
  if (errno === "") return { tag: "internal-error", val: undefined };
  const [, words, number] = ALERT.exec((error as Error).message) ?? [];
  if (number !== undefined && Number(number) <= MAX_ALERT) {
    return { tag: "TLS-alert-received", val: { alertId: Number(number), alertMessage: words } };
  }
  const known = OF_NODE[errno];
  if (known !== undefined) return known;
  if (errno.startsWith("HPE_")) return { tag: "HTTP-protocol-error" };
  if (errno.startsWith("ERR_SSL_") || errno.startsWith("ERR_TLS_HANDSHAKE")) return { tag: "TLS-protocol-error" };
  if (CERTIFICATE.test(errno)) return { tag: "TLS-certificate-error" };
  return { tag: "internal-error", val: errno };
}

/** Carries an error code through Node's streams to the component. */
export class HttpError extends Error {
  readonly reason: HttpErrorCode;

  constructor(reason: HttpErrorCode) {
    super(reason.tag);
    this.reason = reason;
  }
}

/** As the error of a stream. */
export const httpStreamFailure = (context: StreamContext, code: HttpErrorCode): Failure<unknown> =>
  new Failure({ tag: "last-operation-failed", val: new HostError(context.handles, "http", code) });
