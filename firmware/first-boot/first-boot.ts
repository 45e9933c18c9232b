/**
 * Runs at each boot before the agent: reads `picolet.yaml`, and applies it when it has changed. A wrong one changes
 * nothing.
 */

import { hash } from "node:crypto";
import { dirname, join } from "node:path";
import type { Board as Machine } from "@picolet/agent/config/board-defaults.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { BoardFacts } from "./board-facts.ts";
import { type BoardState, readState, writeState } from "./board-state.ts";
import { type BootPartition, type FoundBoardFile, findBoardFile } from "./boot-partition.ts";
import { type DurableFiles, removeFile, replaceFile } from "./durable-files.ts";
import type { BoardPlan } from "./plan/board-plan.ts";
import {
  AGENT_CONFIGURATION,
  AGENT_DEFAULTS,
  BOARD,
  HOSTNAME,
  IDENTITY,
  JOIN_TOKEN,
  KEPT_RUN,
  ZONE,
  ZONES,
} from "./plan/places.ts";

export interface Board {
  readonly files: DurableFiles;
  readonly partition: BootPartition;
  readonly facts: BoardFacts;
  /** The machine that the agent's configuration must fit. */
  readonly machine: Machine;
  /** `/run` */
  readonly run: string;
}

/** The findings of a run, for the report. */
export interface Findings {
  readonly result: "applied" | "unchanged" | "refused" | "absent";
  readonly problems: readonly string[];
  readonly notes: readonly string[];
  readonly nodeName: string;
  /** Undefined: none is configured. */
  readonly hub: string | undefined;
}

export interface FirstBoot {
  readonly findings: Findings;
  /** "" for none. */
  readonly hostname: string;
}

/** More is a file that people do not write. One byte beyond the limit shows that it is too large. */
const READ_BYTES = 262_144 + 1;
/** Some lines. */
const MAX_BOOT_PROBLEMS = 8192;
const FINDINGS = `${BOARD}/findings.json`;

export async function firstBoot(board: Board): Promise<FirstBoot> {
  const { files, partition } = board;
  let found: FoundBoardFile;
  try {
    found = await partition.use("read", (folder) => findBoardFile(files, folder, READ_BYTES));
  } catch (error) {
    found = { bytes: undefined, notes: [`picolet.yaml cannot be read: ${describeError(error)}`] };
  }
  const findings = await applied(board, found);
  return { findings, hostname: finish(board, findings) };
}

/** Lays down what is kept, and leaves the findings for the report. @returns the host name, "" for none */
function finish({ files, run }: Board, findings: Findings): string {
  const hostname = layDown(files, run);
  files.makeFolder(`${run}/${BOARD}`, 0o755);
  files.write(`${run}/${FINDINGS}`, Buffer.from(JSON.stringify(findings)), 0o600);
  return hostname;
}

/** For the next report. */
export function addNotes(board: Pick<Board, "files" | "run">, notes: readonly string[]): void {
  const findings = readFindings(board);
  if (findings === undefined || notes.length === 0) return;
  const more = { ...findings, notes: [...new Set([...findings.notes, ...notes])] };
  board.files.write(`${board.run}/${FINDINGS}`, Buffer.from(JSON.stringify(more)), 0o600);
}

/** Undefined: there was no run since the boot. */
export function readFindings({ files, run }: Pick<Board, "files" | "run">): Findings | undefined {
  const text = files.read(`${run}/${FINDINGS}`)?.toString("utf8");
  return text === undefined ? undefined : (JSON.parse(text) as Findings);
}

/** After the token was wiped, which changes the file. */
export async function applyAgain(board: Board, bytes: Buffer): Promise<Findings> {
  const findings = await applied(board, { bytes, notes: readFindings(board)?.notes ?? [] });
  finish(board, findings);
  return findings;
}

async function applied(board: Board, found: FoundBoardFile): Promise<Findings> {
  const { files } = board;
  const { bytes } = found;
  const notes = [...new Set([...found.notes, ...bootProblems(board)])];
  const state = readState(files);
  const defaults = files.read(AGENT_DEFAULTS)?.toString("utf8") ?? "";
  const identity = hash("sha256", `${VERSION}\0${defaults}\0${hash("sha256", bytes ?? "")}`);
  const isThere = files.modeOf(AGENT_CONFIGURATION) !== undefined;
  if (isThere && (state.applied === identity || (bytes === undefined && state.applied !== "")))
    return { result: bytes === undefined ? "absent" : "unchanged", problems: [], notes, ...namesIn(state) };
  // Loaded only where something has changed.
  const { readBoardFile } = await import("./read-board-file.ts");
  const { parse } = await import("yaml");
  const around = {
    facts: board.facts,
    defaults: (parse(defaults) ?? {}) as Readonly<Record<string, unknown>>,
    present: files.read(AGENT_CONFIGURATION)?.toString("utf8") ?? "",
    owned: state.owned,
    named: state.named,
    machine: board.machine,
  };
  const read = readBoardFile(bytes ?? Buffer.alloc(0), around);
  const usable = read.ok ? read : isThere ? undefined : readBoardFile(Buffer.alloc(0), around);
  // A board that was never set up gets at least what the image has for it.
  const names = namesIn(usable?.ok === true ? await apply(board, state, usable, read.ok ? identity : "") : state);
  if (!read.ok) return { result: "refused", problems: read.problems, notes, ...names };
  const isJoined = files.modeOf(IDENTITY) !== undefined;
  const lacksToken = read.file.hub !== undefined && (read.file.hub.token ?? "") === "" && !isJoined;
  const token = "hub.token is empty, and the board has not joined: write one that `picolet-hub token create` prints";
  return {
    result: bytes === undefined ? "absent" : "applied",
    problems: [],
    notes: [...notes, ...(lacksToken ? [token] : [])],
    ...names,
  };
}

