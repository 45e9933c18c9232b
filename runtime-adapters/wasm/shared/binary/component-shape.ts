/**
 * Reads the names of a component's top-level imports and exports from its binary (component model, Binary.md). Core
 * modules, components for another WASI and other files are distinguished and refused.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { ByteReader, malformed } from "./byte-reader.ts";

/** Reads `length` bytes at `offset`, fewer at the end. */
export type ReadRange = (offset: number, length: number) => Uint8Array;

export interface ComponentShape {
  /** Such as `wasi:cli/stdout@0.2.6`, in the component's order. */
  readonly imports: readonly string[];
  readonly exports: readonly string[];
}

/** A component of the real world has some tens of sections; wit-component writes one for every few definitions. */
const MAX_SECTIONS = 100_000;
/** Lists of names: a real one has a few KiB. */
const MAX_NAMES_SECTION_BYTES = MEBIBYTE;
const MAX_NAMES = 4096;
const MAX_NAME_LENGTH = 4096;
const PREAMBLE_LENGTH = 8;
/** An id and a LEB128 u32. */
const SECTION_HEADER_LENGTH = 6;

export const IMPORT_SECTION = 10;
export const EXPORT_SECTION = 11;

export const COMPONENT_BUILD_HINT =
  "make one with `wasm-tools component new module.wasm --adapt wasi_snapshot_preview1.command.wasm -o component.wasm` or jco's componentNew";

/**
 * @param read gives ranges of the file, so that its code is never in memory.
 * @param size of the file, bytes.
 * @throws PicoletError `invalid` for everything that is not a component for WASI 0.2, or 0.3: see `refuseAsync`.
 */
export function readComponentShape(read: ReadRange, size: number): ComponentShape {
  checkPreamble(read(0, PREAMBLE_LENGTH));
  const imports: string[] = [];
  const exports: string[] = [];
  let offset = PREAMBLE_LENGTH;
  for (let sections = 0; offset < size; sections += 1) {
    if (sections >= MAX_SECTIONS) throw malformed(`it has more than ${MAX_SECTIONS} sections`);
    const header = new ByteReader(read(offset, SECTION_HEADER_LENGTH));
    const id = header.byte();
    const length = header.u32();
    offset += header.offset;
    if (length > size - offset) throw malformed("it ends too early");
    if (id === IMPORT_SECTION || id === EXPORT_SECTION) {
      if (length > MAX_NAMES_SECTION_BYTES) throw malformed("its list of names is too long");
      const reader = new ByteReader(read(offset, length));
      if (id === IMPORT_SECTION) readComponentImports(reader, (name) => addName(imports, name));
      else readComponentExports(reader, (name) => addName(exports, name));
    }
    offset += length;
  }
  checkWasiVersion([...imports, ...exports]);
  return { imports, exports };
}

function checkPreamble(bytes: Uint8Array): void {
  const magic = [0x00, 0x61, 0x73, 0x6d];
  if (bytes.length < PREAMBLE_LENGTH || magic.some((byte, index) => bytes[index] !== byte)) {
    throw new PicoletError("invalid", "the file is no WebAssembly binary");
  }
  const version = (bytes[4] ?? 0) | ((bytes[5] ?? 0) << 8);
  const layer = (bytes[6] ?? 0) | ((bytes[7] ?? 0) << 8);
  if (layer === 0) {
    throw new PicoletError("invalid", `the file is a core module, not a component; ${COMPONENT_BUILD_HINT}`);
  }
  if (layer !== 1 || version !== 0x0d) {
    throw new PicoletError("invalid", `the file is of an unknown WebAssembly version (${version}, layer ${layer})`);
  }
}

export function readComponentImports(reader: ByteReader, visit: (name: string) => void): void {
  for (let count = reader.u32(); count > 0; count -= 1) {
    visit(readName(reader));
    skipDescription(reader);
  }
}

