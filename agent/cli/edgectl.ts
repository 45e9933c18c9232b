/** The program. Ctrl-C ends it as it ends any program (130 in a shell), a closed pipe quietly. */
import { readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { ProcessKeyboard } from "./context/keyboard.ts";
import { ProcessTerminal } from "./context/process-terminal.ts";
import { runEdgectl } from "./run-edgectl.ts";

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