/** Messages of the steps before systemd: a damaged data partition, a factory reset. One line each. */
function bootProblems({ files, run }: Board): readonly string[] {
  const text = files.read(`${run}/picolet-problems`, MAX_BOOT_PROBLEMS)?.toString("utf8") ?? "";
  return text.split("\n").filter((line) => line !== "");
}

type Usable = Extract<ReturnType<typeof import("./read-board-file.ts").readBoardFile>, { ok: true }>;

async function apply({ files, facts }: Board, state: BoardState, read: Usable, identity: string): Promise<BoardState> {
  const { planBoard } = await import("./plan/board-plan.ts");
  const { nameRule, nodeName, owned } = read;
  const hasToken = (read.file.hub?.token ?? "") !== "";
  const certificate = files.read(IDENTITY);
  const wasUsed = certificate !== undefined && state.files.includes(JOIN_TOKEN);
  // A name that no number of the board is in is not kept.
  const isNamed = nameRule !== undefined && (facts.serial ?? facts.mac) !== undefined;
  const { identityBeforeToken } = state;
  return applyBoard(files, state, planBoard(read), {
    applied: identity,
    nodeName,
    ...(read.agent.hub === null ? {} : { hub: read.agent.hub.server.join(", ") }),
    files: [],
    owned,
    ...(isNamed ? { named: { rule: nameRule, name: nodeName } } : {}),
    ...(hasToken
      ? { identityBeforeToken: certificate === undefined ? "" : hash("sha256", certificate) }
      : identityBeforeToken === undefined
        ? {}
        : { identityBeforeToken }),
    ...(!hasToken && (wasUsed || state.tokenWiped === true) ? { tokenWiped: true } : {}),
  });
}

const namesIn = ({ nodeName = "", hub }: BoardState): Pick<Findings, "nodeName" | "hub"> => ({ nodeName, hub });

const union = <T>(one: readonly T[], other: readonly T[]): readonly T[] => [
  ...new Map([...one, ...other].map((each) => [JSON.stringify(each), each])).values(),
];

/**
 * Applies a plan so that a power cut at any point costs nothing: first the state says which files may be written, then
 * each is replaced whole, then the state says that it was done. The next boot does again what was not finished.
 * @returns the state that is on disk now
 */
function applyBoard(files: DurableFiles, before: BoardState, plan: BoardPlan, next: BoardState): BoardState {
  const written = [...plan.keys()].filter((path) => path !== AGENT_CONFIGURATION);
  writeState(files, {
    ...next,
    applied: "",
    files: union(before.files, written),
    owned: union(before.owned, next.owned),
  });
  for (const path of before.files) if (!plan.has(path)) removeFile(files, path);
  for (const [path, { content, mode }] of plan) {
    if (path.startsWith("/var/lib/")) files.makeFolder(dirname(path), 0o700);
    replaceFile(files, path, Buffer.from(content), mode);
  }
  const state = { ...next, files: written };
  writeState(files, state);
  return state;
}

/** Every user may know what is there; secrets have a mode of their own. */
const FOLDER_MODE = 0o755;

interface Kept {
  /** Below `/run`. */
  readonly path: string;
  readonly content: Buffer;
  readonly mode: number;
}

/**
 * Lays into `/run` what is kept for it: systemd and the other readers look there. Nothing of it must survive a power
 * cut, so nothing is synced. @returns the host name, "" for none
 */
function layDown(files: DurableFiles, run: string): string {
  let hostname = "";
  for (const { path, content, mode } of [...keptFiles(files, "")]) {
    const target = join(run, path);
    files.makeFolder(dirname(target), FOLDER_MODE);
    files.write(target, content, mode);
    const text = content.toString("utf8").trim();
    if (path === HOSTNAME) hostname = text;
    // The read-only system's /etc/localtime leads here.
    if (path === ZONE) files.link(`${ZONES}/${text}`, join(run, BOARD, "localtime"));
  }
  return hostname;
}

function* keptFiles(files: DurableFiles, folder: string): Generator<Kept> {
  for (const name of files.list(join(KEPT_RUN, folder))) {
    // A power cut left it half written.
    if (name.startsWith(".")) continue;
    const path = join(folder, name);
    const whole = join(KEPT_RUN, path);
    if (files.isFolder(whole)) yield* keptFiles(files, path);
    else yield { path, content: files.read(whole) ?? Buffer.alloc(0), mode: files.modeOf(whole) ?? FOLDER_MODE };
  }
}
