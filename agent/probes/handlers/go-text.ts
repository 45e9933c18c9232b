/** Texts as the kubelet's messages have them, which are written by Go's formatting. */

const ESCAPES: Readonly<Record<string, string>> = {
  "\u0007": "\\a",
  "\b": "\\b",
  "\f": "\\f",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\u000b": "\\v",
  "\\": "\\\\",
  '"': '\\"',
};
const NOT_PRINTABLE = /["\\]|[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu;

/**
 * As `%q` of a string. @param text of bytes from a socket: as UTF-8 if it is that, else with what is no ASCII escaped.
 */
export function goQuote(text: string | Uint8Array): string {
  const isText = typeof text === "string";
  const decoded = isText ? text : decodeUtf8(text);
  if (decoded !== undefined) return `"${decoded.replaceAll(NOT_PRINTABLE, escapeRune)}"`;
  const bytes = isText ? "" : Buffer.from(text).toString("latin1");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  const escaped = bytes.replaceAll(/["\\\u0000-\u001f\u007f-\u00ff]/g, (each) => ESCAPES[each] ?? hexByte(each));
  return `"${escaped}"`;
}

function decodeUtf8(bytes: Uint8Array): string | undefined {
  const text = Buffer.from(bytes).toString("utf8");
  return text.includes("\ufffd") ? undefined : text;
}

const hexByte = (char: string): string => `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`;

function escapeRune(rune: string): string {
  const known = ESCAPES[rune];
  if (known !== undefined) return known;
  const code = rune.codePointAt(0) ?? 0;
  if (code < 0x80) return hexByte(rune);
  const hex = code.toString(16);
  return code > 0xffff ? `\\U${hex.padStart(8, "0")}` : `\\u${hex.padStart(4, "0")}`;
}

/** As `%v` of a duration of whole seconds: `40s`, `2m40s`, `1h0m0s`. */
export function goSeconds(seconds: number): string {
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  const rest = `${minutes % 60}m${seconds % 60}s`;
  return minutes < 60 ? rest : `${Math.floor(minutes / 60)}h${rest}`;
}

/** An address with its port, an IPv6 one in brackets. */
export const joinHostPort = (host: string, port: number): string =>
  host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;

/** By errno, as Go names it; others are shown as Node has them. */
const SYSTEM_ERRORS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset by peer",
  EHOSTUNREACH: "no route to host",
  ENETUNREACH: "network is unreachable",
  EHOSTDOWN: "host is down",
  ETIMEDOUT: "connection timed out",
  EADDRNOTAVAIL: "cannot assign requested address",
  EACCES: "permission denied",
  EPERM: "operation not permitted",
  EMFILE: "too many open files",
  ENFILE: "too many open files in system",
  EINVAL: "invalid argument",
  EPIPE: "broken pipe",
};

const systemError = ({ code = "", message }: NodeJS.ErrnoException): string => SYSTEM_ERRORS[code] ?? message;

/** Why no connection came to be. @param host as it was asked for, a name perhaps. */
export function dialError(error: NodeJS.ErrnoException, host: string, port: number): string {
  if (error.syscall?.startsWith("query")) {
    const why = error.code === "ENOTFOUND" || error.code === "ENODATA" ? "no such host" : error.message;
    return `dial tcp: lookup ${host}: ${why}`;
  }
  return `dial tcp ${joinHostPort(host, port)}: connect: ${systemError(error)}`;
}

export interface ConnectionEnds {
  readonly localAddress?: string | undefined;
  readonly localPort?: number | undefined;
  readonly host: string;
  readonly port: number;
}

/** Why a connection that stood broke. */
export function connectionError(error: NodeJS.ErrnoException, ends: ConnectionEnds): string {
  const verb = error.syscall === "write" ? "write" : "read";
  const local = joinHostPort(ends.localAddress ?? "", ends.localPort ?? 0);
  return `${verb} tcp ${local}->${joinHostPort(ends.host, ends.port)}: ${verb}: ${systemError(error)}`;
}
