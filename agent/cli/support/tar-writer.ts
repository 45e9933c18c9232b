/** Writes tar archives: ustar (POSIX.1-1988), with headers of pax (POSIX.1-2001) for what is too long or too large for it. */

const BLOCK_BYTES = 512;
/** POSIX: the end of an archive. */
export const TAR_END: Buffer = Buffer.alloc(2 * BLOCK_BYTES);
const MAX_NAME_BYTES = 100;
const MAX_PREFIX_BYTES = 155;

const TYPES = { file: "0", symlink: "2", folder: "5", pax: "x" } as const;
/** Eleven octal digits. */
const MAX_SIZE_BYTES = 8 ** 11 - 1;

export interface TarMember {
  readonly name: string;
  readonly type: keyof typeof TYPES;
  readonly sizeBytes: number;
  /** The bits of its permissions. */
  readonly mode: number;
  readonly modifiedAtMs: number;
  /** The path that a symlink refers to. */
  readonly target?: string;
}

/** @returns one file with its header, filled up to whole blocks */
export function tarFile(name: string, content: Buffer, modifiedAtMs: number): Buffer {
  const head = tarHeader({ name, type: "file", sizeBytes: content.length, mode: 0o600, modifiedAtMs });
  return Buffer.concat([head, content, tarPadding(content.length)]);
}

/** Fills up to whole blocks what follows a header. */
export const tarPadding = (sizeBytes: number): Buffer =>
  Buffer.alloc((BLOCK_BYTES - (sizeBytes % BLOCK_BYTES)) % BLOCK_BYTES);

/** The header of one member; its content and `tarPadding` follow. */
export function tarHeader(member: TarMember): Buffer {
  const { name, sizeBytes, target = "" } = member;
  const split = splitName(name);
  const records = [
    ...(split === undefined ? [paxRecord("path", name)] : []),
    ...(Buffer.byteLength(target) > MAX_NAME_BYTES ? [paxRecord("linkpath", target)] : []),
    ...(sizeBytes > MAX_SIZE_BYTES ? [paxRecord("size", String(sizeBytes))] : []),
  ].join("");
  const own = block(member, split ?? ["", name], Math.min(sizeBytes, MAX_SIZE_BYTES));
  if (records === "") return own;
  const extension = Buffer.from(records);
  const pax = { ...member, type: "pax", target: "" } as const;
  return Buffer.concat([block(pax, ["", "pax"], extension.length), extension, tarPadding(extension.length), own]);
}

function block(member: TarMember, [prefix, last]: readonly [string, string], sizeBytes: number): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  header.write(last, 0, MAX_NAME_BYTES);
  header.write(octal(member.mode, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(sizeBytes, 12), 124);
  header.write(octal(Math.max(0, Math.floor(member.modifiedAtMs / 1000)), 12), 136);
  // While it is summed, the checksum counts as blanks.
  header.write(" ".repeat(8), 148);
  header.write(TYPES[member.type], 156);
  header.write(member.target ?? "", 157, MAX_NAME_BYTES);
  header.write("ustar\x0000", 257);
  header.write(prefix, 345);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

/** `<length of the whole record> <key>=<value>\n` */
function paxRecord(key: string, value: string): string {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  const length = rest + String(rest + String(rest).length).length;
  return `${length} ${key}=${value}\n`;
}

const octal = (value: number, width: number): string => `${value.toString(8).padStart(width - 1, "0")}\0`;

/** Undefined: ustar has no room for it. */
function splitName(name: string): readonly [prefix: string, last: string] | undefined {
  if (Buffer.byteLength(name) <= MAX_NAME_BYTES) return ["", name];
  for (let at = name.indexOf("/"); at !== -1; at = name.indexOf("/", at + 1)) {
    const [prefix, last] = [name.slice(0, at), name.slice(at + 1)];
    if (Buffer.byteLength(last) <= MAX_NAME_BYTES && Buffer.byteLength(prefix) <= MAX_PREFIX_BYTES)
      return [prefix, last];
  }
  return undefined;
}
