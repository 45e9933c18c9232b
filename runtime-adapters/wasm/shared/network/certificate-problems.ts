/** Problems that OpenSSL and Node find in a peer's certificate, in words. Pure. */

export const UNTRUSTED = "its certificate is not signed by an authority that this node trusts";
/** Codes that a setting for CAs can mend. */
const UNTRUSTED_CODES: ReadonlySet<string> = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
]);

const EXPIRED = "CERT_HAS_EXPIRED";
const NOT_YET_VALID = "CERT_NOT_YET_VALID";

const OTHERS: ReadonlyMap<string, string> = new Map([
  [EXPIRED, "its certificate has expired, by this node's clock"],
  [NOT_YET_VALID, "its certificate is not valid yet: check this node's clock"],
  ["ERR_TLS_CERT_ALTNAME_INVALID", "its certificate is for another host"],
]);

/** @returns whether an earlier or later time would make it valid */
export const isCertificateTimeCode = (code: string): boolean => code === EXPIRED || code === NOT_YET_VALID;

/** @param code of the error. @returns undefined for one that is about something else, or unknown */
export const certificateProblem = (code: string): string | undefined =>
  UNTRUSTED_CODES.has(code) ? UNTRUSTED : OTHERS.get(code);
