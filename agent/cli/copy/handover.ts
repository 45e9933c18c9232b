/** Hands pieces from a sender that pushes to a reader that pulls, one at a time, so that neither outruns the other. */
export class Handover implements AsyncIterable<Uint8Array> {
  #piece: Uint8Array | undefined;
  #isOver = false;
  #error: Error | undefined;
  #changed: (() => void)[] = [];

  /** Resolves when the reader has taken it. @throws the reader's error, once it has given up */
  async push(piece: Uint8Array): Promise<void> {
    this.#piece = piece;
    this.#announce();
    while (this.#piece !== undefined && !this.#isOver) await this.#change();
    if (this.#error !== undefined) throw this.#error;
  }

  /** @param error of the side that gives up */
  end(error?: Error): void {
    this.#isOver = true;
    this.#error ??= error;
    this.#announce();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (;;) {
      const piece = this.#piece;
      if (piece !== undefined) {
        yield piece;
        // It may have been read to its end only now.
        this.#piece = undefined;
        this.#announce();
      } else if (this.#isOver) {
        if (this.#error !== undefined) throw this.#error;
        return;
      } else await this.#change();
    }
  }

  #announce(): void {
    for (const resolve of this.#changed.splice(0)) resolve();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#changed.push(resolve));
  }
}
