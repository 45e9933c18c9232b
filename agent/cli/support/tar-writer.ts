/** Writes a tar archive (POSIX.1-1988, ustar) of a few small files. */

const BLOCK_BYTES = 512;
/** POSIX: the end of an archive. */
export const TAR_END: Buffer = Buffer.alloc(2 * BLOCK_BYTES);
const MAX_NAME_BYTES = 100;
const MAX_PREFIX_BYTES = 155;

/**
 * @param name at most 100 bytes after its last suitable slash, and 155 before it
 * @returns one file with its header, filled up to whole blocks
 */
export function tarFile(name: string, content: Buffer, modifiedAtMs: number): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  const [prefix, last] = splitName(name);
  header.write(last, 0);
  header.write(octal(0o600, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(content.length, 12), 124);
  header.write(octal(Math.max(0, Math.floor(modifiedAtMs / 1000)), 12), 136);
  // While it is summed, the checksum counts as blanks.
  header.write(" ".repeat(8), 148);
  header.write("0", 156);
  header.write("ustar\x0000", 257);
  header.write(prefix, 345);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc((BLOCK_BYTES - (content.length % BLOCK_BYTES)) % BLOCK_BYTES);
  return Buffer.concat([header, content, padding]);
}

const octal = (value: number, width: number): string => `${value.toString(8).padStart(width - 1, "0")}\0`;

function splitName(name: string): readonly [prefix: string, last: string] {
  if (Buffer.byteLength(name) <= MAX_NAME_BYTES) return ["", name];
  for (let at = name.indexOf("/"); at !== -1; at = name.indexOf("/", at + 1)) {
    const [prefix, last] = [name.slice(0, at), name.slice(at + 1)];
    if (Buffer.byteLength(last) <= MAX_NAME_BYTES && Buffer.byteLength(prefix) <= MAX_PREFIX_BYTES)
      return [prefix, last];
  }
  throw new RangeError(`a tar archive has no room for the name ${name}`);
}
