/**
 * Follows documents as a reader does, command by command. Runs in namespaces of its own, see `documents.test.ts`.
 *
 * Arguments: an empty folder, and the documents. Prints a `FollowedDocument` as JSON for each document, one a line.
 */
import { readFileSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import { type DocumentedCommand, missingLine, stepsOf } from "./documented-steps.ts";
import { ReaderMachine } from "./reader-machine.ts";
import { DURING, ENDLESS, PREPARATIONS, SERVICES } from "./scenes.ts";

export interface FollowedDocument {
  readonly document: string;
  readonly ran: readonly string[];
  readonly problems: readonly string[];
  readonly seconds: number;
}

/** Values that a reader copies from the output of a command into a file. */
const COPIED: readonly (readonly [shown: string, real: RegExp])[] = [
  ["sha256:...", /^sha256:[0-9a-f]{64}$/m],
  ["abcdef.0123456789abcdef", /^[a-z0-9]{6}\.[a-z0-9]{16}$/m],
];

/** Programs whose commands are tried although they are marked as not run; others could harm the real machine. */
const TRIED = /^(?:npm|kubectl|edgectl|picolet|picolet-hub) /;

/** Built once: another build of the same tree shows nothing new, and takes some 10 s. */
const BUILD = "npm run build";
const built = new Set<string>();

async function follow(machine: ReaderMachine, document: string): Promise<FollowedDocument> {
  const begun = performance.now();
  const ran: string[] = [];
  const problems: string[] = [];
  const copied = new Map<string, string>();
  /** Reasons of blocks that are marked as not run, and whether a command of the block fails. */
  const failing = new Map<string, boolean>();
  const preparations = new Map(Object.entries(PREPARATIONS[document] ?? {}));
  for (const step of stepsOf(readFileSync(document, "utf8"))) {
    const where = `${document}:${step.line}`;
    try {
      const name = step.kind === "file" ? step.path : withoutComment(step.text);
      if (step.kind === "command" && built.has(step.text)) continue;
      if (step.kind === "command" && step.notRun !== undefined) {
        const fails = !TRIED.test(step.text) || (await machine.shell.run(step.text)).code !== 0;
        failing.set(step.notRun, fails || failing.get(step.notRun) === true);
        continue;
      }
      const prepare = [...preparations].find(([start]) => name.startsWith(start));
      if (prepare !== undefined) preparations.delete(prepare[0]);
      if (step.kind === "command") {
        await prepare?.[1](machine);
        const output = await runStep(machine, step);
        for (const [shown, real] of COPIED) {
          const [found] = real.exec(output) ?? [];
          if (found !== undefined) copied.set(shown, found);
        }
        ran.push(step.text);
        if (step.text === BUILD) built.add(BUILD);
      } else {
        const text = COPIED.reduce((all, [shown]) => all.replace(shown, copied.get(shown) ?? shown), step.text);
        if (step.isAdded) machine.append(step.path, text);
        else machine.write(step.path, text);
        await prepare?.[1](machine);
      }
    } catch (error) {
      problems.push(`${where}: ${describeError(error)}`);
    }
  }
  for (const [reason, fails] of failing)
    if (!fails) problems.push(`${document}: "not run: ${reason}" is not needed, as the commands do run`);
  for (const unused of preparations.keys()) problems.push(`${document}: no step begins with "${unused}" any more`);
  return { document, ran, problems, seconds: (performance.now() - begun) / 1000 };
}

const withoutComment = (text: string): string => text.replace(/\s+# .*/, "");

/** @returns its output. @throws unless it does what the document shows */
async function runStep(machine: ReaderMachine, { text, expected }: DocumentedCommand): Promise<string> {
  const isShown = (output: string): boolean => missingLine(expected, output, true) === undefined;
  const service = SERVICES.find(([start]) => text.startsWith(start));
  if (service !== undefined) {
    const command = await machine.startService(text, (output) => service[1].test(output) && isShown(output));
    return command.output;
  }
  if (ENDLESS.test(text)) {
    const command = await machine.shell.start(text);
    const shown = command.until((output) => output !== "" && isShown(output));
    await Promise.all([shown, DURING.find(([start]) => text.startsWith(start))?.[1](machine, command)]);
    await command.end("SIGINT");
    return command.output;
  }
  const { code, output } = await machine.shell.run(text);
  const missing = missingLine(expected, output);
  if (missing !== undefined) throw new Error(`"${text}" does not print "${missing}", but\n${output}`);
  const isDegraded = expected.some((line) => line.includes(" is degraded: "));
  if (code !== (isDegraded ? 1 : 0)) throw new Error(`"${text}" ends with ${code}:\n${output}`);
  return output;
}

const [folder = "", ...documents] = process.argv.slice(2);
const machine = await ReaderMachine.start(folder);
for (const document of documents) process.stdout.write(`${JSON.stringify(await follow(machine, document))}\n`);
// All else that runs in these namespaces ends with this process.
process.exit(0);
