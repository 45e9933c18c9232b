/** How wasi:sockets of WASI 0.3 fails: by the codes of 0.2, of which some have become one, and some a text. */
import { Failure } from "../../shared/resources/failure.ts";
import type { NetworkErrorCode } from "../../shared/sockets/socket-errors.ts";
import { streamCode } from "./byte-flow.ts";

/** Codes that are the same for all operations. */
type Other = { readonly tag: "other"; readonly val: string | undefined };

export type SocketError =
  | { readonly tag: Exclude<NetworkErrorCode, keyof typeof OF_SOCKETS> }
  | { readonly tag: "invalid-state" }
  | Other;

export type LookupError =
  | {
      readonly tag:
        | "access-denied"
        | "invalid-argument"
        | "name-unresolvable"
        | "temporary-resolver-failure"
        | "permanent-resolver-failure";
    }
  | Other;

/** Codes that replace those that 0.3 does not have. */
const OF_SOCKETS = {
  unknown: { tag: "other", val: undefined },
  "new-socket-limit": {
    tag: "other",
    val: "new-socket-limit: the component has as many sockets as it may have at once, release some",
  },
  "concurrency-conflict": { tag: "invalid-state" },
  "not-in-progress": { tag: "invalid-state" },
  "would-block": { tag: "invalid-state" },
  "name-unresolvable": { tag: "other", val: "name-unresolvable" },
  "temporary-resolver-failure": { tag: "other", val: "temporary-resolver-failure" },
  "permanent-resolver-failure": { tag: "other", val: "permanent-resolver-failure" },
} as const;

const OF_LOOKUPS: ReadonlySet<NetworkErrorCode> = new Set([
  "access-denied",
  "invalid-argument",
  "name-unresolvable",
  "temporary-resolver-failure",
  "permanent-resolver-failure",
]);

export const socketError = (code: NetworkErrorCode): SocketError =>
  Object.hasOwn(OF_SOCKETS, code)
    ? OF_SOCKETS[code as keyof typeof OF_SOCKETS]
    : { tag: code as Exclude<NetworkErrorCode, keyof typeof OF_SOCKETS> };

export const lookupError = (code: NetworkErrorCode): LookupError =>
  OF_LOOKUPS.has(code)
    ? { tag: code as "access-denied" }
    : { tag: "other", val: code === "unknown" ? undefined : code };

/**
 * @param error of a source or a sink
 * @throws errors that do not concern the component
 */
export function streamError(error: unknown): SocketError {
  const code = streamCode(error, "network") as NetworkErrorCode | undefined;
  if (code !== undefined) return socketError(code);
  // It was closed.
  if (error instanceof Failure) return { tag: "connection-broken" };
  throw error;
}

/** Runs a call of sockets of 0.2. Its errors become those of 0.3. */
export function attempt<T>(call: () => T, translated: (code: NetworkErrorCode) => unknown = socketError): T {
  try {
    return call();
  } catch (error) {
    throw error instanceof Failure ? new Failure(translated((error as Failure<NetworkErrorCode>).payload)) : error;
  }
}
