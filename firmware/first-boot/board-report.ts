/** Runs once the board is up, and when it has joined: wipes the token that was used, and writes the report. */
import { hash } from "node:crypto";
import { readState } from "./board-state.ts";
import { findBoardFile, rewriteBoardFile } from "./boot-partition.ts";
import { applyAgain, type Board, type Findings, readFindings } from "./first-boot.ts";
import { IDENTITY } from "./plan/places.ts";
import { isNewReport, reportText, writeReport } from "./report.ts";

/** The part of `edgectl status -o json` that counts here. */
export interface TunnelStatus {
  readonly state: string;
  readonly problem?: string | undefined;
}

export interface BoardReportInit extends Board {
  readonly addresses: readonly string[];
  /** Undefined: the agent does not answer. */
  readonly tunnel: TunnelStatus | undefined;
  readonly slot: string;
}

const NOT_RUN: Findings = { result: "absent", problems: [], notes: [], nodeName: "", hub: undefined };
/** A file of which only the token is looked for has been judged before. */
const READ_BYTES = 262_144;

export async function boardReport(board: BoardReportInit): Promise<void> {
  const { files, partition, facts, addresses, slot } = board;
  const wiped = await wipeUsedToken(board);
  const findings = wiped ?? readFindings(board) ?? NOT_RUN;
  const join = findings.hub === undefined ? undefined : joinState(board);
  const text = reportText({ facts, findings, state: readState(files), addresses, join, slot });
  if (await partition.use("read", (folder) => isNewReport(files, folder, text)))
    await partition.use("write", (folder) => writeReport(files, folder, text));
}

/** At the boot itself, before there is a network: only what has changed since the last report. */
export async function earlyReport(
  board: Omit<BoardReportInit, "addresses" | "tunnel">,
  findings: Findings,
): Promise<void> {
  const { files, partition, facts, slot } = board;
  const text = reportText({ facts, findings, state: readState(files), addresses: [], join: undefined, slot });
  await partition.use("write", (folder) => writeReport(files, folder, text));
}

function joinState({ files, tunnel }: BoardReportInit): string {
  if (tunnel?.problem !== undefined && tunnel.state !== "connected") return `not connected: ${tunnel.problem}`;
  if (files.modeOf(IDENTITY) !== undefined) return "has joined";
  return tunnel === undefined ? "has not joined: the agent does not answer" : "has not joined yet";
}

/** @returns undefined when none was */
async function wipeUsedToken(board: BoardReportInit): Promise<Findings | undefined> {
  const { files, partition, tunnel } = board;
  const certificate = files.read(IDENTITY);
  const { identityBeforeToken = "" } = readState(files);
  if (certificate === undefined) return undefined;
  const isUsed = hash("sha256", certificate) !== identityBeforeToken || tunnel?.state === "connected";
  if (!isUsed) return undefined;
  const { bytes } = await partition.use("read", (folder) => findBoardFile(files, folder, READ_BYTES));
  // Read by no one else while the agent starts: loaded only here.
  const { withoutToken } = await import("./wipe-token.ts");
  const text = bytes === undefined ? undefined : withoutToken(bytes.toString("utf8"));
  if (text === undefined) return undefined;
  const content = Buffer.from(text);
  await partition.use("write", (folder) => rewriteBoardFile(files, folder, content));
  return await applyAgain(board, content);
}
