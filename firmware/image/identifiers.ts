import { createHash } from "node:crypto";

/** The eight hexadecimal digits by which an MBR names its disk. */
export const diskIdOf = (seed: string): string => uuidOf(seed, "disk").slice(0, 8);

/** A UUID (version 8 of RFC 9562) that is the same wherever an image of this seed is made. */
export function uuidOf(seed: string, purpose: string): string {
  const bytes = createHash("sha256").update(`${seed}\n${purpose}`).digest().subarray(0, 16);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x80;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
