import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { PushAnswer, PushedPod, PushProblem, PushRefusal } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { confirms } from "../context/confirm.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { readInput, STANDARD_INPUT } from "../context/input-file.ts";
import { machineFormat, podLabel, printObject } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";

/** As much as the agent takes. */
const MAX_BYTES = MEBIBYTE;
/** A hundred pods are checked and written to a slow card. */
const APPLY_TIMEOUT = seconds(60);

/** `edgectl apply -f FILE`: what the file says replaces everything that was applied before. */
export async function runApply(context: Context, input: Arguments): Promise<number> {
  const file = input.text("filename");
  if (file === undefined || file === "") throw usageError("apply needs -f FILE, or -f - for standard input");
  const text = (await readInput(context, file, MAX_BYTES, "pods")).toString("utf8");
  const dryRun = input.flag("dry-run");
  const format = machineFormat(input);
  const push = (isDry: boolean): Promise<PushAnswer | PushRefusal> =>
    context.client.put<PushAnswer, PushRefusal>(`/v1/pushed-pods${isDry ? "?dryRun=true" : ""}`, text, APPLY_TIMEOUT);
  const mustAsk = context.terminal.interactive && file !== STANDARD_INPUT && format === undefined;
  if (mustAsk && !dryRun && !input.flag("yes")) {
    const plan = await push(true);
    const removed = "error" in plan ? [] : plan.items.filter(isRemoved);
    if (removed.length > 0 && !(await agreesTo(context, removed, file))) {
      context.terminal.writeError("edgectl: nothing has been changed\n");
      return EXIT_DEGRADED;
    }
  }
  const answer = await push(dryRun);
  if (format !== undefined) await context.terminal.write(printObject(answer, format));
  if ("error" in answer) {
    for (const problem of format === undefined ? answer.problems : [])
      context.terminal.writeError(`edgectl: ${complaint(file, problem)}`);
    return EXIT_DEGRADED;
  }
  for (const warning of answer.warnings ?? []) context.terminal.writeError(`Warning: ${complaint(file, warning)}`);
  if (format === undefined) await context.terminal.write(answer.items.map((each) => line(each, file, dryRun)).join(""));
  return EXIT_HEALTHY;
}

const isRemoved = ({ change }: PushedPod): boolean => change === "removed";

/** Shown before it is done. */
async function agreesTo(context: Context, removed: readonly PushedPod[], file: string): Promise<boolean> {
  const names = removed.map(({ namespace, name }) => `  ${printableLine(podLabel(namespace, name))}\n`).join("");
  return await confirms(context, `No longer in ${placeOf(file)}, and deleted with it:\n${names}Go on? [y/N] `);
}

function line({ namespace, name, change }: PushedPod, file: string, dryRun: boolean): string {
  const label = printableLine(podLabel(namespace, name));
  const what =
    change === "removed" ? `pod "${label}" deleted (no longer in ${placeOf(file)})` : `pod/${label} ${change}`;
  return `${what}${dryRun ? " (dry run)" : ""}\n`;
}

const complaint = (file: string, { line: number, message }: PushProblem): string =>
  `${placeOf(file)}${number === null ? "" : `:${number}`}: ${printableLine(message)}\n`;

const placeOf = (file: string): string => (file === STANDARD_INPUT ? "standard input" : printableLine(file));
