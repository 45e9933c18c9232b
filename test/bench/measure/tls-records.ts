/** Reads the lengths of TLS 1.3's records off a connection without its keys. Source: RFC 8446, section 5. */

export interface TlsRecord {
  readonly direction: "up" | "down";
  /** `performance.now()` when it had come completely. */
  readonly atMs: number;
  /** Bytes of its encrypted content; 0 for records that are not application data. */
  readonly plainBytes: number;
}

const HEADER_BYTES = 5;
const APPLICATION_DATA = 23;
/** The AEAD's tag and the inner content type. */
const SEAL_BYTES = 16 + 1;

/** One connection. */
export class TlsRecords {
  readonly records: TlsRecord[] = [];
  readonly #rest = { up: Buffer.alloc(0), down: Buffer.alloc(0) };

  push(direction: "up" | "down", bytes: Uint8Array, atMs: number): void {
    let rest = Buffer.concat([this.#rest[direction], bytes]);
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt16BE(3);
      if (rest.length < HEADER_BYTES + length) break;
      const plainBytes = rest[0] === APPLICATION_DATA ? Math.max(0, length - SEAL_BYTES) : 0;
      this.records.push({ direction, atMs, plainBytes });
      rest = rest.subarray(HEADER_BYTES + length);
    }
    this.#rest[direction] = rest;
  }

  /**
   * The records in the order they came, cut where the upward direction begins again after a pause: one part for each
   * round trip.
   */
  roundTrips(pauseMs: number): TlsRecord[][] {
    const parts: TlsRecord[][] = [];
    let lastUpMs = Number.NEGATIVE_INFINITY;
    for (const record of this.records) {
      if (record.direction === "up") {
        if (record.atMs - lastUpMs > pauseMs) parts.push([]);
        lastUpMs = record.atMs;
      }
      parts.at(-1)?.push(record);
    }
    return parts;
  }
}

export const plainBytesOf = (records: readonly TlsRecord[]): number =>
  records.reduce((sum, { plainBytes }) => sum + plainBytes, 0);
