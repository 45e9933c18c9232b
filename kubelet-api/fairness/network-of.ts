import { isIPv6 } from "node:net";
import { addressBytes } from "./address-bytes.ts";

/** A host with an IPv6 address has 2^64 of them. An IPv4 address as an IPv6 socket shows it is IPv4. */
export function networkOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !isIPv6(address)) return mapped ?? address;
  return Buffer.from(addressBytes(address).subarray(0, 8)).toString("hex");
}
