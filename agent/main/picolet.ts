/** The agent's entry: reads arguments and configuration, runs until a signal, and leaves with a code that says why. */
import { readFileSync } from "node:fs";
import { programLog } from "@picolet/protocol/async/console-log.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { unloadModules } from "../budget/unload-modules.ts";
import type { Board } from "../config/board-defaults.ts";
import type { Configuration } from "../config/configuration.ts";
import { runAgent } from "./compose.ts";
import type { AgentArguments, AgentInit } from "./node/agent-init.ts";
import { DEFAULT_CONFIG_PATH } from "./node/default-places.ts";
import { readBoard } from "./node/read-board.ts";
import { StopRequests } from "./stop-requests.ts";

/** sysexits.h */
const EX_USAGE = 64;
const EX_CONFIG = 78;
/** The unit starts it again. */
const EX_TEMPFAIL = 75;

const printError = (line: string): void => void process.stderr.write(`${line}\n`);

/** The default file may be absent; one that was named may not. @throws what reading it throws */
function readConfigurationText(path: string | undefined): string | undefined {
  try {
    return readFileSync(path ?? DEFAULT_CONFIG_PATH, "utf8");
  } catch (error) {
    if (path === undefined && errnoOf(error) === "ENOENT") return undefined;
    throw new PicoletError("invalid", `cannot read the configuration`, { cause: error });
  }
}

interface LoadedConfiguration {
  readonly board: Board;
  readonly configuration: Configuration;
  readonly origins: AgentInit["origins"];
}

/** @returns `undefined` when it is wrong; every problem has been printed then. */
async function configurationOf(args: AgentArguments): Promise<LoadedConfiguration | undefined> {
  const { configPath, rootDir, kubelet } = args;
  const origin = configPath ?? DEFAULT_CONFIG_PATH;
  const text = readConfigurationText(configPath);
  const board = await readBoard(rootDir);
  const { formatConfigurationProblem, loadConfiguration } = await import("../config/configuration.ts");
  const result = loadConfiguration(text ?? "", undefined, board, undefined, kubelet?.settings);
  for (const notice of kubelet?.notices ?? []) printError(notice);
  if (!result.ok) {
    for (const problem of result.problems) printError(formatConfigurationProblem(origin, problem));
    return undefined;
  }
  const { configuration, origins } = result;
  const ignored = result.notActedUpon.map((path) => origins.flags?.find((each) => each.path === path)?.flag ?? path);
  if (ignored.length > 0)
    printError(`${origin}: accepted, but not acted upon by picolet ${VERSION}: ${ignored.join(", ")}`);
  return { board, configuration, origins: { ...origins, file: text === undefined ? null : origin } };
}

/** Small buffers share slabs, and one that is kept keeps its slab: of 64 KiB by default, a third of a MiB at rest. */
const BUFFER_POOL_BYTES = 8 * KIBIBYTE;

async function run(args: AgentArguments, { board, configuration, origins }: LoadedConfiguration): Promise<number> {
  const { format, verbosity } = configuration.logging as { format?: string; verbosity?: number };
  const log = programLog({
    format: format === "json" ? "json" : "text",
    level: (verbosity ?? 0) >= 4 ? "debug" : "info",
  });
  if ((board.swapBytes ?? 0) > 0) {
    const { swapBehavior } = configuration.memorySwap;
    log.info("swap is on", { swapBytes: board.swapBytes, swapBehavior: swapBehavior === "" ? "NoSwap" : swapBehavior });
  }
  const stops = new StopRequests(log);
  try {
    await runAgent(
      { clock: systemClock, random: { next: Math.random }, log },
      { args, configuration, origins, stops },
      stops.signal,
    );
    return stops.isRestarting ? restart(log) : 0;
  } catch (error) {
    log.error("the agent cannot go on", { error: describeError(error) });
    return 1;
  }
}

/**
 * The same program in the same process: its pid, cgroup and open output stay, which a service manager or a serial
 * console waits on. Components' reapers stay its children; as zombies they count as ended.
 */
function restart(log: Log): number {
  try {
    process.execve?.(process.execPath, [process.argv0, ...process.execArgv, ...process.argv.slice(1)], process.env);
  } catch (error) {
    log.error("cannot start the agent again", { error: describeError(error) });
  }
  return EX_TEMPFAIL;
}

async function main(argv: readonly string[]): Promise<number> {
  Buffer.poolSize = BUFFER_POOL_BYTES;
  const { helpOfAgent, parseArguments, usageOfAgent } = await import("./node/agent-arguments.ts");
  let args: AgentArguments;
  try {
    args = parseArguments(argv, process.env);
  } catch (error) {
    process.stderr.write(usageOfAgent(error));
    return EX_USAGE;
  }
  const { command } = args;
  if (command === "help" || command === "help-kubelet" || command === "version") {
    process.stdout.on("error", ignore("a reader that has gone needs no help text"));
    process.stdout.write(command === "version" ? `picolet ${VERSION}\n` : await helpOfAgent(command));
    return 0;
  }
  unloadModules("agent-arguments");
  let loaded: LoadedConfiguration | undefined;
  try {
    loaded = await configurationOf(args);
  } catch (error) {
    printError(`picolet: ${describeError(error)}`);
  }
  unloadModules("configuration");
  if (loaded === undefined) return EX_CONFIG;
  if (command === "check-config") {
    process.stdout.write("the configuration is good\n");
    return 0;
  }
  // The settings have become the configuration.
  const { kubelet: _, ...rest } = args;
  return await run(rest, loaded);
}

void main(process.argv.slice(2)).then((code) => process.exit(code));
