/**
 * The devices that containers were given by the annotation of their pod, on disk: a device that returns under another
 * number while no agent runs is noticed by the next one.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isFields, writeStateFile } from "../topology/state-file.ts";

/** A pod with ten devices takes 1 KB. */
const MAX_BYTES = MEBIBYTE;

/** Devices by name, by the UID of the pod; each text has paths and device numbers. */
export type GivenDevices = Readonly<Record<string, Readonly<Record<string, string>>>>;

export const writeGivenDevices = (path: string, given: GivenDevices): void =>
  writeStateFile(path, JSON.stringify(given));

/** @throws `corrupt`; undefined: there is no such file */
export function readGivenDevices(path: string): GivenDevices | undefined {
  if (!existsSync(path)) return undefined;
  const wrong = (cause?: unknown): PicoletError => new PicoletError("corrupt", `cannot read ${path}`, { cause });
  if (statSync(path).size > MAX_BYTES) throw wrong(new Error(`it has more than ${MAX_BYTES} bytes`));
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw wrong(error);
  }
  if (!isFields(value) || !Object.values(value).every(isTexts)) throw wrong();
  return value as GivenDevices;
}

const isTexts = (value: unknown): boolean =>
  isFields(value) && Object.values(value).every((text) => typeof text === "string");
