/**
 * `picolet-report.txt` on the FAT partition, for the person who takes the card to a computer: plain text with CRLF, no
 * secret. It is written only when it has changed, so it has neither times nor figures that change by themselves.
 */
import { VERSION } from "@picolet/protocol/version.ts";
import type { BoardFacts } from "./board-facts.ts";
import type { BoardState } from "./board-state.ts";
import type { DurableFiles } from "./durable-files.ts";
import type { Findings } from "./first-boot.ts";

export const REPORT = "picolet-report.txt";
/** Bounds the write; all problems of a file are fewer. */
const MAX_REPORT_CHARACTERS = 65_536;

export interface ReportInit {
  readonly facts: BoardFacts;
  readonly findings: Findings;
  readonly state: BoardState;
  /** `end0 192.168.1.20`; empty before the network is up. */
  readonly addresses: readonly string[];
  /** "has joined", or why it has not; undefined: not known yet. */
  readonly join: string | undefined;
  /** The slot that runs, "" where there are none. */
  readonly slot: string;
}

const RESULTS: Readonly<Record<Findings["result"], string>> = {
  applied: "applied",
  unchanged: "applied",
  refused: "NOT APPLIED, see the problems below; the board goes on with what it had",
  absent: "there is none; the board goes on with what it had",
};

export function reportText({ facts, findings, state, addresses, join, slot }: ReportInit): string {
  const { release, serial, mac } = facts;
  const system = [release.VERSION, release.BOARD, release.FLAVOUR].filter((each) => each !== undefined).join(", ");
  const rows: readonly (readonly [string, string])[] = [
    ["System", `${system || "unknown"}${slot === "" ? "" : `, slot ${slot}`}`],
    ["Agent", VERSION],
    ["Serial number", serial ?? "none"],
    ["MAC address", mac?.replaceAll(/(..)(?!$)/g, "$1:") ?? "none"],
    ["Node", findings.nodeName || "not named yet"],
    ["Hub", findings.hub === undefined ? "none" : `${findings.hub}${join === undefined ? "" : `: ${join}`}`],
    ["Addresses", addresses.length === 0 ? "none yet" : addresses.join(", ")],
    ["picolet.yaml", RESULTS[findings.result]],
    ...(state.tokenWiped === true ? [["Token", "used, and wiped from picolet.yaml"] as const] : []),
  ];
  const width = Math.max(...rows.map(([name]) => name.length)) + 2;
  const chapter = (title: string, lines: readonly string[]): readonly string[] =>
    lines.length === 0 ? [] : ["", `${title}:`, ...lines.map((line) => `  ${line}`)];
  const lines = [
    "picolet: this board's report. It is written by the board; picolet.yaml is yours.",
    "",
    ...rows.map(([name, value]) => `${name.padEnd(width)}${value}`),
    ...chapter(`Problems of picolet.yaml (mend them, then start the board again)`, findings.problems),
    ...chapter("Notes", findings.notes),
  ];
  return `${lines.join("\r\n").slice(0, MAX_REPORT_CHARACTERS)}\r\n`;
}

/** @returns whether it differs from the one that is there */
export function isNewReport(files: DurableFiles, folder: string, text: string): boolean {
  return files.read(`${folder}/${REPORT}`)?.toString("utf8") !== text;
}

/** FAT has no journal: at worst a report is missing, and the next boot writes it. */
export function writeReport(files: DurableFiles, folder: string, text: string): void {
  files.write(`${folder}/picolet-report.new`, Buffer.from(text), 0o644);
  files.rename(`${folder}/picolet-report.new`, `${folder}/${REPORT}`);
  files.syncFolder(folder);
}

/** The text for the serial console and the screen. */
export function consoleText(findings: Findings): string {
  const { result, problems, notes, nodeName, hub } = findings;
  const heading =
    result === "refused"
      ? `picolet.yaml is wrong, and nothing of it was applied (${problems.length} problem${problems.length === 1 ? "" : "s"}):`
      : `picolet.yaml: ${RESULTS[result]}. Node ${nodeName}${hub === undefined ? ", no hub" : `, hub ${hub}`}`;
  return [
    "",
    `picolet: ${heading}`,
    ...problems.map((each) => `  ${each}`),
    ...notes.map((each) => `  note: ${each}`),
    "",
  ].join("\n");
}
