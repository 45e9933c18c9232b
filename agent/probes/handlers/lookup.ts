import type { LookupAddress } from "node:dns";
import { readFileSync } from "node:fs";
import type { LookupFunction } from "node:net";

/** A name that is not found by then is not found; the probe that asks has given up long before. */
const QUERY_TIMEOUT_MS = 2000;
const QUERY_TRIES = 2;
const LOCALHOST: readonly LookupAddress[] = [{ address: "127.0.0.1", family: 4 }];

/**
 * Names that probes are sent to: /etc/hosts, then DNS by sockets. Not the system's resolver, which holds up the one
 * thread that all of the agent's file access shares for as long as no server answers, which is always while offline.
 * Unlike it, search domains are not tried.
 */
export const lookup: LookupFunction = (name, { all, family }, callback) => {
  const wanted = family === 4 || family === "IPv4" ? [4] : family === 6 || family === "IPv6" ? [6] : [4, 6];
  resolve(name).then(
    (found) => {
      const addresses = found.filter((each) => wanted.includes(each.family));
      const [first] = addresses;
      if (first === undefined) callback(notFound(name), "", 0);
      else if (all) callback(null, addresses);
      else callback(null, first.address, first.family);
    },
    (error: NodeJS.ErrnoException) => callback(error, "", 0),
  );
};

async function resolve(name: string): Promise<readonly LookupAddress[]> {
  const listed = addressesIn(readHosts(), name);
  if (listed.length > 0) return listed;
  if (name.toLowerCase() === "localhost") return LOCALHOST;
  const { Resolver } = (await import("node:dns")).promises;
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, tries: QUERY_TRIES });
  const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
  const found = [
    ...(v4.status === "fulfilled" ? v4.value : []).map((address) => ({ address, family: 4 })),
    ...(v6.status === "fulfilled" ? v6.value : []).map((address) => ({ address, family: 6 })),
  ];
  if (found.length === 0 && v4.status === "rejected") throw v4.reason;
  return found;
}

/** Finds the addresses of a name in the text of a hosts(5) file. Pure. */
export function addressesIn(hosts: string, name: string): LookupAddress[] {
  const wanted = name.toLowerCase();
  return hosts.split("\n").flatMap((line) => {
    const [address = "", ...names] = (line.split("#", 1)[0] ?? "").trim().split(/\s+/);
    return names.some((each) => each.toLowerCase() === wanted)
      ? [{ address, family: address.includes(":") ? 6 : 4 }]
      : [];
  });
}

function readHosts(): string {
  try {
    return readFileSync("/etc/hosts", "utf8");
  } catch {
    return "";
  }
}

const notFound = (name: string): NodeJS.ErrnoException =>
  Object.assign(new Error(`${name} has no such address`), { code: "ENOTFOUND", syscall: "query" });
