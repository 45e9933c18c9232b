/** Errors of a connection to a registry, in words that name the host, the problem, and how to fix it. */
import { type ErrorCode, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { certificateProblem, UNTRUSTED } from "../shared/network/certificate-problems.ts";
import { parseChallenges } from "./challenge.ts";

const TLS_ADVICE = "name the authority in wasm.registries[].caFile";

/** Messages for the codes of OpenSSL and Node. */
const TLS_FAILURES: ReadonlyMap<string, string> = new Map([
  ["ERR_SSL_WRONG_VERSION_NUMBER", "it speaks no TLS: for plain HTTP set wasm.registries[].insecure"],
  ["ERR_SSL_PACKET_LENGTH_TOO_LONG", "it speaks no TLS"],
]);

function ofCertificate(code: string): string | undefined {
  const problem = certificateProblem(code);
  return problem === UNTRUSTED ? `${problem}: ${TLS_ADVICE}` : problem;
}

const NETWORK_FAILURES: ReadonlyMap<string, string> = new Map([
  ["ECONNREFUSED", "connection refused"],
  ["ECONNRESET", "the connection was reset"],
  ["EPIPE", "the connection was lost"],
  ["UND_ERR_SOCKET", "the connection was lost"],
  ["ENOTFOUND", "its name is not known"],
  ["EAI_AGAIN", "its name cannot be resolved now"],
  ["EHOSTUNREACH", "no route to it"],
  ["ENETUNREACH", "the network cannot be reached"],
  ["ETIMEDOUT", "it did not answer in time"],
  ["UND_ERR_CONNECT_TIMEOUT", "it did not answer in time"],
  ["UND_ERR_HEADERS_TIMEOUT", "it did not answer in time"],
  ["UND_ERR_BODY_TIMEOUT", "it has stopped sending"],
]);

/** Node gives several reasons when a name has several addresses. */
function codesOf(error: unknown, depth = 0): string[] {
  if (!(error instanceof Error) || depth > 3) return [];
  const own = "code" in error && typeof error.code === "string" ? [error.code] : [];
  const several = error instanceof AggregateError ? error.errors.flatMap((each) => codesOf(each, depth + 1)) : [];
  return [...own, ...several, ...codesOf(error.cause, depth + 1)];
}

/** The status that a proxy answers in the place of a tunnel; undici has it in its message alone. */
const PROXY_STATUS = /\((\d{3})\)/;

/** @param proxy its URL, without a password */
export function proxyFailure(error: unknown, host: string, proxy: string): PicoletError {
  const where = `${host} through the proxy ${proxy}`;
  const status =
    error instanceof Error && /proxy/i.test(error.message) ? PROXY_STATUS.exec(error.message)?.[1] : undefined;
  if (status === "407") return unavailable(`cannot reach ${where}: it wants a user and a password, or others (407)`);
  if (status !== undefined) return unavailable(`cannot reach ${where}: it refuses (${status})`);
  return networkFailure(error, where);
}

/** `unavailable` for all that keeps the registry from answering, a wrong certificate too. */
export function networkFailure(error: unknown, host: string): PicoletError {
  if (isPicoletError(error)) return error;
  const codes = codesOf(error);
  const why = codes
    .map((code) => ofCertificate(code) ?? TLS_FAILURES.get(code) ?? NETWORK_FAILURES.get(code))
    .find((each) => each !== undefined);
  const known = why ?? (isTimeout(error) ? "it did not answer in time" : undefined);
  if (known !== undefined) return unavailable(`cannot reach ${host}: ${known}`);
  return new PicoletError("unavailable", `cannot speak to ${host}`, { cause: error, retryable: true });
}

const isTimeout = (error: unknown): boolean => error instanceof Error && error.name === "TimeoutError";

export const unavailable = (message: string): PicoletError =>
  new PicoletError("unavailable", message, { retryable: true });

/** An answer that is no success. @param told what the registry says itself, shortened */
export function statusFailure(status: number, what: string, host: string, reported: string): PicoletError {
  const said = reported === "" ? "" : `: ${reported}`;
  const failure = (code: ErrorCode, message: string): PicoletError =>
    new PicoletError(code, `${host} ${message}${said}`, { retryable: true });
  if (status === 404) return failure("not_found", `has no ${what}`);
  if (status === 429) return failure("unavailable", "wants to be asked less often (429)");
  if (status >= 500) return failure("unavailable", `cannot answer now (${status})`);
  return failure("failed", `answers ${status} when asked for ${what}`);
}

/** Says which login was refused, so that its owner can correct it. */
export function refusal(host: string, status: number, tried: string, reported: string): PicoletError {
  const said = reported === "" ? "" : `: ${reported}`;
  return new PicoletError("permission_denied", `${host} does not let this node in (${status}), tried ${tried}${said}`, {
    retryable: true,
  });
}

const MAX_TOLD_LENGTH = 200;

/**
 * The first of a registry's own errors (distribution-spec, "Error Codes"), and what it has against the token that it
 * was shown: `insufficient_scope` where it opens something else, `invalid_token` where it has run out (RFC 6750,
 * section 3.1). "" where there is nothing. @param asked the header WWW-Authenticate
 */
export function registryErrorText(body: string, asked = ""): string {
  const reasons = parseChallenges(asked).map(({ parameters }) => parameters.get("error"));
  return printable([...reasons, ...errorOf(body)].filter((each) => typeof each === "string").join(": "));
}

function errorOf(body: string): readonly unknown[] {
  try {
    const { errors } = JSON.parse(body) as { errors?: readonly { code?: unknown; message?: unknown }[] };
    return [errors?.[0]?.code, errors?.[0]?.message];
  } catch {
    return [];
  }
}

/** A registry's words end in events and on terminals. */
export const printable = (text: string): string =>
  text
    .replace(/[^\x20-\x7e]+/g, " ")
    .trim()
    .slice(0, MAX_TOLD_LENGTH);
