/** The outer form of core modules (WebAssembly core specification, "Modules" of the binary format). */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { ByteReader, malformed } from "./byte-reader.ts";

export interface Section {
  readonly id: number;
  /** Offset of the section's id. */
  readonly start: number;
  /** Offset of its content, behind the length. */
  readonly content: number;
  readonly size: number;
}

export interface MemoryType {
  readonly initialPages: number;
  readonly maximumPages: number | undefined;
}

export const TYPE_SECTION = 1;
export const IMPORT_SECTION = 2;
export const MEMORY_SECTION = 5;
export const EXPORT_SECTION = 7;

/** 4 GiB, the most a 32-bit memory can have. */
export const MAX_PAGES = 65_536;

const PREAMBLE = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];
/** Enough for any real module's imports or exports; each is at least a few bytes. */
const MAX_ENTRIES = 1_000_000;
const MAX_NAME_LENGTH = 100_000;
const FUNCTION_IMPORT = 0x00;

export function* moduleSections(module: Uint8Array): Generator<Section, void> {
  const reader = new ByteReader(module);
  for (const expected of PREAMBLE) if (reader.byte() !== expected) throw malformed("it is no core module");
  while (!reader.atEnd) {
    const start = reader.offset;
    const id = reader.byte();
    const size = reader.u32();
    const content = reader.offset;
    reader.skip(size);
    yield { id, start, content, size };
  }
}

export const sectionReader = (module: Uint8Array, section: Section): ByteReader =>
  new ByteReader(module.subarray(section.content, section.content + section.size));

/** @param visit is given both names of every import. @throws `invalid` for memories that cannot be limited. */
export function readModuleImports(reader: ByteReader, visit: (name: string) => void): void {
  for (let left = entryCount(reader); left > 0; left -= 1) {
    visit(reader.name(MAX_NAME_LENGTH));
    visit(reader.name(MAX_NAME_LENGTH));
    skipImportDescription(reader);
  }
}

/** @param visit is given the index of the type of every function that is imported */
export function readFunctionImports(reader: ByteReader, visit: (type: number) => void): void {
  for (let left = entryCount(reader); left > 0; left -= 1) {
    reader.name(MAX_NAME_LENGTH);
    reader.name(MAX_NAME_LENGTH);
    if (reader.peek() !== FUNCTION_IMPORT) skipImportDescription(reader);
    else {
      reader.byte();
      visit(reader.u32());
    }
  }
}

export function readModuleExports(reader: ByteReader, visit: (name: string) => void): void {
  for (let left = entryCount(reader); left > 0; left -= 1) {
    visit(reader.name(MAX_NAME_LENGTH));
    reader.byte();
    reader.u32();
  }
}

function entryCount(reader: ByteReader): number {
  const count = reader.u32();
  if (count > MAX_ENTRIES) throw malformed(`a module has more than ${MAX_ENTRIES} imports or exports`);
  return count;
}

function skipImportDescription(reader: ByteReader): void {
  const kind = reader.byte();
  if (kind === FUNCTION_IMPORT) reader.u32();
  else if (kind === 0x01) {
    skipValueType(reader);
    skipTableLimits(reader);
  } else if (kind === 0x02) readMemoryType(reader);
  else if (kind === 0x03) {
    skipValueType(reader);
    reader.byte();
  } else if (kind === 0x04) {
    reader.byte();
    reader.u32();
  } else throw malformed("an import of an unknown kind");
}

/** Numeric, vector and short reference types are one byte; `(ref null? heaptype)` has the heap type after it. */
function skipValueType(reader: ByteReader): void {
  const first = reader.byte();
  if (first === 0x63 || first === 0x64) reader.u64();
}

function skipTableLimits(reader: ByteReader): void {
  const flags = reader.byte();
  reader.u64();
  if ((flags & 0x01) !== 0) reader.u64();
}

export function readMemoryType(reader: ByteReader): MemoryType {
  const flags = reader.byte();
  if ((flags & 0x02) !== 0) throw refused("shared memory (threads)");
  if ((flags & 0x04) !== 0) throw refused("a 64-bit memory");
  if (flags > 0x01) throw refused("a memory of an unknown kind");
  const initialPages = reader.u32();
  const maximumPages = flags === 0x01 ? reader.u32() : undefined;
  if (
    initialPages > MAX_PAGES ||
    (maximumPages !== undefined && (maximumPages > MAX_PAGES || maximumPages < initialPages))
  ) {
    throw malformed("the limits of a memory are out of range");
  }
  return { initialPages, maximumPages };
}

const refused = (what: string): PicoletError =>
  new PicoletError("invalid", `the component uses ${what}, which cannot be limited here`);
