/**
 * Scripts with which bash, zsh and fish complete a program, made from its table. They ask no program: the table has all
 * words, choices and flags. (edgectl also completes names of pods and has scripts of its own.) Pure.
 */
import { flagText } from "@picolet/protocol/command-line/help-text.ts";
import { type CommandText, type Flag, type Program, takesNextWord } from "@picolet/protocol/command-line/program.ts";

/** By shell: the name of the file in which the shell looks for it, and the script. */
export function completionScripts(program: Program): ReadonlyMap<string, readonly [file: string, script: string]> {
  const { name } = program;
  return new Map([
    ["bash", [name, bashScript(program)]],
    ["zsh", [`_${name}`, zshScript(program)]],
    ["fish", [`${name}.fish`, fishScript(program)]],
  ]);
}

type Word = readonly [word: string, does: string];

/** The words that may follow the words of a line, beside flags. */
interface Place {
  /** Joined by spaces; "" before any command. */
  readonly words: string;
  /** True when operands may follow, so that what is typed after `words` is not a command's word. */
  readonly takesOperands: boolean;
  readonly next: readonly Word[];
  readonly takesFiles: boolean;
  readonly flags: readonly Flag[];
}

/** Places of longer lines first. */
function placesOf({ commands, globals, defaultWords }: Program): readonly Place[] {
  const commandOf = (line: string): CommandText | undefined => commands.find(({ words }) => words.join(" ") === line);
  const lines = new Set(
    commands.flatMap(({ words }) => ["", ...words.map((_, index) => words.slice(0, index + 1).join(" "))]),
  );
  const places = [...lines].map((line): Place => {
    const command = commandOf(line) ?? (line === "" ? commandOf(defaultWords?.join(" ") ?? "") : undefined);
    const isNamed = commandOf(line) !== undefined && line !== "";
    const completes = isNamed ? (command?.completes?.at(-1) ?? "") : "";
    return {
      words: line,
      takesOperands: isNamed,
      next: completes === "commands" ? nextWords("", commands) : isNamed ? [] : nextWords(line, commands),
      takesFiles: completes === "files",
      flags: [...(command?.flags ?? []), ...globals],
    };
  });
  return places.toSorted((a, b) => b.words.split(" ").length - a.words.split(" ").length);
}

function nextWords(line: string, commands: readonly CommandText[]): readonly Word[] {
  const before = line === "" ? [] : line.split(" ");
  const fitting = commands.filter(({ words }) => before.every((word, index) => words[index] === word));
  const words = new Set(fitting.map(({ words: each }) => each[before.length] ?? "").filter((word) => word !== ""));
  return [...words].map((word) => {
    const [only, ...others] = fitting.filter(({ words: each }) => each[before.length] === word);
    return [word, others.length === 0 ? (only?.summary ?? "") : ""];
  });
}

const allFlags = ({ commands, globals }: Program): readonly Flag[] => {
  const byName = new Map([...globals, ...commands.flatMap(({ flags }) => flags)].map((flag) => [flag.name, flag]));
  return [...byName.values()];
};

const label = ({ name }: Flag): string => `--${name}`;
const functionName = ({ name }: Program): string => `_${name.replaceAll("-", "_")}`;
const valueFlags = (program: Program): readonly Flag[] => allFlags(program).filter(takesNextWord);
const fileFlags = (program: Program): readonly Flag[] =>
  allFlags(program).filter(({ completes }) => completes === "files");

/** A `case` pattern of the shells for a place: its words, with any operands after them. */
const patternOf = ({ words, takesOperands }: Place): string => `"${words}"${takesOperands ? ` | "${words} "*` : ""}`;

/** Alternatives of a `case`, or nothing when there are none. */
const alternative = (labels: readonly string[], action: string): string[] =>
  labels.length === 0 ? [] : [`        ${labels.join(" | ")}) ${action} ;;`];

/** Reads the words before the cursor into `command`, and into `expects` the flag whose value is being typed. */
const readWords = (program: Program, words: string): string => `    for word in "\${${words}}"; do
        if [[ -n $expects ]]; then
            [[ $word == "=" ]] || expects=
            continue
        fi
        case $word in
${alternative(valueFlags(program).map(label), "expects=$word").join("\n").replaceAll(/^/gm, "    ")}
            -* | =) ;;
            *) command="\${command:+$command }$word" ;;
        esac
    done`;

