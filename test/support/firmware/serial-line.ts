/** One end of a board's serial line: keeps what comes, waits for text with a limit, sends lines. */
import type { Socket } from "node:net";
import { connectTo } from "../guest/guest-channel.ts";

/** How often a slow line brings something. */
const SLOW_READ_MS = 20;
/** Bounds memory; the beginning of a boot that loops for hours is dropped. */
const MAX_KEPT = 8 * 2 ** 20;

export class SerialLine {
  readonly #socket: Socket;
  readonly #waiting = new Set<() => void>();
  #text = "";
  #dropped = 0;
  #isClosed = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding("latin1").on("data", this.#receive);
    socket.on("error", () => undefined);
    socket.once("close", () => {
      this.#isClosed = true;
      for (const check of this.#waiting) check();
    });
  }

  readonly #receive = (data: unknown): void => {
    this.#text += String(data);
    if (this.#text.length > MAX_KEPT) {
      this.#dropped += this.#text.length - MAX_KEPT;
      this.#text = this.#text.slice(-MAX_KEPT);
    }
    for (const check of this.#waiting) check();
  };

  /** From now on text comes as slowly as a line of this speed brings it: ten bits a character. */
  limitTo(baud: number): Disposable {
    const socket = this.#socket;
    const perRead = Math.max(1, Math.round((baud / 10) * (SLOW_READ_MS / 1000)));
    socket.off("data", this.#receive).pause();
    const timer = setInterval(() => {
      const ready = socket.readableLength;
      const text: unknown = ready === 0 ? null : socket.read(Math.min(perRead, ready));
      if (text !== null) this.#receive(text);
    }, SLOW_READ_MS);
    return {
      [Symbol.dispose]: () => {
        clearInterval(timer);
        socket.on("data", this.#receive).resume();
      },
    };
  }

  static async connect(path: string): Promise<SerialLine> {
    return new SerialLine(await connectTo(path));
  }

  /** How much has come so far: a place to wait from. */
  get length(): number {
    return this.#dropped + this.#text.length;
  }

  /** All that has come, or the end of it. */
  get text(): string {
    return this.#text;
  }
  get tail(): string {
    return this.#text.slice(-3000);
  }

  send(text: string): void {
    this.#socket.write(text);
  }

  /**
   * Waits for a text after `from`.
   * @returns the groups of the pattern
   * @throws after `limitMs` and when the line closes, as a board that has ended does it; with what came last
   */
  async waitFor(pattern: RegExp, limitMs: number, from = 0): Promise<readonly [string, ...string[]]> {
    const find = (): RegExpExecArray | null => pattern.exec(this.#text.slice(Math.max(0, from - this.#dropped)));
    const { promise, resolve, reject } = Promise.withResolvers<RegExpExecArray>();
    const check = (): void => {
      const found = find();
      if (found !== null) resolve(found);
      else if (this.#isClosed) fail("before it closed");
    };
    const fail = (when: string): void =>
      reject(new Error(`the line had no ${pattern} ${when}; its end is\n${this.tail}`));
    const late = setTimeout(() => fail(`within ${limitMs} ms`), limitMs);
    this.#waiting.add(check);
    try {
      check();
      const [whole, ...groups] = await promise;
      return groups.length === 0 ? [whole] : (groups as [string, ...string[]]);
    } finally {
      clearTimeout(late);
      this.#waiting.delete(check);
    }
  }

  close(): void {
    this.#socket.destroy();
  }
}
