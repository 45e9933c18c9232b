import { hostname, networkInterfaces } from "node:os";

/** Link-local addresses are good on one wire only. */
const isLocal = (address: string): boolean => address.startsWith("fe80:") || address.startsWith("169.254.");

/** This machine's addresses, IPv4 first, loopback left out. */
export function machineAddresses(): readonly string[] {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const outside = all.filter(({ internal, address }) => !internal && !isLocal(address));
  const of = (family: string): string[] =>
    outside.filter((each) => each.family === family).map(({ address }) => address);
  return [...of("IPv4"), ...of("IPv6")];
}

/** What the hub's certificate is for besides what its flags say. */
export const machineNames = (): readonly string[] => [
  "localhost",
  hostname().toLowerCase(),
  "127.0.0.1",
  "::1",
  ...machineAddresses(),
];
