/** Guards for values of unknown type. */

/** An object of JSON: neither null nor a list. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** `ENOENT` and the like, also Node's and SQLite's own codes; "" for an error without a code. */
export const errnoOf = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
