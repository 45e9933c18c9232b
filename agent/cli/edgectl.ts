/** The program. Ctrl-C ends it as it ends any program (130 in a shell), a closed pipe quietly. */
import { readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Context } from "./context/context.ts";
import { ProcessTerminal } from "./context/process-terminal.ts";
import { runEdgectl } from "./run-edgectl.ts";

type Keyboard = Context["keyboard"];

/** The terminal at standard input. It is given back as it was, however the program ends. */
class ProcessKeyboard implements Keyboard {
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

const terminal = new ProcessTerminal({
  environment: process.env,
  // The reader has closed the pipe, as `head` does: no error.
  onClosed: () => process.exit(0),
});

void runEdgectl(process.argv.slice(2), {
  terminal,
  clock: systemClock,
  environment: process.env,
  workingDirectory: process.cwd(),
  readBeside: (name) => readFileSync(join(dirname(realpathSync(process.argv[1] ?? "")), name), "utf8"),
  input: () => process.stdin,
  keyboard: new ProcessKeyboard(),
}).then((code) => process.exit(code));
