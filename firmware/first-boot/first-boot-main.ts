/**
 * The program `picolet-first-boot`. Without a flag: what happens at each boot before the agent. It ends; nothing of it
 * stays in memory.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  constants,
  createReadStream,
  openSync,
  readFileSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { networkInterfaces } from "node:os";
import { pipeline } from "node:stream/promises";
import { readBoard } from "@picolet/agent/main/node/read-board.ts";
import { type Arguments, parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import { helpText } from "@picolet/protocol/command-line/help-text.ts";
import { HELP_FLAG, type Program as ProgramTable } from "@picolet/protocol/command-line/program.ts";
import { EX_USAGE, usageReport } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import type { StatusReport } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { readBoardFacts } from "./board-facts.ts";
import { boardReport, earlyReport, type TunnelStatus } from "./board-report.ts";
import { type BootPartition, FolderPartition, MountedPartition } from "./boot-partition.ts";
import { type DurableFiles, FilesOnDisk } from "./durable-files.ts";
import { addNotes, type Board, type Findings, firstBoot } from "./first-boot.ts";
import type { BoardFile } from "./plan/board-file-fields.ts";
import { PRELOAD, WATCHDOG } from "./plan/places.ts";
import { preload } from "./preload.ts";
import { consoleText } from "./report.ts";

const NAME = "picolet-first-boot";
/** sysexits.h */
const EX_CONFIG = 78;
const PROGRAM: ProgramTable = {
  name: NAME,
  section: 8,
  summary: 'reads picolet.yaml on the partition "picolet", and applies it when it has changed',
  description: "",
  commands: [
    {
      words: [],
      summary: "",
      details: "",
      examples: [],
      flags: [
        { name: "report", help: "write picolet-report.txt, and wipe a token that was used" },
        { name: "preload", help: "bring images and components of picolet.yaml to the runtimes" },
        { name: "check", value: "FILE", help: "only say what is wrong with a file" },
        { name: "root", value: "DIR", help: "for tests: the folder that stands for /" },
      ],
    },
  ],
  defaultWords: [],
  globals: [{ ...HELP_FLAG, help: "print this" }],
  exitCodes: [
    [0, "good"],
    [1, "not"],
    [EX_USAGE, "wrong usage"],
    [EX_CONFIG, "picolet.yaml is wrong"],
  ],
  environment: [],
  files: [],
  chapters: [],
};
/** edgectl's own limit is ten seconds. */
const EDGECTL_LIMIT = seconds(30);

interface Program {
  readonly root: string;
  readonly files: DurableFiles;
  readonly partition: BootPartition;
  readonly board: Board;
}

async function programOf(root: string): Promise<Program> {
  const files = new FilesOnDisk(root);
  // In a test the partition is a folder.
  const partition = root === "" ? new MountedPartition() : new FolderPartition("/boot/picolet");
  const machine = await readBoard(`${root}/var/lib/picolet`);
  return { root, files, partition, board: { files, partition, facts: readBoardFacts(root), machine, run: "/run" } };
}

async function boot({ root, board }: Program): Promise<number> {
  const { findings, hostname } = await firstBoot(board);
  show(root, consoleText(findings));
  if (root === "") {
    if (hostname !== "") writeFileSync("/proc/sys/kernel/hostname", hostname);
    // systemd has read its configuration before.
    if (board.files.modeOf(`${board.run}/${WATCHDOG}`) !== undefined) spawnSync("systemctl", ["daemon-reload"]);
  }
  if (findings.result === "applied" || findings.result === "refused") {
    try {
      await earlyReport({ ...board, slot: slotOf(root) }, findings);
    } catch (error) {
      console.error(`cannot write the report: ${describeError(error)}`);
    }
  }
  return findings.result === "refused" ? EX_CONFIG : 0;
}

const slotOf = (root: string): string => /(?:^| )rauc\.slot=(\S+)/.exec(readText(`${root}/proc/cmdline`))?.[1] ?? "";

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** To the journal, the kernel's consoles (the serial line) and the screen. */
function show(root: string, text: string): void {
  process.stdout.write(`${text.trimEnd()}\n`);
  const names = readText(`${root}/sys/class/tty/console/active`).trim().split(" ");
  for (const name of new Set([...names, "tty1"].map((each) => (each === "tty0" ? "tty1" : each)))) {
    if (name === "" || root !== "") continue;
    try {
      const file = openSync(`/dev/${name}`, constants.O_WRONLY | constants.O_NOCTTY | constants.O_NONBLOCK);
      try {
        // A terminal that is not in use may leave out carriage returns.
        writeSync(file, text.replaceAll("\n", "\r\n"));
      } finally {
        closeSync(file);
      }
    } catch {
      ignore("there is no such screen")();
    }
  }
}

