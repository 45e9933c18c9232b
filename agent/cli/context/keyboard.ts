import type { Context } from "./context.ts";

export type Keyboard = Context["keyboard"];

/** The terminal at standard input. It is given back as it was, however the program ends. */
export class ProcessKeyboard implements Keyboard {
  get isTerminal(): boolean {
    return process.stdin.isTTY === true;
  }

  get size(): { readonly columns: number; readonly rows: number } | undefined {
    const { columns, rows } = process.stdout;
    // A serial console says 0.
    return columns > 0 && rows > 0 ? { columns, rows } : undefined;
  }

  raw(): Disposable {
    const restore = (): void => void process.stdin.setRawMode(false);
    process.stdin.setRawMode(true);
    process.once("exit", restore);
    return {
      [Symbol.dispose]: () => {
        process.off("exit", restore);
        restore();
      },
    };
  }

  onResize(listener: () => void): Disposable {
    process.stdout.on("resize", listener);
    return { [Symbol.dispose]: () => void process.stdout.off("resize", listener) };
  }
}
