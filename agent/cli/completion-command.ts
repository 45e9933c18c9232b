import type { KeyvalueBucketList, KeyvalueKeyList, PodList } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { bucketLabel, bucketPath, parseBucket } from "./commands/keyvalue-names.ts";
import { GLOBAL_FLAGS } from "./commands.ts";
import type { AgentClient } from "./context/agent-client.ts";
import type { Command } from "./context/command.ts";
import { type Arguments, canonical, type Flag } from "./context/command-line.ts";
import type { Context } from "./context/context.ts";
import { EXIT_HEALTHY, usageError } from "./context/exit-codes.ts";
import { parsePodName, podLabel, podPath, query } from "./context/objects.ts";

/** For bash 4 and later. The words up to the cursor go to `edgectl __complete`, which answers one candidate a line. */
const BASH_SCRIPT = `# bash completion for edgectl
_edgectl() {
    local IFS=$'\\n'
    COMPREPLY=($("\${COMP_WORDS[0]}" __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [ "\${COMPREPLY[0]}" = ":files" ]; then
        compopt -o default
        COMPREPLY=()
    fi
}
complete -F _edgectl edgectl
`;

export async function runCompletion(context: Context, input: Arguments): Promise<number> {
  const [shell = ""] = input.positionals;
  if (shell !== "bash") throw usageError(`no completion for "${shell}", only bash`);
  await context.terminal.write(BASH_SCRIPT);
  return EXIT_HEALTHY;
}

/** Says to the script that a file is meant, which it knows better how to complete. */
const FILES = ":files";

/** What may stand in the place of the last of `words`. Without an agent: what needs none. Never throws. */
export async function completions(
  words: readonly string[],
  commands: readonly Command[],
  client: AgentClient,
): Promise<string[]> {
  const line = readLine(words, commands);
  const candidates = await candidatesFor(line, commands, client).catch((): string[] => []);
  return candidates.filter((each) => each === FILES || each.startsWith(line.current));
}

interface PartialLine {
  /** The word being typed. */
  readonly current: string;
  readonly positionals: readonly string[];
  readonly values: ReadonlyMap<string, string>;
  /** The flag whose value is being typed. */
  readonly flag: Flag | undefined;
}

/** Forgiving: the line is not finished. bash makes three words of `--output=json`. */
function readLine(words: readonly string[], commands: readonly Command[]): PartialLine {
  const all = [...GLOBAL_FLAGS, ...commands.flatMap((each) => each.flags)];
  const joined = words.filter((word, index) => word !== "=" || index === words.length - 1);
  const last = joined.at(-1) ?? "";
  const positionals: string[] = [];
  const values = new Map<string, string>();
  let open: Flag | undefined;
  for (const word of joined.slice(0, -1)) {
    if (open !== undefined) {
      values.set(open.name, word);
      open = undefined;
    } else if (word.startsWith("-")) {
      const own = commands.find((each) => each.words.every((own, index) => positionals[index] === own))?.flags ?? [];
      const meant = [...own, ...all].find((each) => word === `--${each.name}` || word === `-${each.short}`);
      open = meant?.value === undefined ? undefined : meant;
    } else positionals.push(word);
  }
  return { current: last === "=" ? "" : last, positionals: canonical(positionals, commands), values, flag: open };
}

async function candidatesFor(line: PartialLine, commands: readonly Command[], client: AgentClient): Promise<string[]> {
  const { current, positionals, flag } = line;
  const command = commands.find((each) => each.words.every((word, index) => positionals[index] === word));
  if (flag !== undefined) return await flagValues(flag, line, command, client);
  if (current.startsWith("-")) {
    return [...GLOBAL_FLAGS, ...(command?.flags ?? [])].map(({ name }) => `--${name}`);
  }
  if (command === undefined) return nextWords(positionals, commands);
  const operands = positionals.slice(command.words.length);
  const kind = command.completes[operands.length] ?? command.completes.at(-1);
  switch (kind) {
    case "pods":
      return await podNames(line, client);
    case "resources":
      return ["pods", "events", "images"];
    case "commands":
      return nextWords(operands, commands);
    case "files":
      return [FILES];
    case "buckets":
      return await bucketNames(line, client);
    case "keys":
      return await keyNames(line, operands[0] ?? "", client);
    case "shells":
      return ["bash"];
    default:
      return [];
  }
}

function nextWords(before: readonly string[], commands: readonly Command[]): string[] {
  const fitting = commands.filter((each) => before.every((word, index) => each.words[index] === word));
  return [...new Set(fitting.map((each) => each.words[before.length] ?? ""))].filter((word) => word !== "");
}

async function flagValues(
  flag: Flag,
  line: PartialLine,
  command: Command | undefined,
  client: AgentClient,
): Promise<string[]> {
  if (flag.name === "socket" || flag.name === "filename") return [FILES];
  if (flag.name === "namespace") {
    const { items } = await client.get<PodList>("/v1/pods");
    return [...new Set(items.map((each) => each.metadata.namespace))];
  }
  if (flag.name === "pod") return await podNames(line, client);
  if (flag.name === "container") {
    const [pod] = line.positionals.slice(command?.words.length ?? 1);
    if (pod === undefined) return [];
    const { spec } = await client.get<Pod>(podPath(parsePodName(pod, line.values.get("namespace"))));
    return [...spec.containers, ...(spec.initContainers ?? [])].map(({ name }) => name);
  }
  // One name can be another command's flag, with other choices.
  const own = command?.flags.find((each) => each.name === flag.name) ?? flag;
  return [...(own.choices ?? [])];
}

async function podNames({ current, values }: PartialLine, client: AgentClient): Promise<string[]> {
  const namespace = values.get("namespace");
  const { items } = await client.get<PodList>("/v1/pods");
  const prefix = /^pods?\//.exec(current)?.[0] ?? "";
  return items
    .map(({ metadata }) => metadata)
    .filter((each) => namespace === undefined || each.namespace === namespace)
    .map((each) => prefix + (namespace === undefined ? podLabel(each.namespace, each.name) : each.name));
}

async function bucketNames({ values }: PartialLine, client: AgentClient): Promise<string[]> {
  const namespace = values.get("namespace");
  const { items } = await client.get<KeyvalueBucketList>("/v1/keyvalue");
  return items
    .filter((each) => namespace === undefined || each.namespace === namespace)
    .map((each) => (namespace === undefined ? bucketLabel(each) : each.name));
}

async function keyNames({ current, values }: PartialLine, bucket: string, client: AgentClient): Promise<string[]> {
  const path = bucketPath(parseBucket(bucket, values.get("namespace")));
  const { items } = await client.get<KeyvalueKeyList>(`${path}/keys${query({ prefix: current || undefined })}`);
  return items.map(({ key }) => key);
}
