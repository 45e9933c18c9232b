/** Bytes that all runners together may have in the agent's memory: a runner that asks for more waits for its turn. */
export class ByteBudget {
  readonly #waiting: { readonly bytes: number; readonly begin: () => void }[] = [];
  #free: number;

  constructor(bytes: number) {
    this.#free = bytes;
  }

  get free(): number {
    return this.#free;
  }

  /** In the order of asking. @returns what gives them back, all but those that are kept; called again, the rest */
  async take(bytes: number): Promise<(kept?: number) => void> {
    if (this.#waiting.length > 0 || this.#free < bytes) {
      await new Promise<void>((begin) => this.#waiting.push({ bytes, begin }));
    } else this.#free -= bytes;
    let held = bytes;
    return (kept = 0) => {
      const given = held - Math.min(kept, held);
      held -= given;
      this.#give(given);
    };
  }

  #give(bytes: number): void {
    this.#free += bytes;
    for (let [first] = this.#waiting; first !== undefined && first.bytes <= this.#free; [first] = this.#waiting) {
      this.#waiting.shift();
      this.#free -= first.bytes;
      first.begin();
    }
  }
}
