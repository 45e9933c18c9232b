/** metav1.Status: every refusal of the API, in Kubernetes' own words, since kubectl prints them. */
import { type ErrorCode, PicoletError } from "@picolet/protocol/errors.ts";
import { describeFieldError, type FieldError } from "./field-errors.ts";
import { resourceName } from "./resource-definition.ts";

export interface StatusCause {
  readonly reason: string;
  readonly message: string;
  readonly field?: string;
}

export interface StatusDetails {
  readonly name?: string;
  readonly group?: string;
  readonly kind?: string;
  readonly uid?: string;
  readonly causes?: readonly StatusCause[];
  readonly retryAfterSeconds?: number;
}

/** HTTP code and PicoletError code of each reason. */
export const STATUS_REASONS = {
  BadRequest: [400, "invalid"],
  Unauthorized: [401, "permission_denied"],
  Forbidden: [403, "permission_denied"],
  NotFound: [404, "not_found"],
  MethodNotAllowed: [405, "unimplemented"],
  NotAcceptable: [406, "invalid"],
  AlreadyExists: [409, "already_exists"],
  Conflict: [409, "conflict"],
  Expired: [410, "conflict"],
  RequestEntityTooLarge: [413, "resource_exhausted"],
  UnsupportedMediaType: [415, "invalid"],
  Invalid: [422, "invalid"],
  TooManyRequests: [429, "unavailable"],
  InternalError: [500, "internal"],
  NotImplemented: [501, "unimplemented"],
  ServiceUnavailable: [503, "unavailable"],
  Timeout: [504, "unavailable"],
  /** Not Kubernetes': clients come back after `Retry-After`, as with every 5xx that has one. */
  InsufficientStorage: [507, "unavailable"],
} as const satisfies Readonly<Record<string, readonly [number, ErrorCode]>>;

export type StatusReason = keyof typeof STATUS_REASONS;

export class StatusError extends PicoletError {
  readonly statusCode: number;
  readonly details: StatusDetails | undefined;
  readonly #reason: StatusReason;

  constructor(reason: StatusReason, message: string, details?: StatusDetails, cause?: unknown) {
    const [statusCode, code] = STATUS_REASONS[reason];
    super(code, message, { reason, retryable: code === "unavailable", cause });
    this.statusCode = statusCode;
    this.details = details;
    this.#reason = reason;
  }

  toStatus(): Readonly<Record<string, unknown>> {
    const { message, details, statusCode } = this;
    return {
      kind: "Status",
      apiVersion: "v1",
      metadata: {},
      status: "Failure",
      message,
      reason: this.#reason,
      ...(details === undefined ? {} : { details }),
      code: statusCode,
    };
  }
}

interface Named {
  readonly group: string;
  readonly plural: string;
}

/** Kubernetes puts the plural into `details.kind` for most errors. */
const detailsOf = ({ group, plural }: Named, name: string): StatusDetails => ({
  ...(name === "" ? {} : { name }),
  ...(group === "" ? {} : { group }),
  kind: plural,
});

export const badRequest = (message: string): StatusError => new StatusError("BadRequest", message);

export const notFound = (resource: Named, name: string): StatusError =>
  new StatusError("NotFound", `${resourceName(resource)} "${name}" not found`, detailsOf(resource, name));

/** For a path that is no resource's. */
export const pathNotFound = (): StatusError =>
  new StatusError("NotFound", "the server could not find the requested resource", {});

export const alreadyExists = (resource: Named, name: string): StatusError =>
  new StatusError("AlreadyExists", `${resourceName(resource)} "${name}" already exists`, detailsOf(resource, name));

export const conflict = (resource: Named, name: string, why: string): StatusError =>
  new StatusError(
    "Conflict",
    `Operation cannot be fulfilled on ${resourceName(resource)} "${name}": ${why}`,
    detailsOf(resource, name),
  );

export const STALE_VERSION =
  "the object has been modified; please apply your changes to the latest version and try again";

export const forbidden = (resource: Named, name: string, why: string): StatusError =>
  new StatusError(
    "Forbidden",
    name === ""
      ? `${resourceName(resource)} is forbidden: ${why}`
      : `${resourceName(resource)} "${name}" is forbidden: ${why}`,
    detailsOf(resource, name),
  );

/** Errors of one object that a message lists: a few hundred bytes each, and an object may have tens of thousands. */
const MAX_LISTED_ERRORS = 100;

/** 422; `kind` as Kubernetes has it in the message: `Pod "x" is invalid: spec.y: Required value`. */
export function invalidObject(
  { group, kind }: { readonly group: string; readonly kind: string },
  name: string,
  errors: readonly FieldError[],
): StatusError {
  const qualified = group === "" ? kind : `${kind}.${group}`;
  const listed = errors.slice(0, MAX_LISTED_ERRORS);
  const texts = [...new Set(listed.map(describeFieldError))];
  if (errors.length > listed.length) texts.push(`and ${errors.length - listed.length} more errors`);
  const text = texts.length === 1 ? texts[0] : `[${texts.join(", ")}]`;
  return new StatusError("Invalid", `${qualified} "${name}" is invalid: ${text}`, {
    ...(name === "" ? {} : { name }),
    ...(group === "" ? {} : { group }),
    kind,
    causes: listed.map(({ type, field, message }) => ({ reason: type, message, field })),
  });
}

export const expired = (message: string): StatusError => new StatusError("Expired", message);

export const methodNotAllowed = (): StatusError =>
  new StatusError("MethodNotAllowed", "the server does not allow this method on the requested resource", {});

export const internalError = (cause: unknown): StatusError => {
  const text = cause instanceof Error ? cause.message : String(cause);
  return new StatusError(
    "InternalError",
    `Internal error occurred: ${text}`,
    { causes: [{ reason: "", message: text }] },
    cause,
  );
};

/** The answer to a write that returns no object. */
export const successStatus = (code: number): Readonly<Record<string, unknown>> => ({
  kind: "Status",
  apiVersion: "v1",
  metadata: {},
  status: "Success",
  code,
});
