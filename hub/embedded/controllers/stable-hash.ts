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
