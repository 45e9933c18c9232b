/**
 * Where the hub keeps its CA and certificate: one set of texts, replaced as a whole and only by a caller that has read
 * the latest.
 */
import { createHash } from "node:crypto";
import { mkdir, open, readFile, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

/** By name, as in a Secret's `data`: `ca.crt`, `ca.key`, `tls.crt` … */
export type PemFiles = Readonly<Record<string, string>>;

export interface StoredPems {
  readonly files: PemFiles;
  /** Opaque; of a Secret its resourceVersion. */
  readonly version: string;
}

export interface PemStore {
  /** Undefined: nothing has been stored yet. @throws retryable `unavailable`, or `corrupt` */
  load(signal: AbortSignal): Promise<StoredPems | undefined>;
  /**
   * @param expected the version that `files` are made from; undefined: there was nothing
   * @throws `conflict` when something else is stored by now
   */
  save(files: PemFiles, expected: string | undefined, signal: AbortSignal): Promise<void>;
}

/** A full set has some 8 KiB. */
const MAX_FILE_CHARACTERS = 262_144;

/** All of it in one JSON file, which is written aside and renamed: a power cut leaves the old one or the new one. */
export class FilePemStore implements PemStore {
  readonly #path: string;

  constructor(init: { readonly path: string }) {
    this.#path = init.path;
  }

  async load(): Promise<StoredPems | undefined> {
    let text: string;
    try {
      text = await readFile(this.#path, "utf8");
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw new PicoletError("unavailable", `cannot read ${this.#path}`, { cause: error });
    }
    return { files: parsePemFiles(text), version: createHash("sha256").update(text).digest("hex") };
  }

  /** One process owns the file: the comparison is for mistakes of its own, not for races with others. */
  async save(files: PemFiles, expected: string | undefined): Promise<void> {
    const current = await this.load();
    if (current?.version !== expected) throw new PicoletError("conflict", `${this.#path} was changed meanwhile`);
    const folder = dirname(this.#path);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const aside = join(folder, `.${process.pid}.pem-store`);
    const file = await open(aside, "w", 0o600);
    try {
      await file.writeFile(`${JSON.stringify(files, undefined, 1)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(aside, this.#path);
    const above = await open(folder, "r");
    try {
      await above.sync();
    } finally {
      await above.close();
    }
  }
}

/** @throws `corrupt` for anything but an object of texts */
export function parsePemFiles(text: string): PemFiles {
  try {
    if (text.length > MAX_FILE_CHARACTERS) throw new Error("it is too long");
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("it is no object");
    if (Object.values(value).some((each) => typeof each !== "string")) throw new Error("not all of it is text");
    return value as PemFiles;
  } catch (error) {
    throw new PicoletError("corrupt", "cannot read the stored CA", { cause: error });
  }
}