function addresses(root: string): readonly string[] {
  return Object.entries(networkInterfaces()).flatMap(([name, list = []]) => {
    // Bridges of pods have no device.
    if (statSync(`${root}/sys/class/net/${name}/device`, { throwIfNoEntry: false }) === undefined) return [];
    const outer = list.filter(({ internal, address }) => !internal && !address.startsWith("fe80:"));
    const [first] = outer.toSorted((a, b) => (a.family < b.family ? -1 : 1));
    return first === undefined ? [] : [`${name} ${first.address}`];
  });
}

function tunnelStatus(): TunnelStatus | undefined {
  const { stdout } = spawnSync("edgectl", ["status", "-o", "json"], { encoding: "utf8", timeout: EDGECTL_LIMIT });
  try {
    const { tunnel } = JSON.parse(stdout) as StatusReport;
    return { state: tunnel.state, problem: tunnel.problem };
  } catch {
    return undefined;
  }
}

async function report({ root, board }: Program): Promise<number> {
  await boardReport({ ...board, addresses: addresses(root), tunnel: tunnelStatus(), slot: slotOf(root) });
  return 0;
}

async function preloadAll({ root, board }: Program): Promise<number> {
  const { files, partition } = board;
  const wishes = files.read(`${board.run}/${PRELOAD}`)?.toString("utf8") ?? "{}";
  const failures = await preload(JSON.parse(wishes) as NonNullable<BoardFile["preload"]>, {
    ...{ files, partition, run },
    digestOf: async (path) => {
      const digest = createHash("sha256");
      await pipeline(createReadStream(root + path), digest);
      return digest.digest("hex");
    },
    stampOf: (path) => {
      const found = statSync(root + path, { throwIfNoEntry: false });
      return found?.isFile() === true ? `${found.size} ${found.mtimeMs}` : undefined;
    },
    show: (line) => show(root, `picolet: ${line}\n`),
  });
  for (const line of failures) show(root, `picolet: ${line}\n`);
  // The next report has them.
  addNotes(board, failures);
  return failures.length === 0 ? 0 : 1;
}

/** An import takes as long as the card needs; the unit has a limit. */
function run(command: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"] });
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-4096);
    });
    child.on("error", reject);
    child.on("close", (code) => {
      if (code === 0) resolve();
      else reject(new Error(said.trim() || `${command} ended with ${code}`));
    });
  });
}

async function check({ board }: Program, path: string): Promise<number> {
  const { readBoardFile } = await import("./read-board-file.ts");
  const { facts, machine } = board;
  // The numbers are another machine's.
  const anyFacts = { serial: facts.serial ?? "0123456789abcdef", mac: facts.mac ?? "0123456789ab" };
  const read = readBoardFile(readFileSync(path), {
    ...{ facts: anyFacts, machine, defaults: {}, present: "", owned: [], named: undefined },
  });
  const findings: Findings = {
    ...{ result: "refused", problems: [], notes: [], nodeName: "", hub: undefined },
    ...(read.ok ? {} : { problems: read.problems }),
  };
  for (const each of findings.problems) console.error(`${path}: ${each}`);
  if (read.ok) console.log(`${path} is good`);
  return read.ok ? 0 : EX_CONFIG;
}

/** @returns undefined when the help was printed */
function read(argv: readonly string[]): Arguments | undefined {
  const { command, arguments: input } = parseCommandLine(argv, PROGRAM);
  if (command === undefined) process.stdout.write(helpText([], PROGRAM));
  return command === undefined ? undefined : input;
}

async function main(argv: readonly string[]): Promise<number> {
  let input: Arguments | undefined;
  try {
    input = read(argv);
  } catch (error) {
    process.stderr.write(usageReport(NAME, error, `${NAME} --help lists the options`));
    return EX_USAGE;
  }
  if (input === undefined) return 0;
  const program = await programOf(input.text("root") ?? "");
  const file = input.text("check");
  if (file !== undefined) return await check(program, file);
  if (input.flag("report")) return await report(program);
  if (input.flag("preload")) return await preloadAll(program);
  return await boot(program);
}

main(process.argv.slice(2)).then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    console.error(`picolet-first-boot: ${describeError(error)}`);
    process.exitCode = 1;
  },
);
