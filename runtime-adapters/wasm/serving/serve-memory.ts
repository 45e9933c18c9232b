/** What serving may take of memory. Pure. */
export interface ServeMemory {
  readonly maxConnections: number;
  /** Of all connections together: written, and not taken by the clients. */
  readonly maxUnsentBytes: number;
}

const MIB = 1_048_576;
/** Connections; each costs some 6 KiB, and a file descriptor. */
const MAX_CONNECTIONS = 512;
const MAX_UNSENT_BYTES = 8 * MIB;

export function serveMemory(): ServeMemory {
  return { maxConnections: MAX_CONNECTIONS, maxUnsentBytes: MAX_UNSENT_BYTES };
}
