/** The latest time that is known to be over, on disk: a board without an RTC starts from there and not from 1970. */
import { hash } from "node:crypto";
import { type CorrectedClock, FLOOR_LAG } from "./corrected-clock.ts";
import type { DurableFolder } from "./durable-folder.ts";

const FILE = "time-floor";
const NEXT = "time-floor.new";

/** Keeps what is on the disk up to date with the clock's own floor. */
export class TimeFloor {
  readonly #clock: CorrectedClock;
  readonly #folder: DurableFolder;
  #onDiskMs: number;

  /** Raises the clock to what is on the disk. */
  constructor({ clock, folder }: { readonly clock: CorrectedClock; readonly folder: DurableFolder }) {
    this.#clock = clock;
    this.#folder = folder;
    this.#onDiskMs = readTimeFloor(folder) ?? 0;
    clock.raiseFloor(this.#onDiskMs);
  }

  get isDue(): boolean {
    return this.#clock.floorMs - this.#onDiskMs > FLOOR_LAG;
  }

  /** @throws what the disk throws; it is not tried again before the next one is due */
  keep(): void {
    if (this.#clock.isConfirmed) this.#clock.raiseFloor(this.#clock.wall().getTime());
    if (!this.isDue) return;
    const { floorMs } = this.#clock;
    this.#onDiskMs = floorMs;
    writeTimeFloor(this.#folder, floorMs);
  }
}

/** @returns undefined when there is none that can be read: then the dates of certificates and program are the floor */
function readTimeFloor(folder: DurableFolder): number | undefined {
  try {
    return parseTimeFloor(folder.read(FILE) ?? "");
  } catch {
    return undefined;
  }
}

function writeTimeFloor(folder: DurableFolder, timeMs: number): void {
  folder.write(NEXT, encodeTimeFloor(timeMs));
  folder.rename(NEXT, FILE);
  folder.sync();
}

/** A digit that flips on a bad disk must not send the board into the next century. */
export const encodeTimeFloor = (timeMs: number): string => `${timeMs} ${hash("sha256", String(timeMs))}\n`;

export function parseTimeFloor(text: string): number | undefined {
  const [, digits] = /^(\d{1,15}) [0-9a-f]{64}\n$/.exec(text) ?? [];
  if (digits === undefined) return undefined;
  const timeMs = Number(digits);
  return encodeTimeFloor(timeMs) === text ? timeMs : undefined;
}
