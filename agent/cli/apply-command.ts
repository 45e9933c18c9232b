import { closeSync, openSync, readSync } from "node:fs";
import { resolve } from "node:path";
import { PicoletError } from "../../protocol/errors.ts";
import type { PushAnswer, PushedPod, PushRefusal } from "../../protocol/local-api.ts";
import { seconds } from "../../protocol/ports.ts";
import type { Arguments } from "./command-line.ts";
import type { Context } from "./context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, usageError } from "./failures.ts";
import { machineFormat, podLabel, printObject } from "./objects.ts";
import { plain } from "./text-layout.ts";

/** As much as the agent takes. */
const MAX_BYTES = 1024 * 1024;
/** A hundred pods are checked and written to a slow card. */
const APPLY_TIMEOUT = seconds(60);
const STANDARD_INPUT = "-";

/** `edgectl apply -f FILE`: what the file says replaces everything that was applied before. */
export async function runApply(context: Context, input: Arguments): Promise<number> {
  const file = input.text("filename");
  if (file === undefined || file === "") throw usageError("apply needs -f FILE, or -f - for standard input");
  const text =
    file === STANDARD_INPUT ? await gather(context.input()) : readFile(resolve(context.workingDirectory, file));
  const path = `/v1/pushed-pods${input.flag("dry-run") ? "?dryRun=true" : ""}`;
  const answer = await context.client.put<PushAnswer, PushRefusal>(path, text, APPLY_TIMEOUT);
  const format = machineFormat(input);
  if (format !== undefined) await context.terminal.write(printObject(answer, format));
  if ("error" in answer) {
    for (const problem of format === undefined ? answer.problems : [])
      context.terminal.writeError(complaint(file, problem));
    return EXIT_DEGRADED;
  }
  if (format === undefined)
    await context.terminal.write(answer.items.map((each) => line(each, answer.dryRun)).join(""));
  return EXIT_HEALTHY;
}

const line = ({ namespace, name, change }: PushedPod, dryRun: boolean): string =>
  `pod/${plain(podLabel(namespace, name))} ${change}${dryRun ? " (dry run)" : ""}\n`;

function complaint(file: string, { line: number, message }: PushRefusal["problems"][number]): string {
  const place = file === STANDARD_INPUT ? "standard input" : file;
  return `edgectl: ${plain(place)}${number === null ? "" : `:${number}`}: ${plain(message)}\n`;
}

/** @throws `resource_exhausted`, `not_found`, `permission_denied`, `failed` */
function readFile(path: string): string {
  let file: number | undefined;
  try {
    file = openSync(path, "r");
    const bytes = Buffer.alloc(MAX_BYTES + 1);
    let size = 0;
    for (let read = -1; read !== 0 && size <= MAX_BYTES; size += read) {
      read = readSync(file, bytes, size, bytes.length - size, null);
    }
    if (size > MAX_BYTES) throw tooLong();
    return bytes.toString("utf8", 0, size);
  } catch (error) {
    if (error instanceof PicoletError) throw error;
    throw new PicoletError("failed", `cannot read ${path}`, { cause: error });
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

async function gather(input: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of input) {
    size += piece.length;
    if (size > MAX_BYTES) throw tooLong();
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}

const tooLong = (): PicoletError =>
  new PicoletError("resource_exhausted", `pods of more than ${MAX_BYTES} bytes cannot be applied at once`);
