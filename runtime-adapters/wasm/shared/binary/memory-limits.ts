/**
 * Limits on linear memory, put into a core module's memory section (WebAssembly core specification, "Memory Section"
 * and "Limits"). The transpiler rewrites every memory once so that its maximum always is a padded number; a start then
 * overwrites those bytes with the pod's limit, in place and without parsing.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type ByteReader, malformed, paddedU32 } from "./byte-reader.ts";
import {
  IMPORT_SECTION,
  MAX_PAGES,
  MEMORY_SECTION,
  type MemoryType,
  moduleSections,
  readMemoryType,
  readModuleImports,
  type Section,
  sectionReader,
} from "./core-module.ts";

export const WASM_PAGE_BYTES = 65_536;
/** Bounds the memories of one module. Without the multi-memory proposal a module has one. */
const MAX_MEMORIES = 16;

/** A memory that a core module defines. */
export interface ModuleMemory {
  readonly initialPages: number;
  /** The maximum that the module declares; 4 GiB when it declares none. */
  readonly maximumPages: number;
  /** Where the 5 bytes of the maximum are in the rewritten module. */
  readonly maximumOffset: number;
}

export interface LimitedModule {
  readonly bytes: Uint8Array;
  readonly memories: readonly ModuleMemory[];
}

/** The module with a padded maximum in every memory it defines. @throws `invalid` for 64-bit and shared memories. */
export function padMemoryLimits(module: Uint8Array): LimitedModule {
  let memorySection: Section | undefined;
  for (const section of moduleSections(module)) {
    // An imported memory is limited where it is defined, so that only its kind is checked.
    if (section.id === IMPORT_SECTION) readModuleImports(sectionReader(module, section), () => undefined);
    if (section.id === MEMORY_SECTION) memorySection = section;
  }
  return memorySection === undefined ? { bytes: module, memories: [] } : rewritten(module, memorySection);
}

function rewritten(module: Uint8Array, section: Section): LimitedModule {
  const types = readMemories(sectionReader(module, section));
  const body: number[] = [...paddedU32(types.length)];
  const offsets: number[] = [];
  for (const { initialPages, maximumPages = MAX_PAGES } of types) {
    body.push(0x01, ...paddedU32(initialPages));
    offsets.push(body.length);
    body.push(...paddedU32(maximumPages));
  }
  const replacement = [MEMORY_SECTION, ...paddedU32(body.length), ...body];
  const bodyStart = section.start + replacement.length - body.length;
  const rest = module.subarray(section.content + section.size);
  const bytes = new Uint8Array(section.start + replacement.length + rest.length);
  bytes.set(module.subarray(0, section.start));
  bytes.set(replacement, section.start);
  bytes.set(rest, section.start + replacement.length);
  const memories = types.map(({ initialPages, maximumPages = MAX_PAGES }, index) => ({
    initialPages,
    maximumPages,
    maximumOffset: bodyStart + (offsets[index] ?? 0),
  }));
  return { bytes, memories };
}

function readMemories(reader: ByteReader): MemoryType[] {
  const count = reader.u32();
  if (count > MAX_MEMORIES) throw malformed(`a module has more than ${MAX_MEMORIES} memories`);
  return Array.from({ length: count }, () => readMemoryType(reader));
}

/**
 * Overwrites the maxima in place with `limitBytes`; undefined leaves them.
 * @throws `resource_exhausted` when a memory is larger from the start
 */
export function limitMemories(
  module: Uint8Array,
  memories: readonly ModuleMemory[],
  limitBytes: number | undefined,
): void {
  if (limitBytes === undefined) return;
  checkInitialMemory(memories, limitBytes);
  const limitPages = Math.floor(limitBytes / WASM_PAGE_BYTES);
  for (const { maximumPages, maximumOffset } of memories) {
    module.set(paddedU32(Math.min(maximumPages, limitPages)), maximumOffset);
  }
}

/** @throws `resource_exhausted` */
export function checkInitialMemory(memories: readonly ModuleMemory[], limitBytes: number): void {
  for (const { initialPages } of memories) {
    const initialBytes = initialPages * WASM_PAGE_BYTES;
    if (initialBytes > limitBytes) {
      throw new PicoletError(
        "resource_exhausted",
        `the component starts with ${initialBytes} bytes of linear memory, more than its limit of ${limitBytes} bytes`,
        { reason: "CreateContainerConfigError" },
      );
    }
  }
}
