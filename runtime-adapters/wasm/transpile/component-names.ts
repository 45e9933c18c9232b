/**
 * Names of core modules' imports and exports may be any text, and jco 1.35 puts them into the JavaScript it generates
 * between single quotes, unescaped: a crafted name would be code outside of the sandbox. No toolchain makes names with
 * quotes, backslashes or control characters, so a component that has one anywhere is refused before it is transpiled.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { ByteReader, malformed } from "../shared/binary/byte-reader.ts";
import {
  EXPORT_SECTION,
  IMPORT_SECTION,
  readComponentExports,
  readComponentImports,
} from "../shared/binary/component-shape.ts";
import {
  EXPORT_SECTION as CORE_EXPORT_SECTION,
  IMPORT_SECTION as CORE_IMPORT_SECTION,
  moduleSections,
  readModuleExports,
  readModuleImports,
  sectionReader,
} from "../shared/binary/core-module.ts";

/** Components in components; tools nest two or three deep. */
const MAX_DEPTH = 16;
const PREAMBLE_LENGTH = 8;
const MAX_NAME_LENGTH = 100_000;

const CORE_MODULE = 1;
const CORE_INSTANCE = 2;
const COMPONENT = 4;
const ALIAS = 6;

/** Characters that end a quoted string or a line of JavaScript, or start an escape. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const DANGEROUS = /[\0-\x1f\x7f'"`\\\u2028\u2029]/;

/** @throws `invalid` with the first such name, and for what is no component. */
export function checkNames(component: Uint8Array): void {
  checkComponent(component, 0);
}

function checkComponent(component: Uint8Array, depth: number): void {
  if (depth > MAX_DEPTH) throw malformed(`components are nested more than ${MAX_DEPTH} deep`);
  const reader = new ByteReader(component);
  reader.skip(PREAMBLE_LENGTH);
  while (!reader.atEnd) {
    const id = reader.byte();
    const content = reader.take(reader.u32());
    if (id === CORE_MODULE) checkModule(content);
    else if (id === COMPONENT) checkComponent(content, depth + 1);
    else if (id === CORE_INSTANCE) checkCoreInstances(new ByteReader(content));
    else if (id === ALIAS) checkAliases(new ByteReader(content));
    else if (id === IMPORT_SECTION) readComponentImports(new ByteReader(content), checkName);
    else if (id === EXPORT_SECTION) readComponentExports(new ByteReader(content), checkName);
  }
}

function checkModule(module: Uint8Array): void {
  for (const section of moduleSections(module)) {
    if (section.id === CORE_IMPORT_SECTION) readModuleImports(sectionReader(module, section), checkName);
    if (section.id === CORE_EXPORT_SECTION) readModuleExports(sectionReader(module, section), checkName);
  }
}

/** `core:instance`: instantiate with named arguments, or a bag of named exports. */
function checkCoreInstances(reader: ByteReader): void {
  for (let left = reader.u32(); left > 0; left -= 1) {
    const form = reader.byte();
    if (form > 0x01) throw malformed("a core instance is of an unknown form");
    if (form === 0x00) reader.u32();
    for (let names = reader.u32(); names > 0; names -= 1) {
      checkName(reader.name(MAX_NAME_LENGTH));
      reader.byte();
      reader.u32();
    }
  }
}

function checkAliases(reader: ByteReader): void {
  for (let left = reader.u32(); left > 0; left -= 1) {
    if (reader.byte() === 0x00) reader.byte();
    const target = reader.byte();
    reader.u32();
    if (target === 0x02) reader.u32();
    else if (target === 0x00 || target === 0x01) checkName(reader.name(MAX_NAME_LENGTH));
    else throw malformed("an alias is of an unknown form");
  }
}

function checkName(name: string): void {
  if (DANGEROUS.test(name)) {
    throw new PicoletError(
      "invalid",
      `the component has a name with quotes or control characters: ${JSON.stringify(name)}`,
    );
  }
}
