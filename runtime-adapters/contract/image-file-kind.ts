/** Names the kind of a file that cannot be imported as an image, by its first bytes. For messages alone. */

/** The number of bytes that are read: the first block of a tar. */
export const START_BYTES = 512;

const IMPORTABLE =
  "import a component, a tar of docker save or of an OCI layout (gzipped or not), or an OCI layout's folder";

/** How they begin, in latin1. */
const KINDS: readonly (readonly [start: string, what: string, mend: string])[] = [
  ["\x1f\x8b", "gzip", "unpack it first (gunzip)"],
  ["\x28\xb5\x2f\xfd", "zstd", "unpack it first (zstd -d)"],
  ["\xfd7zXZ\0", "xz", "unpack it first (unxz)"],
  ["BZh", "bzip2", "unpack it first (bunzip2)"],
  ["PK\x03\x04", "a zip archive", "unpack it first (unzip)"],
  ["PK\x05\x06", "a zip archive with nothing in it", IMPORTABLE],
  ["\x7fELF", "a program (ELF)", "make an image of it first, or build it for wasm32-wasip2"],
  ["#!", "a script", "make an image of it first"],
];
/** The start of the text format of WebAssembly. */
const WASM_TEXT = /^\s*(?:;;[^\n]*\n\s*)*\((?:component|module)\b/;

/**
 * @param start the first `START_BYTES` bytes of the file, decompressed if it is gzip; fewer if it has fewer
 * @returns "it is …" with what to do; a general answer for an unknown kind
 */
export function imageFileKind(start: Uint8Array, where: "plain" | "in gzip"): string {
  const [what, mend] = kindOf(Buffer.from(start).toString("latin1"), where === "plain");
  return where === "plain" ? `it is ${what}: ${mend}` : `it is a gzip that holds no tar archive but ${what}: ${mend}`;
}

function kindOf(start: string, isPlain: boolean): readonly [what: string, mend: string] {
  if (start === "") return [isPlain ? "empty" : "nothing", IMPORTABLE];
  if (start.startsWith("\0asm")) {
    return ["a WebAssembly file", isPlain ? "only the runtime of components takes it" : "gunzip it and import that"];
  }
  const known = KINDS.find(([first]) => start.startsWith(first));
  if (known !== undefined) return [known[1], known[2]];
  if (WASM_TEXT.test(start)) return ["WebAssembly as text", "make a component of it first (wasm-tools parse)"];
  if (isText(start)) return ["text", IMPORTABLE];
  return [isPlain ? "neither a component nor an image archive" : "something else", IMPORTABLE];
}

/** Control characters but tabs, ends of lines and pages, and escapes are in no text. */
const isText = (start: string): boolean =>
  [...start].every((each) => (each >= " " && each !== "\x7f") || (each >= "\t" && each <= "\r") || each === "\x1b");
