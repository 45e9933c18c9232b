/** Converts an API server's error answer into a PicoletError. */
import { type ErrorCode, PicoletError } from "@picolet/protocol/errors.ts";

interface Meaning {
  readonly code: ErrorCode;
  readonly retryable: boolean;
}

const meaning = (code: ErrorCode, retryable = false): Meaning => ({ code, retryable });

/** By HTTP status; what is not named: 5xx `unavailable`, the rest `failed`. */
const MEANINGS: Readonly<Record<number, Meaning>> = {
  400: meaning("invalid"),
  401: meaning("permission_denied"),
  403: meaning("permission_denied"),
  404: meaning("not_found"),
  405: meaning("unimplemented"),
  406: meaning("unimplemented"),
  409: meaning("conflict"),
  410: meaning("conflict"),
  413: meaning("resource_exhausted"),
  415: meaning("unimplemented"),
  422: meaning("invalid"),
  429: meaning("unavailable", true),
  501: meaning("unimplemented"),
  504: meaning("deadline_exceeded", true),
};

/** A refusal of an object with hundreds of faults is cut here. */
const MAX_MESSAGE_LENGTH = 2048;

/**
 * @param body the answer's, a Status (meta/v1) if all is well
 * @param what "get pod default/web"
 */
export function responseError(httpStatus: number, body: unknown, what: string): PicoletError {
  const status = isStatus(body) ? body : {};
  const code = typeof status.code === "number" && status.code >= 400 ? status.code : httpStatus;
  const message = (typeof status.message === "string" ? status.message : `HTTP ${code}`).slice(0, MAX_MESSAGE_LENGTH);
  const found = typeof status.reason === "string" && status.reason !== "" ? status.reason : undefined;
  const reason = code === 410 ? "Expired" : found;
  const { code: errorCode, retryable } = meaningOf(code, reason, message);
  const cause = new Error(message);
  return new PicoletError(errorCode, `cannot ${what}`, {
    retryable,
    cause,
    ...(reason === undefined ? {} : { reason }),
  });
}

function meaningOf(code: number, reason: string | undefined, message: string): Meaning {
  if (code === 409 && reason === "AlreadyExists") return meaning("already_exists");
  if (code === 403 && /exceeded quota/.test(message)) return meaning("resource_exhausted");
  return MEANINGS[code] ?? (code >= 500 ? meaning("unavailable", true) : meaning("failed"));
}

interface Status {
  readonly code?: unknown;
  readonly reason?: unknown;
  readonly message?: unknown;
}

const isStatus = (body: unknown): body is Status =>
  typeof body === "object" && body !== null && (body as { kind?: unknown }).kind === "Status";
