import { type Arguments, parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import { helpText } from "@picolet/protocol/command-line/help-text.ts";
import { type Flag, HELP_FLAG, type Program } from "@picolet/protocol/command-line/program.ts";
import { EX_USAGE, usageReport } from "@picolet/protocol/command-line/usage-error.ts";

interface ScriptOptions {
  /** As in `npm run NAME`. */
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly Flag[];
  readonly operands?: string;
  readonly atMost?: number;
  /** Paragraphs of the help below the flags. */
  readonly notes?: readonly string[];
}

/** A script's table as a program's. */
export const scriptProgram = ({ name, notes = [], ...command }: ScriptOptions): Program => ({
  name: `npm run ${name} --`,
  section: 1,
  summary: command.summary,
  description: "",
  commands: [{ words: [], details: "", examples: [], ...command }],
  defaultWords: [],
  globals: [{ ...HELP_FLAG, help: "print this" }],
  exitCodes: [
    [0, "good"],
    [1, "not"],
    [EX_USAGE, "wrong usage"],
  ],
  environment: [],
  files: [],
  chapters: notes.length === 0 ? [] : [{ title: "Notes", paragraphs: notes }],
});

/** The command line of an npm script. `--help` and wrong usage end the process. */
export function readOptions(options: ScriptOptions, words: readonly string[] = process.argv.slice(2)): Arguments {
  const program = scriptProgram(options);
  try {
    const { command, arguments: input } = parseCommandLine(words, program);
    if (command !== undefined) return input;
    process.stdout.write(helpText([], program));
    process.exit(0);
  } catch (error) {
    return endWithUsageError(options.name, error);
  }
}

export function endWithUsageError(name: string, error: unknown): never {
  process.stderr.write(usageReport(name, error, `npm run ${name} -- --help lists the options`));
  process.exit(EX_USAGE);
}
