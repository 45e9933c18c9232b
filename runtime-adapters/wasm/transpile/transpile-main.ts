/** Transpiles one component and ends: `node … transpile <TranspileRequest>`. What it needs of memory goes with it. */
import { createHash } from "node:crypto";
import { closeSync, fsyncSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { readComponentShape } from "../shared/binary/component-shape.ts";
import { importedFunctionTypes } from "../shared/binary/function-types.ts";
import { padMemoryLimits } from "../shared/binary/memory-limits.ts";
import { ownPeakRssKiB } from "../shared/files/peak-memory.ts";
import type { TranspiledModule } from "../shared/messages/launch.ts";
import {
  type CachedFile,
  type CacheManifest,
  MANIFEST_NAME,
  SCRIPT_NAME,
  TRANSPILER_VERSION,
  type TranspileAnswer,
  type TranspileRequest,
} from "../shared/messages/transpile-request.ts";
import { checkNames } from "./component-names.ts";
import { generatedFiles } from "./generated-files.ts";
import { asScript, type GeneratedScript } from "./generated-script.ts";

/** @returns how its glue was made */
async function transpile(request: TranspileRequest): Promise<Pick<GeneratedScript, "isLean" | "missed">> {
  const component = readFileSync(request.componentPath);
  if (sha256(component) !== request.sha256) {
    throw new PicoletError("corrupt", `the content of ${request.componentPath} is not what its digest says`);
  }
  readComponentShape((offset, length) => component.subarray(offset, offset + length), component.length);
  checkNames(component);
  const files: CachedFile[] = [];
  const modules: TranspiledModule[] = [];
  let glue: Pick<GeneratedScript, "isLean" | "missed"> = { isLean: false, missed: [] };
  for (const [name, content] of await generatedFiles(component)) {
    if (name.endsWith(".wasm")) {
      const { bytes, memories } = padMemoryLimits(content);
      const functions = importedFunctionTypes(content);
      modules.push({ name, memories, functions });
      files.push(save(request.outputDirectory, name, bytes));
    } else if (name === SCRIPT_NAME) {
      const { script, isLean, missed } = asScript(Buffer.from(content).toString("utf8"));
      glue = { isLean, missed };
      files.push(save(request.outputDirectory, name, Buffer.from(script, "latin1")));
    } else throw new PicoletError("failed", `cannot read what jco generated: there is a file ${name}`);
  }
  const manifest: CacheManifest = { transpiler: TRANSPILER_VERSION, script: SCRIPT_NAME, modules, files };
  save(request.outputDirectory, MANIFEST_NAME, Buffer.from(`${JSON.stringify(manifest)}\n`));
  return glue;
}

/** On disk when it returns: the manifest that vouches for it must not be there before it. */
function save(directory: string, name: string, content: Uint8Array): CachedFile {
  const path = join(directory, name);
  writeFileSync(path, content, { flag: "wx", mode: 0o644 });
  const fd = openSync(path, "r");
  fsyncSync(fd);
  closeSync(fd);
  return { name, sizeBytes: content.length, sha256: sha256(content) };
}

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

function answer(message: TranspileAnswer): void {
  writeSync(1, `${JSON.stringify(message)}\n`);
}

try {
  const glue = await transpile(JSON.parse(process.argv[2] ?? "") as TranspileRequest);
  answer({ kind: "done", peakRssKiB: ownPeakRssKiB(), ...glue });
} catch (error) {
  const code = isPicoletError(error, "invalid") || isPicoletError(error, "corrupt") ? error.code : "failed";
  answer({ kind: "failed", code: code as "invalid" | "corrupt" | "failed", message: describeError(error) });
}
