import type { BytePipe } from "./byte-pipe.ts";

/** A pipe of which something was read already. */
export class PrefixedPipe implements BytePipe {
  readonly #pipe: BytePipe;
  #prefix: Uint8Array | undefined;

  constructor(prefix: Uint8Array, pipe: BytePipe) {
    this.#prefix = prefix.length > 0 ? prefix : undefined;
    this.#pipe = pipe;
  }

  async read(signal: AbortSignal): Promise<Uint8Array | undefined> {
    const prefix = this.#prefix;
    this.#prefix = undefined;
    return prefix ?? (await this.#pipe.read(signal));
  }

  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#pipe.write(bytes, signal);
  }

  end(): void {
    this.#pipe.end();
  }

  destroy(): void {
    this.#pipe.destroy();
  }
}
