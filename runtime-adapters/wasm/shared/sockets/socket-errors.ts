/** How wasi:sockets fails. */
import { errnoOf } from "@picolet/protocol/guards.ts";
import { Failure } from "../resources/failure.ts";

/**
 * `wasi:sockets/network.error-code`, as far as Linux can bring it about; `connection-broken` is a code of WASI 0.3
 * alone.
 */
export type NetworkErrorCode =
  | "unknown"
  | "access-denied"
  | "not-supported"
  | "invalid-argument"
  | "out-of-memory"
  | "timeout"
  | "concurrency-conflict"
  | "not-in-progress"
  | "would-block"
  | "invalid-state"
  | "new-socket-limit"
  | "address-not-bindable"
  | "address-in-use"
  | "remote-unreachable"
  | "connection-refused"
  | "connection-broken"
  | "connection-reset"
  | "connection-aborted"
  | "datagram-too-large"
  | "name-unresolvable"
  | "temporary-resolver-failure"
  | "permanent-resolver-failure";

const CODES: Readonly<Record<string, NetworkErrorCode>> = {
  EACCES: "access-denied",
  EPERM: "access-denied",
  EOPNOTSUPP: "not-supported",
  EAFNOSUPPORT: "not-supported",
  EINVAL: "invalid-argument",
  ENOMEM: "out-of-memory",
  ENOBUFS: "out-of-memory",
  ETIMEDOUT: "timeout",
  EMFILE: "new-socket-limit",
  ENFILE: "new-socket-limit",
  EADDRNOTAVAIL: "address-not-bindable",
  EADDRINUSE: "address-in-use",
  EHOSTUNREACH: "remote-unreachable",
  EHOSTDOWN: "remote-unreachable",
  ENETUNREACH: "remote-unreachable",
  ENETDOWN: "remote-unreachable",
  ENONET: "remote-unreachable",
  ECONNREFUSED: "connection-refused",
  ECONNRESET: "connection-reset",
  EPIPE: "connection-broken",
  ECONNABORTED: "connection-aborted",
  EMSGSIZE: "datagram-too-large",
  // getaddrinfo(3).
  ENOTFOUND: "name-unresolvable",
  ENODATA: "name-unresolvable",
  EAI_NODATA: "name-unresolvable",
  EAI_AGAIN: "temporary-resolver-failure",
  EAI_FAIL: "permanent-resolver-failure",
  EAI_MEMORY: "out-of-memory",
};

export const networkFailure = (code: NetworkErrorCode): Failure<NetworkErrorCode> => new Failure(code);

/** @param error of Node */
export const networkErrorCode = (error: unknown): NetworkErrorCode => CODES[errnoOf(error)] ?? "unknown";
