import { randomBytes } from "node:crypto";

/**
 * A component as large as one of the real world, which does the same: with a custom section of bytes that nothing
 * packs.
 */
export function padded(component: Uint8Array, paddingBytes: number): Buffer<ArrayBuffer> {
  const body = Buffer.concat([Buffer.of(1, 0x70), randomBytes(paddingBytes)]);
  const length: number[] = [];
  for (let left = body.length; ; left >>>= 7) {
    length.push(left > 0x7f ? (left & 0x7f) | 0x80 : left);
    if (left <= 0x7f) return Buffer.concat([component, Buffer.of(0, ...length), body]);
  }
}
