/**
 * Tar archives made in memory, independent of the code that reads them: ustar, with GNU's entries for long names and
 * pax' for longer ones.
 */

const BLOCK = 512;

/** @param files content by name, in this order. */
export function makeTar(files: Readonly<Record<string, string | Uint8Array>>): Buffer {
  const blocks: Buffer[] = [];
  for (const [name, content] of Object.entries(files)) {
    const bytes = Buffer.from(content);
    const encoded = Buffer.from(name);
    if (encoded.length > 255) {
      const record = paxRecord(`path=${name}`);
      blocks.push(header("PaxHeaders/x", record.length, "x"), padded(record));
    } else if (encoded.length > 100) {
      const terminated = Buffer.concat([encoded, Buffer.of(0)]);
      blocks.push(header("././@LongLink", terminated.length, "L"), padded(terminated));
    }
    blocks.push(header(encoded.subarray(0, 100), bytes.length, "0"), padded(bytes));
  }
  return Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)]);
}

const padded = (bytes: Buffer): Buffer =>
  Buffer.concat([bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK)]);

/** `<length of the whole record> <text>\n` */
function paxRecord(text: string): Buffer {
  const rest = Buffer.byteLength(text) + 2;
  const length = rest + String(rest + String(rest).length).length;
  return Buffer.from(`${length} ${text}\n`);
}

const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`;

function header(name: string | Buffer, size: number, type: string): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.set(Buffer.from(name));
  block.write(octal(0o644, 8), 100, "latin1");
  block.write(octal(0, 8), 108, "latin1");
  block.write(octal(0, 8), 116, "latin1");
  block.write(octal(size, 12), 124, "latin1");
  block.write(octal(0, 12), 136, "latin1");
  block.write("        ", 148, "latin1");
  block.write(type, 156, "latin1");
  block.write("ustar\x0000", 257, "latin1");
  const checksum = block.reduce((sum, byte) => sum + byte, 0);
  block.write(`${checksum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}