export function readComponentExports(reader: ByteReader, visit: (name: string) => void): void {
  for (let count = reader.u32(); count > 0; count -= 1) {
    visit(readName(reader));
    if (reader.byte() === 0x00) reader.byte();
    reader.u32();
    const described = reader.byte();
    if (described === 0x01) skipDescription(reader);
    else if (described !== 0x00) throw malformed("an export is of an unknown kind");
  }
}

function addName(into: string[], name: string): void {
  if (into.length >= MAX_NAMES) throw malformed(`it has more than ${MAX_NAMES} imports or exports`);
  into.push(name);
}

function readName(reader: ByteReader): string {
  const form = reader.byte();
  if (form > 0x02) throw malformed("a name is of an unknown form");
  const name = reader.name(MAX_NAME_LENGTH);
  // Form 2 leaves part of the version out of the name and gives it apart.
  if (form === 0x02) return name + reader.name(MAX_NAME_LENGTH);
  return name;
}

/** An `externdesc`. */
function skipDescription(reader: ByteReader): void {
  const kind = reader.byte();
  if (kind === 0x00) {
    if (reader.byte() !== 0x11) throw malformed("a core import is of an unknown kind");
    reader.u32();
  } else if (kind === 0x03) {
    if (reader.byte() === 0x00) reader.u32();
  } else if (kind === 0x01 || kind === 0x04 || kind === 0x05) reader.u32();
  else throw malformed("an import or export is of an unknown kind");
}

/** Splits `wasi:cli/run@0.2.6`. Undefined for a name without a version. */
export function parseInterfaceName(name: string): { readonly path: string; readonly version: string } | undefined {
  const at = name.lastIndexOf("@");
  return at < 0 ? undefined : { path: name.slice(0, at), version: name.slice(at + 1) };
}

/** The packages of WASI 0.2. Proposals have other versions; the grants of the interfaces that use them know which. */
const WASI_02 = /^wasi:(?:cli|clocks|filesystem|http|io|random|sockets)\//;
/** Shown of those that are for another WASI. */
const MAX_SHOWN_NAMES = 16;

function checkWasiVersion(names: readonly string[]): void {
  const others = names.filter((name) => {
    const parsed = WASI_02.test(name) ? parseInterfaceName(name) : undefined;
    return parsed !== undefined && !isWasi02(parsed.version) && !isWasi03(parsed.version);
  });
  if (others.length > 0) throw new PicoletError("invalid", `${otherWasi(others)}; ${BUILD_FOR_02}`);
}

const BUILD_FOR_02 = "build it for WASI 0.2 (the target wasm32-wasip2)";

function otherWasi(names: readonly string[]): string {
  const more = names.length > MAX_SHOWN_NAMES ? ` and ${names.length - MAX_SHOWN_NAMES} more` : "";
  return `the component is for another WASI than 0.2: it has ${names.slice(0, MAX_SHOWN_NAMES).join(", ")}${more}`;
}

/** Those of WASI 0.3, whose components are asynchronous. */
export const asyncNames = ({ imports, exports }: ComponentShape): readonly string[] =>
  [...imports, ...exports].filter((name) => WASI_02.test(name) && isWasi03(parseInterfaceName(name)?.version ?? ""));

/** @throws `invalid` for a component of WASI 0.3, where the node does not run them */
export function refuseAsync(shape: ComponentShape): void {
  const names = asyncNames(shape);
  if (names.length === 0) return;
  const remedy = "or have the node run those of WASI 0.3, which is experimental: wasm.p3: true in its configuration";
  throw new PicoletError("invalid", `${otherWasi(names)}; ${BUILD_FOR_02}, ${remedy}`);
}

/** Any final 0.2: minor releases only add, and a component does not need the additions. */
export const isWasi02 = (version: string): boolean => /^0\.2\.\d+$/.test(version);

/** Any finished 0.3. Its release candidates have other functions by the same names. */
export const isWasi03 = (version: string): boolean => /^0\.3\.\d+$/.test(version);
