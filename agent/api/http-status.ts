import type { ErrorCode } from "@picolet/protocol/errors.ts";

/** The status of an answer of the local API and of the page that is an error. */
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
