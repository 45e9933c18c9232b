/** The node's own addresses, as they are at present. */

/** A component may connect or send thousands of times a second; interfaces change once in a while. */
const KEPT_FOR_NS = 1_000_000_000n;

/** @param now nanoseconds of the monotonic clock. */
export function ownAddresses(now: () => bigint): () => readonly string[] {
  let known: readonly string[] = [];
  let knownUntil: bigint | undefined;
  return () => {
    const at = now();
    if (knownUntil === undefined || at >= knownUntil) {
      // Loaded by those alone that have a network.
      const { networkInterfaces } = process.getBuiltinModule("node:os");
      known = Object.values(networkInterfaces()).flatMap((each) => each?.map(({ address }) => address) ?? []);
      knownUntil = at + KEPT_FOR_NS;
    }
    return known;
  };
}
