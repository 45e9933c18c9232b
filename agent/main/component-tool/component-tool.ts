/** Program of `edgectl wasm …`: `node component-tool.mjs '<ComponentToolRequest>'`. It needs no agent. */
import { createWriteStream, mkdtempSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { type ComponentToolRequest, ENDING_SIGNALS } from "@picolet/protocol/local-api/component-tool-messages.ts";
import { checkComponent, reportText } from "./check-component.ts";
import { runComponent } from "./run-component.ts";
import { maxComponentBytes } from "./tool-runtime.ts";

/** Base of the exit code after a signal, as in shells: the signal's number is added. */
const SIGNALLED = 128;
const STANDARD_INPUT = "-";
/** The node's setting that errors name. */
const SIZE_LIMIT = "wasm.maxComponentSize";

async function carryOut(request: ComponentToolRequest, signal: AbortSignal): Promise<number> {
  if (request.file !== STANDARD_INPUT) return await carryOutFile(request, request.file, signal);
  const folder = mkdtempSync(join(tmpdir(), "edgectl-wasm-input-"));
  try {
    const file = join(folder, "stdin.wasm");
    await pipeline(process.stdin, limited(maxComponentBytes(request)), createWriteStream(file), { signal });
    return await carryOutFile({ ...request, file }, STANDARD_INPUT, signal);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const limited = (limit: number) =>
  async function* (source: AsyncIterable<Buffer>) {
    let bytes = 0;
    for await (const piece of source) {
      bytes += piece.length;
      if (bytes > limit)
        throw new PicoletError(
          "resource_exhausted",
          `standard input has more than the ${limit} bytes of ${SIZE_LIMIT}`,
        );
      yield piece;
    }
  };

/** @param shown what the file is called in the report */
async function carryOutFile(request: ComponentToolRequest, shown: string, signal: AbortSignal): Promise<number> {
  if (request.command === "run") return await runComponent(request, signal);
  const report = { ...(await checkComponent(request, signal)), file: shown };
  process.stdout.write(request.json ? `${JSON.stringify(report, undefined, 2)}\n` : reportText(report));
  return report.runs ? 0 : 1;
}

const interrupted = new AbortController();
// A terminal sends Ctrl-C to edgectl too, which passes it on: the second is no reason to leave anything behind.
for (const signal of ENDING_SIGNALS) process.on(signal, () => interrupted.abort(signal));
// A reader that stops, such as `head`, and a killed edgectl end the component too.
for (const output of [process.stdout, process.stderr]) output.on("error", () => interrupted.abort("SIGPIPE"));
process.on("disconnect", () => interrupted.abort("SIGHUP"));
process.channel?.unref();
try {
  process.exitCode = await carryOut(JSON.parse(process.argv[2] ?? "") as ComponentToolRequest, interrupted.signal);
} catch (error) {
  const { aborted, reason } = interrupted.signal;
  if (aborted) process.exitCode = SIGNALLED + constants.signals[reason as NodeJS.Signals];
  else {
    const why = describeError(error);
    process.stderr.write(`edgectl: ${why}${why.includes(SIZE_LIMIT) ? " (--max-size raises it)" : ""}\n`);
    process.exitCode = 1;
  }
}
