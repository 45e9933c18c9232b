/** Words and flags of a command line, made values. Knows the shape of commands, none in particular. Pure. */
import { editDistance } from "../kubernetes/nearest-name.ts";
import type { ValueFlag } from "./flag-values.ts";
import type { CommandShape, Flag, Program } from "./program.ts";
import { usageError } from "./usage-error.ts";

/** More words than any command line has that a person wrote; the kernel's own limit is 2 MiB. */
const MAX_WORDS = 4096;

/** The values of each flag, in the order in which they were given. */
type Flags = ReadonlyMap<string, readonly string[]>;

export class Arguments {
  /** Operands without the command's own words. */
  readonly positionals: readonly string[];
  readonly #flags: Flags;

  constructor(positionals: readonly string[], flags: Flags) {
    this.positionals = positionals;
    this.#flags = flags;
  }

  /** Flags that are not given here are those of `others`. */
  over(others: Flags): Arguments {
    return new Arguments(this.positionals, new Map([...others, ...this.#flags]));
  }

  flag(name: string): boolean {
    return this.text(name) === "true";
  }

  /** The last, where it is given more than once. */
  text(name: string): string | undefined {
    return this.texts(name).at(-1);
  }

  /** All values of a flag that may be given more than once. */
  texts(name: string): readonly string[] {
    return this.#flags.get(name) ?? [];
  }

  /** The flag's default when it was not given. */
  value<V>(flag: ValueFlag<V> & { readonly default: string }): V;
  value<V>(flag: ValueFlag<V>): V | undefined;
  value<V>(flag: ValueFlag<V>): V | undefined {
    const text = this.text(flag.name) ?? flag.default;
    return text === undefined ? undefined : flag.parse(text);
  }

  values<V>(flag: ValueFlag<V>): readonly V[] {
    return this.texts(flag.name).map((each) => flag.parse(each));
  }
}

/** The part of a program's table that parsing needs. */
type Grammar<C extends CommandShape> = Pick<Program, "name" | "globals" | "defaultWords"> & {
  readonly commands: readonly C[];
};

export interface CommandLine<C extends CommandShape> {
  /** `undefined`: no word was given, or help was asked for on a group. */
  readonly command: C | undefined;
  /** The word that several commands begin with, and no other was given. */
  readonly group?: string;
  readonly arguments: Arguments;
}

/** @throws a usage error for what no command has, with what may have been meant. */
export function parseCommandLine<C extends CommandShape>(
  words: readonly string[],
  program: Grammar<C>,
): CommandLine<C> {
  if (words.length > MAX_WORDS) throw usageError(`more than ${MAX_WORDS} arguments`);
  const { commands, globals } = program;
  const all = [...globals, ...commands.flatMap((each) => each.flags)];
  const read = (flags: readonly Flag[]): ReturnType<typeof scan> => {
    const { positionals, ...others } = scan(words, flags);
    return { positionals: canonical(positionals, commands), ...others };
  };
  const first = read(all);
  // One short flag can be another command's, with a value: read again once the command is known.
  const guess = commands.find((each) => hasWords(each, first.positionals));
  const { positionals, flags } = guess === undefined ? first : read([...guess.flags, ...all]);
  const wantsHelp = flags.get("help")?.at(-1) === "true";
  const group = wantsHelp ? groupOf(positionals, commands) : undefined;
  if (group !== undefined) return { command: undefined, group, arguments: new Arguments([], flags) };
  const command = positionals.length === 0 ? defaultOf(program) : findCommand(positionals, commands);
  if (command === undefined || (wantsHelp && positionals.length === 0)) {
    checkFlags(flags, "", [...globals, ...(command?.flags ?? [])]);
    return { command: undefined, arguments: new Arguments([], flags) };
  }
  checkFlags(flags, command.words.join(" "), [...globals, ...command.flags]);
  const operands = positionals.length === 0 ? [] : positionals.slice(command.words.length);
  if (!wantsHelp) checkOperands(operands, command, program);
  return { command, arguments: new Arguments(operands, flags) };
}

const hasWords = ({ words }: CommandShape, positionals: readonly string[]): boolean =>
  words.every((word, index) => positionals[index] === word);

const defaultOf = <C extends CommandShape>({ commands, defaultWords }: Grammar<C>): C | undefined =>
  defaultWords && commands.find((each) => each.words.join(" ") === defaultWords.join(" "));

function checkOperands(operands: readonly string[], command: CommandShape, program: Pick<Program, "name">): void {
  const { atLeast = 0, atMost = 0, operands: wanted = "" } = command;
  const name = command.words.join(" ") || program.name;
  const [extra] = operands.slice(atMost);
  if (extra !== undefined) throw usageError(`${name} takes no "${extra}"`);
  if (operands.length < atLeast) throw usageError(`${name} needs ${wanted}`);
}

function groupOf([first, ...others]: readonly string[], commands: readonly CommandShape[]): string | undefined {
  const isGroup = commands.some(({ words }) => words.length > 1 && words[0] === first);
  return isGroup && others.length === 0 ? first : undefined;
}

/** Replaces the alias of a command by the command's word. */
export function canonical(positionals: readonly string[], commands: readonly CommandShape[]): string[] {
  const [first, ...others] = positionals;
  if (first === undefined) return [];
  const named = commands.find((each) => each.alias === first);
  return [named?.words[0] ?? first, ...others];
}

/** A long flag means the same in every command; of short flags of one name the first in `all` counts. */
function scan(words: readonly string[], all: readonly Flag[]): { positionals: string[]; flags: Flags } {
  const positionals: string[] = [];
  const flags = new Map<string, string[]>();
  const add = (name: string, value: string): void => void flags.set(name, [...(flags.get(name) ?? []), value]);
  let index = 0;
  const takeValue = (shown: string, inline: string | undefined): string => {
    if (inline !== undefined) return inline;
    index += 1;
    const value = words[index];
    if (value === undefined) throw usageError(`${shown} needs a value`);
    return value;
  };
  for (; index < words.length; index += 1) {
    const word = words[index] ?? "";
    if (word === "--") {
      positionals.push(...words.slice(index + 1));
      break;
    }
    if (word.startsWith("--")) {
      const [name = "", inline] = splitOnce(word.slice(2));
      const flag = all.find((each) => each.name === name);
      if (flag === undefined)
        throw usageError(
          `unknown flag --${name}${didYouMean(
            name,
            all.map((each) => each.name),
            "--",
          )}`,
        );
      if (flag.value === undefined) add(name, switchValue(name, inline));
      else add(name, inline ?? flag.implied ?? takeValue(`--${name}`, inline));
    } else if (word.startsWith("-") && word.length > 1) {
      for (let at = 1; at < word.length; at += 1) {
        const short = word[at] ?? "";
        const flag = all.find((each) => each.short === short);
        if (flag === undefined) throw usageError(`unknown flag -${short}${word.length > 2 ? ` in ${word}` : ""}`);
        const rest = word.slice(at + 1).replace(/^=/, "");
        if (flag.value !== undefined) {
          add(flag.name, takeValue(`-${short}`, rest === "" ? undefined : rest));
          break;
        }
        add(flag.name, "true");
      }
    } else positionals.push(word);
  }
  return { positionals, flags };
}

function switchValue(name: string, inline: string | undefined): string {
  if (inline === undefined || inline === "true") return "true";
  if (inline === "false") return "false";
  throw usageError(`--${name} takes no value but true or false`);
}

function splitOnce(text: string): [string, string | undefined] {
  const equals = text.indexOf("=");
  return equals < 0 ? [text, undefined] : [text.slice(0, equals), text.slice(equals + 1)];
}

function findCommand<C extends CommandShape>(positionals: readonly string[], commands: readonly C[]): C {
  const found = commands.find((each) => hasWords(each, positionals));
  if (found !== undefined) return found;
  const [first = "", second] = positionals;
  const below = commands.filter((each) => each.words.length > 1 && each.words[0] === first);
  if (below.length > 0) {
    const names = below.map((each) => each.words[1] ?? "");
    if (second === undefined) throw usageError(`${first} needs one of: ${names.join(", ")}`);
    throw usageError(`unknown command "${first} ${second}"${didYouMean(second, names, `${first} `)}`);
  }
  const names = [...new Set(commands.map((each) => each.words[0] ?? ""))];
  throw usageError(`unknown command "${first}"${didYouMean(first, names, "")}`);
}

function checkFlags(flags: Flags, command: string, allowed: readonly Flag[]): void {
  for (const [name, values] of flags) {
    const flag = allowed.find((each) => each.name === name);
    if (flag === undefined)
      throw usageError(`--${name} does not go with ${command === "" ? "no command" : `"${command}"`}`);
    const { choices, parse } = flag;
    const wrong = choices === undefined ? undefined : values.find((each) => !choices.includes(each));
    if (choices !== undefined && wrong !== undefined) {
      throw usageError(`--${name} must be one of ${choices.join(", ")}${didYouMean(wrong, choices, "")}`);
    }
    if (parse !== undefined) for (const value of values) parse(value);
  }
}

/** `; did you mean "x"?`, or nothing when nothing is near. */
export function didYouMean(word: string, known: readonly string[], prefix: string): string {
  const near = known
    .map((each) => ({ each, distance: each.startsWith(word) && word.length > 1 ? 0 : distanceOf(word, each) }))
    .filter(({ each, distance }) => distance <= Math.max(1, Math.floor(each.length / 3)))
    .sort((a, b) => a.distance - b.distance)[0];
  return near === undefined ? "" : `; did you mean "${prefix}${near.each}"?`;
}

/** Bounds time: a longer word is no misspelling of a known one. */
const MAX_COMPARED_LENGTH = 40;

const distanceOf = (word: string, known: string): number =>
  word.length > MAX_COMPARED_LENGTH ? word.length : editDistance(word, known);
