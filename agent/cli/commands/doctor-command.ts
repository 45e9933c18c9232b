/** `edgectl doctor`: examines the machine, and mends what may be mended without asking. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Context, widthOf } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";
import { printableLine, wrap } from "../context/text-layout.ts";
import { type BoardMachine, LocalMachine } from "../doctor/board-machine.ts";
import { type BoardSettings, CHECKS, type Finding } from "../doctor/checks.ts";
import { CONFIG } from "./node.ts";

const DEFAULT_RUNTIME = "unix:///run/containerd/containerd.sock";
const DEFAULT_ROOT = "/var/lib/picolet";
/** The longest name of a check, and two spaces. */
const NAME_WIDTH = 17;
const STATE_WIDTH = 9;

interface Checked extends Finding {
  readonly name: string;
}

export async function runDoctor(context: Context, input: Arguments): Promise<number> {
  const path = resolve(context.workingDirectory, input.value(CONFIG));
  const settings = await readSettings(path, input.text("root-dir"));
  const machine = new LocalMachine();
  let findings = await examine(machine, settings);
  const format = machineFormat(input);
  const mended = input.flag("fix") ? mend(findings) : [];
  if (mended.length > 0) {
    if (format === undefined) await context.terminal.write(`${mended.map(mendedLine).join("\n")}\n\n`);
    findings = await examine(machine, settings);
  }
  await context.terminal.write(
    format === undefined ? pageOf(findings, widthOf(context)) : printObject({ findings, mended }, format),
  );
  return findings.some(({ state }) => state === "problem") ? EXIT_DEGRADED : EXIT_HEALTHY;
}

/** @returns the fields that checks need. Other faults of the file are for `picolet --check-config`. */
export async function readSettings(path: string, rootDir = DEFAULT_ROOT): Promise<BoardSettings> {
  let text = "";
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw new PicoletError("failed", `cannot read ${path}`, { cause: error });
  }
  const { parseDocument } = await import("yaml");
  const document = parseDocument(text);
  if (document.errors[0] !== undefined)
    throw new PicoletError("invalid", `${path} is no YAML: picolet --check-config names the line`);
  const fields: unknown = document.toJS();
  const { containerRuntimeEndpoint = DEFAULT_RUNTIME, hub } = (fields ?? {}) as Readonly<Record<string, unknown>>;
  const { server = [], proxy = "" } = (hub ?? {}) as { readonly server?: unknown; readonly proxy?: unknown };
  const hubs = [server].flat().map(String);
  return { runtimeEndpoint: String(containerRuntimeEndpoint), hubs, proxy: String(proxy), rootDir };
}

export async function examine(machine: BoardMachine, settings: BoardSettings): Promise<readonly Checked[]> {
  const findings: Checked[] = [];
  for (const { name, run } of CHECKS) findings.push({ name, ...(await run(machine, settings)) });
  return findings;
}

interface Mended {
  readonly name: string;
  readonly what: string;
  readonly needsReboot: boolean;
  /** Why it could not be mended. */
  readonly error?: string;
}

/** One failed repair does not keep the others from being made. */
function mend(findings: readonly Checked[]): readonly Mended[] {
  return findings.flatMap(({ name, fix }) => {
    if (fix === undefined) return [];
    const { what, needsReboot = false } = fix;
    try {
      fix.apply();
      return [{ name, what, needsReboot }];
    } catch (error) {
      return [{ name, what, needsReboot: false, error: describeError(error) }];
    }
  });
}

const mendedLine = ({ what, needsReboot, error }: Mended): string =>
  error === undefined
    ? `mended: ${what}${needsReboot ? "; it needs a reboot" : ""}`
    : `could not ${what}: ${printableLine(error)}`;

function pageOf(findings: readonly Checked[], width: number): string {
  const indent = NAME_WIDTH + STATE_WIDTH;
  const lines = findings.flatMap(({ name, state, message, advice, fix }) => [
    `${state.padEnd(STATE_WIDTH)}${name.padEnd(NAME_WIDTH)}${wrap(printableLine(message), width, indent, indent)}`,
    ...(advice === undefined ? [] : [`${" ".repeat(indent)}${wrap(`-> ${advice}`, width, indent, indent)}`]),
    ...(fix === undefined ? [] : [`${" ".repeat(indent)}${wrap(`--fix would ${fix.what}`, width, indent, indent)}`]),
  ]);
  const count = (state: Finding["state"], noun: string): string => {
    const number = findings.filter((each) => each.state === state).length;
    return `${number} ${noun}${number === 1 ? "" : "s"}`;
  };
  return `${lines.join("\n")}\n\n${count("problem", "problem")}, ${count("warning", "warning")}\n`;
}
