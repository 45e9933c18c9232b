/** The latest time that is known to be over, on disk: a board without an RTC starts from there and not from 1970. */
import { hash } from "node:crypto";
import type { DurableFolder } from "./durable-folder.ts";

const FILE = "time-floor";
const NEXT = "time-floor.new";

/** @returns undefined when there is none that can be read: then the certificates and the program say how late it is */
export function readTimeFloor(folder: DurableFolder): number | undefined {
  try {
    return parseTimeFloor(folder.read(FILE) ?? "");
  } catch {
    return undefined;
  }
}

export function writeTimeFloor(folder: DurableFolder, timeMs: number): void {
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
