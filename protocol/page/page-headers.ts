/** The headers and limits that the pages of boards and of the hub share. */

/** No script, style or request but of the page's own files, and no page around it. */
const CONTENT_SECURITY_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=()",
  "cache-control": "no-store",
};

/** For what a board says, at an origin that is not the board's: a browser shows it, and runs nothing of it. */
export const FOREIGN_CONTENT_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "cross-origin-resource-policy": "same-origin",
};

export interface PageFile {
  /** In the folder of the page. */
  readonly file: string;
  readonly contentType: string;
}

const HTML: PageFile = { file: "index.html", contentType: "text/html; charset=utf-8" };

/** The static files of a page, by what follows its path. */
const FILES: ReadonlyMap<string, PageFile> = new Map([
  ["", HTML],
  ["index.html", HTML],
  ["page.js", { file: "page.js", contentType: "text/javascript; charset=utf-8" }],
  ["page.css", { file: "page.css", contentType: "text/css; charset=utf-8" }],
]);

/** @param path behind the page's own, without a query */
export const pageFileOf = (path: string): PageFile | undefined => FILES.get(path);

/**
 * False for a request whose Host names another machine: a name that an attacker points to this one would make his page
 * one of ours (DNS rebinding). Addresses and `localhost` cannot be pointed.
 * @param host the header; undefined: it is missing
 * @param names of this machine
 */
export function isOwnHost(host: string | undefined, names: readonly string[]): boolean {
  if (host === undefined || host.length > MAX_HOST_LENGTH) return false;
  const name = host.replace(/:\d{1,5}$/, "").toLowerCase();
  if (name === "localhost" || /^\[[0-9a-f:.]+\]$/.test(name) || IPV4.test(name)) return true;
  return names.some((each) => name === each.toLowerCase());
}

/** A DNS name and a port. */
const MAX_HOST_LENGTH = 260;
const IPV4 = /^(?:\d{1,3}\.){3}\d{1,3}$/;

/** False for what another site's page asks for in its visitor's browser. @param site of the header Sec-Fetch-Site */
export const isOwnSite = (site: string | undefined): boolean =>
  site === undefined || site === "same-origin" || site === "none";
