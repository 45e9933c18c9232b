/** Answers of the agent's own API: values, streams and errors. */
import { describeError, type ErrorCode, PicoletError } from "@picolet/protocol/errors.ts";
import type { ApiError } from "@picolet/protocol/local-api/status.ts";

export type Answer =
  | { readonly kind: "json"; readonly body: unknown; readonly refused?: true }
  | { readonly kind: "bytes"; readonly body: Uint8Array }
  /** A complete answer. */
  | { readonly kind: "pieces"; readonly pieces: Iterable<string> }
  | {
      readonly kind: "stream";
      /** NDJSON: one JSON object a line. */
      readonly contentType: "application/x-ndjson" | "text/plain";
      /** A note for the user beside the stream; "" for none. */
      readonly notice: string;
      /** To be called once there is room for another stream; what it gives must then be read or returned. */
      readonly open: () => Promise<AsyncIterable<string | Uint8Array>>;
    };

export const HTTP_STATUS: Readonly<Record<ErrorCode, number>> = {
  cancelled: 503,
  invalid: 400,
  not_found: 404,
  already_exists: 409,
  conflict: 409,
  unavailable: 503,
  deadline_exceeded: 504,
  resource_exhausted: 429,
  permission_denied: 403,
  unimplemented: 501,
  corrupt: 500,
  failed: 500,
  internal: 500,
};

export interface ErrorAnswer {
  readonly code: ErrorCode;
  readonly status: number;
  readonly body: ApiError;
}

export function errorAnswer(error: unknown): ErrorAnswer {
  const code = error instanceof PicoletError ? error.code : "internal";
  return { code, status: HTTP_STATUS[code], body: { error: { code, message: describeError(error) } } };
}
