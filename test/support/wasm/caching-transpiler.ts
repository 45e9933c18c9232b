/**
 * A program in the place of the transpiler: has it transpile each component once. What that made is kept beside this
 * program, in a folder that is named by the content of the transpiler itself (`components.ts`), and given again for a
 * component of this content.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import type { TranspileAnswer, TranspileRequest } from "@picolet/runtime-wasm/shared/messages/transpile-request.ts";

const [program = "", own = "", text = ""] = process.argv;
const { componentPath, outputDirectory, sha256 } = JSON.parse(text) as TranspileRequest;
const kept = join(dirname(own), sha256);
/** A component that is not what its digest says is the transpiler's to refuse. */
const isWhatItSays = createHash("sha256").update(readFileSync(componentPath)).digest("hex") === sha256;

if (isWhatItSays && existsSync(kept)) {
  cpSync(join(kept, "files"), outputDirectory, { recursive: true });
  writeSync(1, readFileSync(join(kept, "answer")));
} else {
  const transpiler = join(dirname(own), "transpiler.mjs");
  // Without the agent's flags, with which it takes less memory and five times as long, for the same.
  const { stdout, stderr, status } = spawnSync(program, [transpiler, text]);
  writeSync(2, stderr);
  writeSync(1, stdout);
  if (status !== 0) process.exit(status ?? 1);
  if ((JSON.parse(stdout.toString()) as TranspileAnswer).kind === "done") keep(stdout);
}

/** Whole or not at all: others may be at it, and this process may be killed. */
function keep(answer: Uint8Array): void {
  const temporary = `${kept}.${process.pid}`;
  mkdirSync(temporary);
  cpSync(outputDirectory, join(temporary, "files"), { recursive: true });
  writeFileSync(join(temporary, "answer"), answer);
  try {
    renameSync(temporary, kept);
  } catch {
    // Another was first, with the same.
    rmSync(temporary, { recursive: true });
  }
}
