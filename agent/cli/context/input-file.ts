/** Reads a command's input from a file or from standard input. */
import { closeSync, openSync, readSync } from "node:fs";
import { resolve } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Context } from "./context.ts";

export const STANDARD_INPUT = "-";

/** @param what it is, for the error. @throws `resource_exhausted` beyond `maxBytes`, `failed` */
export async function readInput(
  { input, workingDirectory }: Pick<Context, "input" | "workingDirectory">,
  file: string,
  maxBytes: number,
  what: string,
): Promise<Buffer> {
  const bytes =
    file === STANDARD_INPUT ? await gather(input(), maxBytes) : readFile(resolve(workingDirectory, file), maxBytes);
  if (bytes !== undefined) return bytes;
  throw new PicoletError("resource_exhausted", `${what} of more than ${maxBytes} bytes cannot be taken at once`);
}

function readFile(path: string, maxBytes: number): Buffer | undefined {
  let file: number | undefined;
  try {
    file = openSync(path, "r");
    const bytes = Buffer.alloc(maxBytes + 1);
    let size = 0;
    for (let read = -1; read !== 0 && size <= maxBytes; size += read) {
      read = readSync(file, bytes, size, bytes.length - size, null);
    }
    return size > maxBytes ? undefined : bytes.subarray(0, size);
  } catch (error) {
    throw new PicoletError("failed", `cannot read ${path}`, { cause: error });
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

async function gather(input: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer | undefined> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of input) {
    size += piece.length;
    if (size > maxBytes) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
