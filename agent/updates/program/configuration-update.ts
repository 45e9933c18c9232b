/** Changes that a hub asks of the configuration: merged into the board's file, and judged by the agent's own check. */
import { createHash } from "node:crypto";
import { chmod, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf, isRecord } from "@picolet/protocol/guards.ts";
import { syncDirectory, writeDurably } from "@picolet/runtime-wasm/shared/files/durable-files.ts";
import { fieldChanges, ownersFields } from "../../plan/updates/configuration-change.ts";
import { NEXT_CONFIGURATION, PREVIOUS_CONFIGURATION, type UpdateAnswer, type UpdateTask } from "../update-task.ts";
import { complaintOf, type RunCommand } from "./commands.ts";

export interface ConfigurationComponents {
  readonly run: RunCommand;
  /** Node and the agent's program. */
  readonly agent: readonly string[];
  readonly onInstalling: () => void;
}

type ConfigurationTask = Extract<UpdateTask, { want: "configuration" }>;

export async function updateConfiguration(
  { run, agent, onInstalling }: ConfigurationComponents,
  { directory, text, path, install }: ConfigurationTask,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const current = await textOf(path);
  const merged = await mergedConfiguration(current ?? "", text, path);
  const version = createHash("sha256").update(text).digest("hex").slice(0, 16);
  if (merged === current) return { kind: "current", version };
  onInstalling();
  const next = join(directory, NEXT_CONFIGURATION);
  await rm(`${next}.new`, { force: true });
  await writeDurably(next, merged, `${next}.new`);
  const check = await run([...agent, "--config", next, "--check-config"], signal);
  if (check.exitCode !== 0)
    throw new PicoletError("invalid", `the configuration would be wrong: ${complaintOf(check).replaceAll(next, path)}`);
  const answer: UpdateAnswer = { kind: "prepared", version, slot: "", bytes: text.length, totalBytes: text.length };
  if (!install) return answer;
  await keepPrevious(directory, path, current);
  return answer;
}

/** Both files get the mode of the one in force, which may hold a token. */
async function keepPrevious(directory: string, path: string, current: string | undefined): Promise<void> {
  const previous = join(directory, PREVIOUS_CONFIGURATION);
  await rm(previous, { force: true });
  const mode = current === undefined ? DEFAULT_MODE : (await stat(path)).mode & 0o777;
  await chmod(join(directory, NEXT_CONFIGURATION), mode);
  if (current !== undefined) {
    await rm(`${previous}.new`, { force: true });
    await writeDurably(previous, current, `${previous}.new`);
    await chmod(previous, mode);
  }
  await syncDirectory(directory);
}

const DEFAULT_MODE = 0o644;

/** Undefined: there is no such file. */
async function textOf(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw new PicoletError("failed", `cannot read ${path}`, { cause });
  }
}

/** Comments and all other fields stay. @throws `invalid` */
export async function mergedConfiguration(current: string, text: string, path: string): Promise<string> {
  const { isMap, parse, parseDocument } = await import("yaml");
  const change = parsed(() => parse(text, { maxAliasCount: MAX_ALIASES }) as unknown);
  if (!isRecord(change)) throw new PicoletError("invalid", "picolet.io/configuration is no YAML mapping");
  const [owners] = ownersFields(change);
  if (owners !== undefined)
    throw new PicoletError("invalid", `a hub may not change ${owners}: only the board's owner does, on the board`);
  const document = parseDocument(current);
  if (document.errors[0] !== undefined || !(document.contents === null || isMap(document.contents)))
    throw new PicoletError("invalid", `${path} is no YAML mapping`, { cause: document.errors[0] });
  for (const { path: field, value } of fieldChanges(change)) {
    try {
      if (value === undefined) document.deleteIn(field);
      // A plain value keeps the comment of the one before.
      else document.setIn(field, typeof value === "object" ? document.createNode(value) : value);
    } catch (cause) {
      throw new PicoletError("invalid", `cannot set ${field.join(".")}: what it is in is no mapping`, { cause });
    }
  }
  return document.toString();
}

/** Bounds what a few lines of YAML become. */
const MAX_ALIASES = 100;

function parsed<T>(parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw new PicoletError("invalid", "picolet.io/configuration is no YAML", { cause });
  }
}
