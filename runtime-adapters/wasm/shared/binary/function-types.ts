/**
 * The types of the functions that a core module imports (WebAssembly core specification, "Type Section" of the binary
 * format).
 */
import { type ByteReader, malformed } from "./byte-reader.ts";
import { IMPORT_SECTION, moduleSections, readFunctionImports, sectionReader, TYPE_SECTION } from "./core-module.ts";

/** `7f7f>7e`: the value types of the parameters and of the results, one byte each, in hexadecimal. */
export type FunctionType = string;

/** Enough for any real module. */
const MAX_TYPES = 1_000_000;
const MAX_FIELDS = 10_000;
const FUNCTION = 0x60;
const STRUCT = 0x5f;
const ARRAY = 0x5e;
const RECURSIVE = 0x4e;
const SUBTYPES: ReadonlySet<number> = new Set([0x50, 0x4f]);
/** `(ref null? heaptype)`, which has the heap type after it. */
const REFERENCES: ReadonlySet<number> = new Set([0x63, 0x64]);
/** i32, i64, f32, f64: all that the canonical ABI has. */
const NUMBERS: ReadonlySet<number> = new Set([0x7f, 0x7e, 0x7d, 0x7c]);

/**
 * @returns types in the order of the imports; null: one that no component has
 * @throws `invalid`
 */
export function importedFunctionTypes(module: Uint8Array): (FunctionType | null)[] {
  let types: (FunctionType | null)[] = [];
  const found: (FunctionType | null)[] = [];
  for (const section of moduleSections(module)) {
    if (section.id === TYPE_SECTION) types = readTypes(sectionReader(module, section));
    if (section.id === IMPORT_SECTION) {
      readFunctionImports(sectionReader(module, section), (index) => {
        if (index >= types.length) throw malformed("an import has a type that is not there");
        found.push(types[index] ?? null);
      });
    }
  }
  return found;
}

/** Each gets its index, those within a recursive group too. */
function readTypes(reader: ByteReader): (FunctionType | null)[] {
  const types: (FunctionType | null)[] = [];
  const add = (count: number): void => {
    if (types.length + count > MAX_TYPES) throw malformed(`a module has more than ${MAX_TYPES} types`);
    for (let left = count; left > 0; left -= 1) types.push(readSubtype(reader, reader.byte()));
  };
  for (let left = reader.u32(); left > 0; left -= 1) {
    if (reader.peek() !== RECURSIVE) add(1);
    else {
      reader.byte();
      add(reader.u32());
    }
  }
  return types;
}

function readSubtype(reader: ByteReader, first: number): FunctionType | null {
  if (!SUBTYPES.has(first)) return readComposite(reader, first);
  for (let left = count(reader); left > 0; left -= 1) reader.u32();
  return readComposite(reader, reader.byte());
}

function readComposite(reader: ByteReader, kind: number): FunctionType | null {
  if (kind === FUNCTION) {
    const [parameters, results] = [readValues(reader), readValues(reader)];
    return parameters === undefined || results === undefined ? null : `${parameters}>${results}`;
  }
  if (kind !== STRUCT && kind !== ARRAY) throw malformed("a type of an unknown kind");
  for (let left = kind === STRUCT ? count(reader) : 1; left > 0; left -= 1) {
    readValue(reader);
    reader.byte();
  }
  return null;
}

function readValues(reader: ByteReader): string | undefined {
  const values = Array.from({ length: count(reader) }, () => readValue(reader));
  return values.every((each) => NUMBERS.has(each)) ? Buffer.from(values).toString("hex") : undefined;
}

function readValue(reader: ByteReader): number {
  const first = reader.byte();
  if (REFERENCES.has(first)) reader.u64();
  return first;
}

function count(reader: ByteReader): number {
  const fields = reader.u32();
  if (fields > MAX_FIELDS) throw malformed(`a type has more than ${MAX_FIELDS} parts`);
  return fields;
}
