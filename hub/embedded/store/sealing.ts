/** AES-256-GCM over texts, each bound to the place that it is kept at. */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const ALGORITHM = "aes-256-gcm";

const additionalData = (place: readonly string[]): Buffer => Buffer.from(JSON.stringify(place));

/**
 * @param place what the text belongs to; opening it for any other place fails, so that no two texts can be exchanged
 * @returns nonce, ciphertext and tag. The nonce is random, so one key is good for 2^32 texts (NIST SP 800-38D, 8.3)
 */
export function sealBytes(key: Uint8Array, place: readonly string[], plain: Uint8Array): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(additionalData(place));
  return Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

/** @throws when it is not what was sealed for this place with this key */
export function openBytes(key: Uint8Array, place: readonly string[], sealed: Buffer): Buffer {
  if (sealed.length < NONCE_BYTES + TAG_BYTES) throw new Error("it is too short to have been sealed");
  const decipher = createDecipheriv(ALGORITHM, key, sealed.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(additionalData(place));
  decipher.setAuthTag(sealed.subarray(sealed.length - TAG_BYTES));
  const text = sealed.subarray(NONCE_BYTES, sealed.length - TAG_BYTES);
  return Buffer.concat([decipher.update(text), decipher.final()]);
}
