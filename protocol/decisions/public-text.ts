/**
 * Texts that may be kept in the black box and shown to any reader of it. A plain string is none: it must pass one of
 * these functions, which take credentials away and bound the length.
 */

declare const brand: unique symbol;
export type PublicText = string & { readonly [brand]: "PublicText" };

/** The longest name of Kubernetes, and most image references. */
const MAX_NAME = 253;
/** Three lines of a serial console. The event of the same failure has up to 1,024 characters. */
const MAX_MESSAGE = 240;

const NOT_IN_NAMES = /[^\w.:/@+~,()[\] -]/g;

/** Names, reasons and references: any other character becomes "?". A reference with a user name loses it. */
export const publicName = (text: string): PublicText =>
  cut(withoutUser(text).replace(NOT_IN_NAMES, "?"), MAX_NAME) as PublicText;

/** A message of picolet, a runtime or a registry, without credentials and control characters. */
export const publicMessage = (text: string): PublicText => {
  // Cut before, too: what is not kept is not searched.
  const line = cut(text, MAX_MESSAGE * 8).replace(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, " ");
  return cut(
    CREDENTIALS.reduce((shown, [pattern, by]) => shown.replace(pattern, by), withoutUser(line)).trim(),
    MAX_MESSAGE,
  ) as PublicText;
};

/** As `publicMessage`, without what it quotes: the texts of a manifest that it complains about. */
export const publicProblem = (text: string): PublicText =>
  publicMessage(text.replace(/"(?:[^"\\]|\\.)*"|`[^`]*`|'[^']{16,}'/g, "…"));

/** Credentials in URLs, headers, query strings and assignments, and tokens that stand alone. */
const CREDENTIALS: readonly (readonly [pattern: RegExp, by: string])[] = [
  [/(\w+:\/\/[^\s"'?#]*)[?#][^\s"']*/g, "$1?***"],
  [/\b(bearer|basic|digest|token)\s+[\w.~+/=-]{8,}/gi, "$1 ***"],
  [
    /\b([\w-]*(?:password|passwd|secret|token|api[_-]?key|credential|authorization)[\w-]*["']?\s*[:=]\s*)["']?[^\s"',;]+["']?/gi,
    "$1***",
  ],
  [/\beyJ[\w-]{8,}(?:\.[\w-]*){0,4}/g, "***"],
  // Base64 and hexadecimal keys. Digests stay: they name images.
  [/(?<!sha256:)(?<![\w/+=-])(?=[\w/+-]*\d)(?=[\w/+-]*[A-Z])[A-Za-z0-9/+_-]{32,}={0,2}(?![\w/+=-])/g, "***"],
];

const withoutUser = (text: string): string => text.replace(/(\w+:\/\/)[^\s/@"']*@/g, "$1***@");

const cut = (text: string, length: number): string => (text.length <= length ? text : `${text.slice(0, length - 1)}…`);
