/**
 * A program's command line as a table. The parser, help texts, completions, man pages and the references in `docs/` are
 * made from it.
 */

export interface Flag {
  /** The name without the dashes. */
  readonly name: string;
  readonly short?: string;
  /** The name of its value in the help. Undefined: the flag takes no value. */
  readonly value?: string;
  /** The value that it has when it is given without one; any other follows a `=`. */
  readonly implied?: string;
  readonly help: string;
  /** The values it takes. Missing: any that `parse` takes. */
  readonly choices?: readonly string[];
  /** The default as it is written on the command line. */
  readonly default?: string;
  /** True when a number in a configuration file is its value as well. */
  readonly takesNumber?: boolean;
  /** True when it may be given more than once. */
  readonly repeats?: boolean;
  /** The kind of names that complete its value; the program knows the kinds. */
  readonly completes?: string;
  /** The chapter of references that lists it. Missing: it is among the command's own flags. */
  readonly group?: string;
  /** @throws a usage error that names the flag and shows a value that it takes */
  readonly parse?: (text: string) => unknown;
}

export interface CommandShape {
  /** None for a program that is one command, else one word or two. */
  readonly words: readonly string[];
  /** Stands for the first of them. */
  readonly alias?: string;
  readonly flags: readonly Flag[];
  /** Operands after the command's words; "" or undefined: none. */
  readonly operands?: string;
  /** How many operands the command takes. Missing: none. */
  readonly atLeast?: number;
  readonly atMost?: number;
}

export type ExitCode = readonly [code: number, meaning: string];

export interface CommandText extends CommandShape {
  readonly summary: string;
  readonly details: string;
  readonly examples: readonly (readonly [command: string, does: string])[];
  /** Exit codes that mean something else than the program's own. */
  readonly exitCodes?: readonly ExitCode[];
  /** The kind of each operand, for completion; the last one applies to all that follow. */
  readonly completes?: readonly string[];
}

export interface Program<C extends CommandText = CommandText> {
  readonly name: string;
  /** The section of its man page. */
  readonly section: 1 | 8;
  readonly summary: string;
  /** The description in its man page: one or two paragraphs. */
  readonly description: string;
  readonly commands: readonly C[];
  /** The words of the command that runs when none is named; missing: the help is shown. */
  readonly defaultWords?: readonly string[];
  /** Flags of every command. */
  readonly globals: readonly Flag[];
  readonly exitCodes: readonly ExitCode[];
  readonly environment: readonly (readonly [name: string, meaning: string])[];
  readonly files: readonly (readonly [path: string, meaning: string])[];
  readonly chapters: readonly Chapter[];
}

/** Longer explanations at the end of the help; paragraphs. */
export interface Chapter {
  readonly title: string;
  readonly paragraphs: readonly string[];
}

export const HELP_FLAG: Flag = { name: "help", short: "h", help: "show how a command is used" };

/** `edgectl image pull REF` without the flags. */
export const usageOf = ({ name }: Pick<Program, "name">, { words, operands = "" }: CommandShape): string =>
  [name, ...words, operands].filter((each) => each !== "").join(" ");

/** `-o, --output FORMAT`. */
export const flagLabel = (flag: Flag, gap = ""): string =>
  `${flag.short === undefined ? gap : `-${flag.short}, `}--${flag.name}${valueLabel(flag)}`;

/** ` FORMAT` or `[=FORMAT]`. */
export function valueLabel({ value, implied }: Pick<Flag, "value" | "implied">): string {
  if (value === undefined) return "";
  return implied === undefined ? ` ${value}` : `[=${value}]`;
}

/** True when the word after the flag may be its value. */
export const takesNextWord = ({ value, implied }: Flag): boolean => value !== undefined && implied === undefined;
