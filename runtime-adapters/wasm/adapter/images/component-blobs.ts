/** Components by digest: `<root>/components/<sha256>.wasm`, never changed once there. */
import { createHash } from "node:crypto";
import { closeSync, openSync, readSync } from "node:fs";
import { chmod, mkdir, open, readdir, rm, stat } from "node:fs/promises";
import { checkCancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type ByteStream, CHUNK_BYTES } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { type ComponentShape, readComponentShape, refuseAsync } from "../../shared/binary/component-shape.ts";
import { fileError, renameDurably, type TemporaryNames } from "../../shared/files/durable-files.ts";

export interface ComponentBlob extends ComponentShape {
  /** 64 hexadecimal digits. */
  readonly sha256: string;
  readonly sizeBytes: number;
}

export class ComponentBlobs {
  readonly #directory: string;
  readonly #temporaryNames: TemporaryNames;
  readonly #maxBytes: number;
  readonly #p3: boolean;
  /** Read once; a blob does not change. As many as there are components on the node. */
  readonly #known = new Map<string, ComponentBlob>();

  /** @param maxBytes the largest component that is taken. @param p3 whether those of WASI 0.3 are */
  constructor(directory: string, temporaryNames: TemporaryNames, maxBytes: number, p3: boolean) {
    this.#p3 = p3;
    this.#directory = directory;
    this.#temporaryNames = temporaryNames;
    this.#maxBytes = maxBytes;
  }

  path(sha256: string): string {
    return `${this.#directory}/${sha256}.wasm`;
  }

  async get(sha256: string): Promise<ComponentBlob | undefined> {
    const known = this.#known.get(sha256);
    if (known !== undefined || !/^[0-9a-f]{64}$/.test(sha256)) return known;
    try {
      const { size } = await stat(this.path(sha256));
      const blob = { sha256, sizeBytes: size, ...shapeOf(this.path(sha256), size) };
      this.#known.set(sha256, blob);
      return blob;
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw fileError(error, `cannot read component sha256:${sha256}`);
    }
  }

  async list(): Promise<readonly string[]> {
    const names = await readdir(this.#directory).catch(() => []);
    return names.filter((name) => /^[0-9a-f]{64}\.wasm$/.test(name)).map((name) => name.slice(0, 64));
  }

  /**
   * Stores a component. It is checked while it is only a temporary file: what is none never gets a name.
   * @param expected its SHA-256 where that is known beforehand.
   * @throws `invalid` for what is no component, `corrupt` for a wrong digest, `resource_exhausted` when too large.
   */
  async put(content: ByteStream, expected: string | undefined, signal: AbortSignal): Promise<ComponentBlob> {
    const temporary = this.#temporaryNames.next();
    try {
      const { sha256, sizeBytes } = await this.#copy(content, temporary, signal);
      if (expected !== undefined && expected !== sha256) {
        throw new PicoletError("corrupt", `the component's digest is sha256:${sha256}, not sha256:${expected}`);
      }
      const blob = { sha256, sizeBytes, ...this.#taken(temporary, sizeBytes) };
      await mkdir(this.#directory, { recursive: true });
      await renameDurably(temporary, this.path(sha256));
      this.#known.set(sha256, blob);
      return blob;
    } catch (error) {
      await rm(temporary, { force: true });
      throw fileError(error, "cannot store the component");
    }
  }

  /**
   * Takes over a file that is on disk and whose digest has been verified. One that is refused stays where it is.
   * @throws `invalid` for what is no component.
   */
  async adopt(path: string, sha256: string): Promise<ComponentBlob> {
    try {
      const { size } = await stat(path);
      const blob = { sha256, sizeBytes: size, ...this.#taken(path, size) };
      await chmod(path, 0o644);
      await mkdir(this.#directory, { recursive: true });
      await renameDurably(path, this.path(sha256));
      this.#known.set(sha256, blob);
      return blob;
    } catch (error) {
      throw fileError(error, "cannot store the component");
    }
  }

  #taken(path: string, sizeBytes: number): ComponentShape {
    const shape = shapeOf(path, sizeBytes);
    if (!this.#p3) refuseAsync(shape);
    return shape;
  }

  /** Refuses a file of a known size before anything of it is written. @throws `resource_exhausted` */
  refuseTooLarge(sizeBytes: number): void {
    if (sizeBytes > this.#maxBytes) throw this.#tooLarge(String(sizeBytes));
  }

  #tooLarge(bytes: string): PicoletError {
    const limit = `the ${this.#maxBytes} of wasm.maxComponentSize`;
    const message = bytes === "more" ? `more than ${limit}` : `${bytes} bytes, more than ${limit}`;
    return new PicoletError("resource_exhausted", `the component has ${message}`);
  }

  async #copy(content: ByteStream, path: string, signal: AbortSignal): Promise<{ sha256: string; sizeBytes: number }> {
    const hash = createHash("sha256");
    let sizeBytes = 0;
    await using file = await open(path, "wx", 0o644);
    for (;;) {
      checkCancelled(signal, "the import");
      const chunk = await content.read(CHUNK_BYTES);
      if (chunk === undefined) break;
      sizeBytes += chunk.length;
      if (sizeBytes > this.#maxBytes) {
        throw this.#tooLarge("more");
      }
      hash.update(chunk);
      await file.writeFile(chunk);
    }
    await file.sync();
    return { sha256: hash.digest("hex"), sizeBytes };
  }

  async remove(sha256: string): Promise<void> {
    this.#known.delete(sha256);
    await rm(this.path(sha256), { force: true });
  }
}

/** Only headers and lists of names are read. */
export function shapeOf(path: string, sizeBytes: number): ComponentShape {
  const fd = openSync(path, "r");
  try {
    return readComponentShape((offset, length) => {
      const buffer = Buffer.alloc(Math.min(length, Math.max(sizeBytes - offset, 0)));
      return buffer.subarray(0, readSync(fd, buffer, 0, buffer.length, offset));
    }, sizeBytes);
  } finally {
    closeSync(fd);
  }
}
