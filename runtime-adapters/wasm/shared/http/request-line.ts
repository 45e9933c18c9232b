/** Methods, schemes and authorities as wasi:http has them. Pure. */
export type Method = { readonly tag: string; readonly val?: string | undefined };
export type Scheme = { readonly tag: "HTTP" | "HTTPS" } | { readonly tag: "other"; readonly val: string };

const METHODS: ReadonlySet<string> = new Set([
  ...["get", "head", "post", "put", "delete", "connect", "options", "trace", "patch"],
]);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** RFC 9112, 3.2.1, with the characters that are sent as they are; no white space and no fragment. */
const PATH = /^(?:[/?][!-"$-~]*|\*|)$/;
/** RFC 3986, 3.2.2 and 3.2.3; a host of a URI has no other characters. */
const AUTHORITY = /^(?:\[[0-9a-fA-F:.]+\]|[!$%&'()*+,\-.;=_~0-9A-Za-z]+)(?::(\d{1,5}))?$/;
/** RFC 9110, 7.2: host and port as RFC 3986 has them, either of which may be empty. */
const HOST =
  /^(?:\[(?:[0-9a-fA-F:.]+|v[0-9a-fA-F]+\.[!$&'()*+,\-.:;=_~0-9A-Za-z]+)\]|(?:[!$&'()*+,\-.;=_~0-9A-Za-z]|%[0-9a-fA-F]{2})*)(?::\d*)?$/i;
const SCHEME = /^[a-zA-Z][a-zA-Z0-9+.-]*$/;
const MAX_PORT = 65_535;

export function methodOf(text: string): Method {
  const lower = text.toLowerCase();
  return METHODS.has(lower) && text === text.toUpperCase() ? { tag: lower } : { tag: "other", val: text };
}

/** Undefined: it is none. */
export function methodText({ tag, val }: Method): string | undefined {
  if (tag !== "other") return tag.toUpperCase();
  return val !== undefined && TOKEN.test(val) ? val : undefined;
}

export const isPathWithQuery = (text: string): boolean => PATH.test(text);

/** @returns whether this may be the field `Host` of a request */
export const isHostField = (text: string): boolean => HOST.test(text);

export const isScheme = (scheme: Scheme): boolean => scheme.tag !== "other" || SCHEME.test(scheme.val);

export interface Authority {
  /** IPv6 without brackets. */
  readonly host: string;
  readonly port: number | undefined;
}

/** Undefined: it is none. Names and passwords are refused. */
export function parseAuthority(text: string): Authority | undefined {
  const match = AUTHORITY.exec(text);
  if (match === null) return undefined;
  const [, digits] = match;
  const port = digits === undefined ? undefined : Number(digits);
  if (port !== undefined && (port === 0 || port > MAX_PORT)) return undefined;
  const host = digits === undefined ? text : text.slice(0, -digits.length - 1);
  return { host: host.replace(/^\[|\]$/g, ""), port };
}

/**
 * Reads `Content-Length`.
 * @returns undefined when it is missing, null when it is invalid
 */
export function contentLength(values: readonly string[]): number | undefined | null {
  const text = values[0]?.trim();
  if (text === undefined) return undefined;
  for (const each of values) if (each.trim() !== text) return null;
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}
