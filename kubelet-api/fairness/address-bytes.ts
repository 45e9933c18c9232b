import { isIP } from "node:net";

/** The four or sixteen bytes of an IP address, without its zone. */
export function addressBytes(address: string): Uint8Array {
  if (isIP(address) === 4) return Uint8Array.from(address.split("."), Number);
  const host = new URL(`http://[${address.split("%")[0]}]`).hostname.slice(1, -1);
  const [head = "", tail] = host.split("::");
  const words = (text: string): number[] =>
    text === "" ? [] : text.split(":").map((word) => Number.parseInt(word, 16));
  const [left, right] = [words(head), words(tail ?? "")];
  const all =
    tail === undefined ? left : [...left, ...new Array<number>(8 - left.length - right.length).fill(0), ...right];
  return Uint8Array.from(all.flatMap((word) => [word >> 8, word & 0xff]));
}
