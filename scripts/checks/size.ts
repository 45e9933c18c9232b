/**
 * `npm run size [-- --against REVISION] [--json]`: lines, files, packages, the largest rooms, and how many rooms import
 * one another; with --against, of another revision beside it. A room is a folder that holds source files.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { textFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { GIBIBYTE } from "@picolet/protocol/units.ts";
import { readOptions } from "../options.ts";
import { ImportGraph, SOURCE_FOLDERS, sourceFilesOf, workspacesOf } from "./source-tree.ts";

const LARGEST = 10;
/** The folders of the product; all others are tests, their support, and scripts. */
const PROGRAM = new Set(["protocol", "runtime-adapters", "kubelet-api", "agent", "hub", "firmware", "page"]);

interface Amount {
  files: number;
  lines: number;
}

export interface Size {
  readonly packages: number;
  /** Files and lines of the programs, and of everything else: tests, support, scripts, generated types. */
  readonly program: Amount;
  readonly rest: Amount;
  readonly linesPerFile: number;
  /** Rooms of the programs, without their tests. */
  readonly rooms: number;
  /** Pairs of them of which one imports the other. */
  readonly importsBetweenRooms: number;
  /** The longest, by lines without tests. */
  readonly largestRooms: readonly (Amount & { readonly room: string })[];
  readonly folders: Readonly<Record<string, Amount>>;
}

/** The tree at `root`. */
export function sizeOf(root: string): Size {
  const graph = new ImportGraph(root);
  const rooms = new Map<string, Amount>();
  const edges = new Set<string>();
  const folders: Record<string, Amount> = Object.fromEntries(
    SOURCE_FOLDERS.map((each) => [each, { files: 0, lines: 0 }]),
  );
  const [program, rest]: [Amount, Amount] = [
    { files: 0, lines: 0 },
    { files: 0, lines: 0 },
  ];
  for (const path of sourceFilesOf(root)) {
    const lines = readFileSync(join(root, path), "utf8").split("\n").length - 1;
    const [top = ""] = path.split("/");
    const isProgram = PROGRAM.has(top) && !path.endsWith(".test.ts");
    for (const amount of [isProgram ? program : rest, folders[top]]) if (amount !== undefined) add(amount, lines);
    if (!isProgram) continue;
    const room = dirname(path);
    const amount = rooms.get(room) ?? { files: 0, lines: 0 };
    rooms.set(room, amount);
    add(amount, lines);
    for (const target of graph.importsOf(path).map(dirname)) if (target !== room) edges.add(`${room} ${target}`);
  }
  const files = program.files + rest.files;
  return {
    packages: workspacesOf(root).length,
    ...{ program, rest },
    linesPerFile: Math.round((program.lines + rest.lines) / Math.max(1, files)),
    rooms: rooms.size,
    importsBetweenRooms: edges.size,
    largestRooms: [...rooms]
      .map(([room, amount]) => ({ room, ...amount }))
      .sort((a, b) => b.lines - a.lines || (a.room < b.room ? -1 : 1))
      .slice(0, LARGEST),
    folders,
  };
}

function add(amount: Amount, lines: number): void {
  amount.files += 1;
  amount.lines += lines;
}

/** Measures a revision of this repository. */
function sizeOfRevision(revision: string): Size {
  const folder = mkdtempSync(join(tmpdir(), "picolet-size-"));
  try {
    const archive = execFileSync("git", ["archive", "--format=tar", `${revision}^{commit}`], { maxBuffer: GIBIBYTE });
    execFileSync("tar", ["-xf", "-", "-C", folder], { input: archive });
    return sizeOf(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** One row of the table for each figure. */
function rowsOf(size: Size): ReadonlyMap<string, string> {
  const shown = (value: number): string => value.toLocaleString("en");
  const amount = ({ files, lines }: Amount): string => `${shown(files)} files, ${shown(lines)} lines`;
  return new Map([
    ["packages", shown(size.packages)],
    ["programs", amount(size.program)],
    ["tests and scripts", amount(size.rest)],
    ["lines a file", shown(size.linesPerFile)],
    ["rooms", shown(size.rooms)],
    ["imports between rooms", shown(size.importsBetweenRooms)],
    ...Object.entries(size.folders).map(([folder, each]) => [`${folder}/`, amount(each)] as const),
    ...size.largestRooms.map(
      ({ room, ...each }, index) => [`largest room ${index + 1}`, `${room}: ${amount(each)}`] as const,
    ),
  ]);
}

const AGAINST = textFlag({ name: "against", value: "REVISION", help: "show another revision beside it" });

if (import.meta.main) {
  const input = readOptions({
    name: "size",
    summary: "lines, files, packages, the largest rooms, and how many rooms import one another",
    flags: [AGAINST, { name: "json", help: "print a JSON document" }],
  });
  const against = input.value(AGAINST);
  const now = sizeOf(".");
  const before = against === undefined ? undefined : sizeOfRevision(against);
  if (input.flag("json")) {
    console.log(JSON.stringify(before === undefined ? now : { before, now }, undefined, 2));
  } else {
    const [rows, others] = [rowsOf(now), before && rowsOf(before)];
    const head = others === undefined ? "| | now |\n| --- | --- |" : `| | ${against} | now |\n| --- | --- | --- |`;
    console.log(head);
    for (const [name, value] of rows)
      console.log(
        others === undefined ? `| ${name} | ${value} |` : `| ${name} | ${others.get(name) ?? ""} | ${value} |`,
      );
  }
}
