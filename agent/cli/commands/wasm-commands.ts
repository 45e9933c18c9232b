import { type StdioOptions, spawn } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { constants } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type ComponentToolRequest, ENDING_SIGNALS } from "@picolet/protocol/local-api/component-tool-messages.ts";
import type { Context } from "../context/context.ts";
import { usageError } from "../context/exit-codes.ts";
import { STANDARD_INPUT } from "../context/input-file.ts";
import { CPU, MAX_SIZE, MEMORY, TIME_LIMIT } from "./wasm.ts";

/** The base of the exit code after a signal, to which shells add the signal's number. */
const SIGNALLED = 128;
const TOOL = "component-tool.mjs";

/** `edgectl wasm check` and `run`: by a program of their own beside edgectl, which needs no agent. */
export async function runWasm(context: Context, input: Arguments, command: "check" | "run"): Promise<number> {
  const [file = "", ...args] = input.positionals;
  const [manifest, caFile] = [input.text("pod"), input.text("ca-file")];
  const request: ComponentToolRequest = {
    command,
    file: file === STANDARD_INPUT ? file : resolve(context.workingDirectory, file),
    manifest: manifest === undefined ? undefined : resolve(context.workingDirectory, manifest),
    container: input.text("container"),
    args,
    env: input.texts("env"),
    annotations: input.texts("annotation"),
    memory: input.value(MEMORY),
    cpu: input.value(CPU),
    directories: input.texts("dir").map((each) => absolute(each, context.workingDirectory)),
    timeoutMs: input.value(TIME_LIMIT),
    caFile: caFile === undefined ? undefined : resolve(context.workingDirectory, caFile),
    p3: input.flag("p3"),
    maxComponentBytes: input.value(MAX_SIZE),
    json: input.text("output") === "json",
  };
  return await runTool(request);
}

/** `data:/data` → `/where/it/is/data:/data` */
function absolute(directory: string, workingDirectory: string): string {
  const colon = directory.indexOf(":");
  if (colon <= 0) throw usageError(`--dir takes HOST:CONTAINER or HOST:CONTAINER:ro, not "${directory}"`);
  return resolve(workingDirectory, directory.slice(0, colon)) + directory.slice(colon);
}

/** edgectl ends when the tool does, which a signal to edgectl alone reaches too. */
async function runTool(request: ComponentToolRequest): Promise<number> {
  const tool = join(dirname(realpathSync(process.argv[1] ?? "")), TOOL);
  if (!existsSync(tool)) throw new PicoletError("failed", `this edgectl came without ${tool}: install picolet whole`);
  const input = request.file === STANDARD_INPUT ? "inherit" : "ignore";
  // The channel is for it to see that this process is gone.
  const stdio: StdioOptions = [input, "inherit", "inherit", "ipc"];
  const child = spawn(process.execPath, [tool, JSON.stringify(request)], { stdio });
  for (const signal of ENDING_SIGNALS) process.on(signal, () => child.kill(signal));
  return await new Promise((done, fail) => {
    child.once("error", (cause) => fail(new PicoletError("failed", `cannot run ${tool}`, { cause })));
    child.once("exit", (code, signal) => done(code ?? SIGNALLED + constants.signals[signal ?? "SIGKILL"]));
  });
}