function bashScript(program: Program): string {
  const choices = valueFlags(program).flatMap((flag) =>
    flag.choices === undefined ? [] : alternative([label(flag)], `words="${flag.choices.join(" ")}"`),
  );
  const places = placesOf(program).map((place) => {
    const words = place.next.map(([word]) => word).join(" ");
    const flags = place.flags.map(label).join(" ");
    return `        ${patternOf(place)})
            words="${words}"
            flags="${flags}"
            files=${place.takesFiles ? "yes" : ""} ;;`;
  });
  const name = functionName(program);
  return `# bash completion for ${program.name}
${name}() {
    local word command= expects= words= flags= files=
    local current=\${COMP_WORDS[COMP_CWORD]}
    # The word is "=" right after the name of a flag.
    [[ $current == "=" ]] && current=
${readWords(program, "COMP_WORDS[@]:1:COMP_CWORD-1")}
    COMPREPLY=()
    case $expects in
${[...alternative(fileFlags(program).map(label), "files=yes"), ...choices].join("\n")}
        "")
            case $command in
${places.join("\n").replaceAll(/^/gm, "        ")}
            esac
            [[ $current == -* ]] && words=$flags files= ;;
    esac
    [[ -n $files ]] && compopt -o default
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F ${name} ${program.name}
`;
}

function zshScript(program: Program): string {
  const choices = valueFlags(program).flatMap((flag) =>
    flag.choices === undefined ? [] : alternative([label(flag)], `compadd -- ${flag.choices.join(" ")}; return`),
  );
  const places = placesOf(program).map((place) => {
    const next = place.next.map(describedWord).join(" ");
    const flags = place.flags.map((flag) => describedWord([label(flag), flagText(flag)]));
    return `        ${patternOf(place)})
            next=(${next})
            flags=(
${flags.map((each) => `                ${each}`).join("\n")}
            )
            files=${place.takesFiles ? "yes" : ""} ;;`;
  });
  const name = functionName(program);
  return `#compdef ${program.name}
# zsh completion for ${program.name}
${name}() {
    local word command= expects= files= current=\${words[CURRENT]}
    local -a next flags
${readWords(program, "(@)words[2,CURRENT-1]")}
    if [[ -z $expects && $current == --*=* ]]; then
        expects=\${current%%=*}
        compset -P '--*='
    fi
    case $expects in
${[...alternative(fileFlags(program).map(label), "_files; return"), ...choices].join("\n")}
        ?*) return ;;
    esac
    case $command in
${places.join("\n")}
    esac
    if [[ $current == -* ]]; then
        _describe -V flag flags
    elif [[ -n $files ]]; then
        _files
    elif (( \${#next} )); then
        _describe -V command next
    fi
}
if [[ \${funcstack[1]-} == _${program.name} ]]; then
    ${name} "$@"
else
    compdef ${name} ${program.name}
fi
`;
}

/** WORD:TEXT, as `_describe` takes it. */
const describedWord = ([word, does]: Word): string =>
  quoted(`${word.replaceAll(":", "\\:")}${does === "" ? "" : `:${does.replaceAll(/\s+/g, " ")}`}`);

/** For zsh; fish has another way to quote. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

function fishScript(program: Program): string {
  const { name } = program;
  const lines = placesOf(program)
    .toReversed()
    .flatMap((place) => {
      const where = `-n ${fishQuoted(fishCondition(place, program))}`;
      const next = place.next.map(([word, does]) => `complete -c ${name} ${where} -a ${word} -d ${fishQuoted(does)}`);
      const files = place.takesFiles ? [`complete -c ${name} ${where} -F`] : [];
      return [...next, ...files, ...place.flags.map((flag) => `complete -c ${name} ${where} ${fishFlag(flag)}`)];
    });
  return `# fish completion for ${name}\ncomplete -c ${name} -f\n${lines.join("\n")}\n`;
}

/** True at the place: all of its words are on the line, and no word of a longer command. */
function fishCondition({ words, takesOperands }: Place, { commands }: Program): string {
  const seen = words === "" ? [] : words.split(" ").map((word) => `__fish_seen_subcommand_from ${word}`);
  const others = takesOperands ? [] : nextWords(words, commands).map(([word]) => word);
  const unseen = others.length === 0 ? [] : [`not __fish_seen_subcommand_from ${others.join(" ")}`];
  return [...seen, ...unseen].join("; and ") || "true";
}

function fishFlag(flag: Flag): string {
  const { name, short, choices, completes } = flag;
  const shortPart = short === undefined ? "" : ` -s ${short}`;
  const valuePart = !takesNextWord(flag)
    ? ""
    : choices !== undefined
      ? ` -x -a ${fishQuoted(choices.join(" "))}`
      : completes === "files"
        ? " -r -F"
        : " -x";
  return `-l ${name}${shortPart}${valuePart} -d ${fishQuoted(flagText(flag).replaceAll(/\s+/g, " "))}`;
}

const fishQuoted = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
