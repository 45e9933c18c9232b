/** Short names from contents: FNV-1a of 32 bits in Kubernetes' alphabet without vowels, so that no words come about. */

const ALPHABET = "bcdfghjklmnpqrstvwxz2456789";
const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

function fnv1a(text: string): number {
  let hash = FNV_OFFSET;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, FNV_PRIME) >>> 0;
  return hash;
}

/** Up to 10 characters: each digit of the hash is one. */
export const stableHash = (text: string): string =>
  [...String(fnv1a(text))].map((digit) => ALPHABET[digit.charCodeAt(0) % ALPHABET.length]).join("");

const SUFFIX_LENGTH = 5;

/** 5 characters, as a generated name ends. Two texts have the same one in 14 million. */
export function stableSuffix(text: string): string {
  let rest = fnv1a(text);
  let suffix = "";
  for (let count = 0; count < SUFFIX_LENGTH; count += 1) {
    suffix += ALPHABET[rest % ALPHABET.length];
    rest = Math.trunc(rest / ALPHABET.length);
  }
  return suffix;
}
