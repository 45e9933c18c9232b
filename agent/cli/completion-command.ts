import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { canonical } from "@picolet/protocol/command-line/command-line.ts";
import { flagText } from "@picolet/protocol/command-line/help-text.ts";
import type { Flag } from "@picolet/protocol/command-line/program.ts";
import type { ImageList, KeyvalueBucketList, KeyvalueKeyList, PodList } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { bucketLabel, bucketPath, parseBucket } from "./commands/keyvalue-names.ts";
import type { AgentClient } from "./context/agent-client.ts";
import type { Command, EdgectlProgram } from "./context/command.ts";
import { SHELLS } from "./context/completion-scripts.ts";
import { readFields } from "./context/configuration-fields.ts";
import type { Context } from "./context/context.ts";
import { EXIT_HEALTHY, usageError } from "./context/exit-codes.ts";
import { parsePodName, podLabel, podPath, query } from "./context/objects.ts";

export async function runCompletion(context: Context, input: Arguments): Promise<number> {
  const [shell = ""] = input.positionals;
  const script = SHELLS.get(shell);
  if (script === undefined) throw usageError(`no completion for "${shell}", only ${[...SHELLS.keys()].join(", ")}`);
  await context.terminal.write(script);
  return EXIT_HEALTHY;
}

/** Says to the script that a file is meant, which it knows better how to complete. */
const FILES = ":files";

export interface Candidate {
  readonly word: string;
  /** Its description, in one line. */
  readonly does?: string | undefined;
}

/** Lists candidates for the last of `words`. Without an agent: those that need none. Never throws. */
export async function completions(
  words: readonly string[],
  program: EdgectlProgram,
  sources: Sources,
): Promise<readonly Candidate[]> {
  const line = readLine(words, program);
  const candidates = await candidatesFor(line, program, sources).catch((): Candidate[] => []);
  return candidates
    .filter(({ word }) => word === FILES || word.startsWith(line.current))
    .map((each) => (each.word === FILES ? each : { ...each, word: line.prefix + each.word }));
}

/** The source of names. */
type Sources = Pick<Context, "client" | "readBeside">;

interface PartialLine {
  /** The word being typed, or what is typed of a flag's value. */
  readonly current: string;
  /** The part of the word before `current`: `--output=`. */
  readonly prefix: string;
  readonly positionals: readonly string[];
  readonly values: ReadonlyMap<string, string>;
  /** The flag whose value is being typed. */
  readonly flag: Flag | undefined;
}

/** Forgiving: the line is not finished. bash makes three words of `--output=json`, other shells leave it one. */
function readLine(words: readonly string[], { commands, globals }: EdgectlProgram): PartialLine {
  const all = [...globals, ...commands.flatMap((each) => each.flags)];
  const joined = words.filter((word, index) => word !== "=" || index === words.length - 1);
  const last = joined.at(-1) ?? "";
  const positionals: string[] = [];
  const values = new Map<string, string>();
  const flagCalled = (label: string): Flag | undefined => {
    const own = commands.find((each) => each.words.every((word, index) => positionals[index] === word))?.flags ?? [];
    const meant = [...own, ...all].find((each) => label === `--${each.name}` || label === `-${each.short}`);
    return meant?.value === undefined ? undefined : meant;
  };
  let open: Flag | undefined;
  for (const word of joined.slice(0, -1)) {
    const [, label = word, value] = WITH_VALUE.exec(word) ?? [];
    if (open !== undefined) {
      values.set(open.name, word);
      open = undefined;
    } else if (word.startsWith("-")) {
      const meant = flagCalled(label);
      if (meant !== undefined && value !== undefined) values.set(meant.name, value);
      else open = meant;
    } else positionals.push(word);
  }
  const [, label = "", value] = (open === undefined && WITH_VALUE.exec(last)) || [];
  const inline = value === undefined ? undefined : flagCalled(label);
  return {
    current: inline === undefined ? (last === "=" ? "" : last) : (value ?? ""),
    prefix: inline === undefined ? "" : `${label}=`,
    positionals: canonical(positionals, commands),
    values,
    flag: open ?? inline,
  };
}

const WITH_VALUE = /^(--[^=]+)=(.*)$/s;

const plainly = (words: readonly string[]): Candidate[] => words.map((word) => ({ word }));

async function candidatesFor(line: PartialLine, program: EdgectlProgram, sources: Sources): Promise<Candidate[]> {
  const { current, positionals, flag } = line;
  const { commands, globals } = program;
  const command = commands.find((each) => each.words.every((word, index) => positionals[index] === word));
  const operands = positionals.slice(command?.words.length ?? 1);
  if (flag !== undefined) {
    // One name can be another command's flag, with other choices.
    const own = command?.flags.find((each) => each.name === flag.name) ?? flag;
    if (own.choices !== undefined) return plainly(own.choices);
    return await named(own.completes, { line, operands, program }, sources);
  }
  if (current.startsWith("-")) {
    return [...globals, ...(command?.flags ?? [])].map((each) => ({ word: `--${each.name}`, does: flagText(each) }));
  }
  if (command === undefined) return nextWords(positionals, commands);
  const { completes = [] } = command;
  return await named(completes[operands.length] ?? completes.at(-1), { line, operands, program }, sources);
}

interface Place {
  readonly line: PartialLine;
  /** The words before the one being typed. */
  readonly operands: readonly string[];
  readonly program: EdgectlProgram;
}

async function named(
  kind: string | undefined,
  { line, operands, program }: Place,
  { client, readBeside }: Sources,
): Promise<Candidate[]> {
  switch (kind) {
    case "pods":
      return plainly(await podNames(line, client));
    case "containers":
      return plainly(await containerNames(line, operands[0], client));
    case "images":
      return plainly((await client.get<ImageList>("/v1/images")).items.flatMap(({ tags }) => tags));
    case "namespaces":
      return plainly(await namespaces(client));
    case "resources":
      return plainly(["pods", "events", "images"]);
    case "commands":
      return nextWords(operands, program.commands);
    case "files":
      return [{ word: FILES }];
    case "buckets":
      return plainly(await bucketNames(line, client));
    case "keys":
      return plainly(await keyNames(line, operands[0] ?? "", client));
    case "whyWords":
      return [
        ...plainly(["node", "restarted", "evicted", "started", "ended"]),
        ...plainly(await podNames(line, client)),
      ];
    case "fields":
      return readFields(readBeside).map(({ path, meaning }) => ({ word: path, does: meaning }));
    case "shells":
      return plainly([...SHELLS.keys()]);
    default:
      return [];
  }
}

/** The words that may come after `before`; one that begins several commands has no text of its own. */
function nextWords(before: readonly string[], commands: readonly Command[]): Candidate[] {
  const fitting = commands.filter((each) => before.every((word, index) => each.words[index] === word));
  const words = [...new Set(fitting.map((each) => each.words[before.length] ?? ""))].filter((word) => word !== "");
  return words.map((word) => {
    const [first, ...others] = fitting.filter((each) => each.words[before.length] === word);
    return { word, does: others.length === 0 ? first?.summary : undefined };
  });
}

async function namespaces(client: AgentClient): Promise<string[]> {
  const { items } = await client.get<PodList>("/v1/pods");
  return [...new Set(items.map((each) => each.metadata.namespace))];
}

async function containerNames(
  { values }: PartialLine,
  pod: string | undefined,
  client: AgentClient,
): Promise<string[]> {
  if (pod === undefined) return [];
  const { spec } = await client.get<Pod>(podPath(parsePodName(pod, values.get("namespace"))));
  return [...spec.containers, ...(spec.initContainers ?? [])].map(({ name }) => name);
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
