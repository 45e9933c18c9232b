import type { PushAnswer, PushedPod, PushRefusal } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { Arguments } from "../context/command-line.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { readInput, STANDARD_INPUT } from "../context/input-file.ts";
import { machineFormat, podLabel, printObject } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";

/** As much as the agent takes. */
const MAX_BYTES = 1024 * 1024;
/** A hundred pods are checked and written to a slow card. */
const APPLY_TIMEOUT = seconds(60);

/** `edgectl apply -f FILE`: what the file says replaces everything that was applied before. */
export async function runApply(context: Context, input: Arguments): Promise<number> {
  const file = input.text("filename");
  if (file === undefined || file === "") throw usageError("apply needs -f FILE, or -f - for standard input");
  const text = (await readInput(context, file, MAX_BYTES, "pods")).toString("utf8");
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
  `pod/${printableLine(podLabel(namespace, name))} ${change}${dryRun ? " (dry run)" : ""}\n`;

function complaint(file: string, { line: number, message }: PushRefusal["problems"][number]): string {
  const place = file === STANDARD_INPUT ? "standard input" : file;
  return `edgectl: ${printableLine(place)}${number === null ? "" : `:${number}`}: ${printableLine(message)}\n`;
}
