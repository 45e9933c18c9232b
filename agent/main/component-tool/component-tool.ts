/** What `edgectl wasm …` runs: `node component-tool.mjs '<ComponentToolRequest>'`. It needs no agent. */
import type { ComponentToolRequest } from "../../../protocol/component-tool.ts";
import { describeError } from "../../../protocol/errors.ts";
import { checkComponent, reportText } from "./component-check.ts";
import { runComponent } from "./component-run.ts";

async function carryOut(request: ComponentToolRequest, signal: AbortSignal): Promise<number> {
  if (request.command === "run") return runComponent(request, signal);
  const report = await checkComponent(request, signal);
  process.stdout.write(request.json ? `${JSON.stringify(report, undefined, 2)}\n` : reportText(report));
  return report.runs ? 0 : 1;
}

const interrupted = new AbortController();
// A terminal sends Ctrl-C to edgectl too, which passes it on: the second is no reason to leave anything behind.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => interrupted.abort());
try {
  process.exitCode = await carryOut(JSON.parse(process.argv[2] ?? "") as ComponentToolRequest, interrupted.signal);
} catch (error) {
  process.stderr.write(`edgectl: ${describeError(error)}\n`);
  process.exitCode = 1;
}
