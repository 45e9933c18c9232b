/** The agent's entry: reads arguments and configuration, runs until a signal, and leaves with a code that says why. */
import { readFileSync } from "node:fs";
import { programLog } from "../../protocol/async/console-log.ts";
import { systemClock } from "../../protocol/async/system-clock.ts";
import { describeError, PicoletError } from "../../protocol/errors.ts";
import { VERSION } from "../../protocol/version.ts";
import { type Configuration, formatConfigurationProblem, loadConfiguration } from "../config/configuration.ts";
import { type AgentArguments, DEFAULT_CONFIG_PATH, HELP, parseArguments } from "./arguments.ts";
import { runAgent } from "./compose.ts";
import { StopRequests } from "./stop-requests.ts";

/** sysexits.h */
const EX_USAGE = 64;
const EX_CONFIG = 78;

const printError = (line: string): void => void process.stderr.write(`${line}\n`);

/** The default file may be absent; one that was named may not. @throws what reading it throws */
function readConfigurationText(path: string | undefined): string {
  try {
    return readFileSync(path ?? DEFAULT_CONFIG_PATH, "utf8");
  } catch (error) {
    if (path === undefined && (error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw new PicoletError("invalid", `cannot read the configuration`, { cause: error });
  }
}

/** @returns `undefined` when it is wrong; every problem has been printed then. */
function configurationOf({ configPath }: AgentArguments): Configuration | undefined {
  const origin = configPath ?? DEFAULT_CONFIG_PATH;
  const result = loadConfiguration(readConfigurationText(configPath));
  if (!result.ok) {
    for (const problem of result.problems) printError(formatConfigurationProblem(origin, problem));
    return undefined;
  }
  if (result.notActedUpon.length > 0)
    printError(`${origin}: accepted, but not acted upon by picolet ${VERSION}: ${result.notActedUpon.join(", ")}`);
  return result.configuration;
}

/** Small buffers share slabs, and one that is kept keeps its slab: of 64 KiB by default, a third of a MiB at rest. */
const BUFFER_POOL_BYTES = 8 * 1024;

async function run(args: AgentArguments, configuration: Configuration): Promise<number> {
  const { format, verbosity } = configuration.logging as { format?: string; verbosity?: number };
  const log = programLog({
    format: format === "json" ? "json" : "text",
    level: (verbosity ?? 0) >= 4 ? "debug" : "info",
  });
  const stops = new StopRequests(log);
  try {
    await runAgent(
      { clock: systemClock, random: { next: Math.random }, log },
      { args, configuration, stops },
      stops.signal,
    );
    return 0;
  } catch (error) {
    log.error("the agent cannot go on", { error: describeError(error) });
    return 1;
  }
}

async function main(argv: readonly string[]): Promise<number> {
  Buffer.poolSize = BUFFER_POOL_BYTES;
  let args: AgentArguments;
  try {
    args = parseArguments(argv, process.env);
  } catch (error) {
    printError(`picolet: ${describeError(error)}`);
    return EX_USAGE;
  }
  if (args.command === "help" || args.command === "version") {
    process.stdout.write(args.command === "help" ? HELP : `picolet ${VERSION}\n`);
    return 0;
  }
  let configuration: Configuration | undefined;
  try {
    configuration = configurationOf(args);
  } catch (error) {
    printError(`picolet: ${describeError(error)}`);
  }
  if (configuration === undefined) return EX_CONFIG;
  if (args.command === "check-config") {
    process.stdout.write("the configuration is good\n");
    return 0;
  }
  return await run(args, configuration);
}

void main(process.argv.slice(2)).then((code) => process.exit(code));
