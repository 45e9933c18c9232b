/** The hub's entry: reads the command line, does what it says, and leaves with a code that says how it went. */

import { readFileSync, statSync } from "node:fs";
import { REFUSED_STORE } from "@picolet/hub-embedded/store/fleet-guard.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { programLog } from "@picolet/protocol/async/console-log.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { helpText } from "@picolet/protocol/command-line/help-text.ts";
import { EX_USAGE, usageReport } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { NO_CLUSTER } from "../kubernetes/kubeconfig-access.ts";
import { type HubArguments, parseHubArguments, type ServeArguments } from "./arguments.ts";
import { runCommand } from "./commands.ts";
import { MAX_CONFIGURATION_CHARACTERS, WRONG_CONFIGURATION } from "./configuration-file.ts";
import { HUB } from "./program.ts";
import { serve } from "./serve.ts";

/** EX_DATAERR: starting again changes nothing (`RestartPreventExitStatus=65`). */
const EX_REFUSED_STORE = 65;

const exitCodeOf = (error: unknown): number =>
  error instanceof PicoletError && error.reason === REFUSED_STORE ? EX_REFUSED_STORE : 1;

/** EX_CONFIG */
const EX_CONFIGURATION = 78;

/** @throws `invalid` where a file that was named cannot be read, and where the other one is there and cannot be */
function readConfiguration(path: string, isNamed: boolean): string | undefined {
  try {
    if (statSync(path).size > MAX_CONFIGURATION_CHARACTERS) return " ".repeat(MAX_CONFIGURATION_CHARACTERS + 1);
    return readFileSync(path, "utf8");
  } catch (cause) {
    if (!isNamed && errnoOf(cause) === "ENOENT") return undefined;
    throw new PicoletError("invalid", `cannot read ${path}`, { cause, reason: WRONG_CONFIGURATION });
  }
}

const print = (text: string): void => void process.stdout.write(text);
const printError = (line: string): void => void process.stderr.write(`picolet-hub: ${line}\n`);

async function runServe(args: ServeArguments): Promise<number> {
  const log = programLog({ format: args.logFormat, level: args.verbose ? "debug" : "info" });
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      if (stop.signal.aborted) process.exit(1);
      log.info("stopping; boards are sent elsewhere", { signal });
      stop.abort(cancelled("the hub"));
    });
  }
  try {
    const ports = { clock: systemClock, random: { next: Math.random }, log };
    await serve(ports, args, (ready) => print(`${JSON.stringify(ready)}\n`), stop.signal);
    return 0;
  } catch (error) {
    if (stop.signal.aborted) return 0;
    if (error instanceof PicoletError && error.reason === NO_CLUSTER) {
      printError(describeError(error));
      return EX_USAGE;
    }
    log.error("the hub cannot go on", { error: describeError(error) });
    return exitCodeOf(error);
  }
}

async function main(argv: readonly string[]): Promise<number> {
  let args: HubArguments;
  try {
    args = parseHubArguments(argv, readConfiguration);
  } catch (error) {
    if (error instanceof PicoletError && error.reason === WRONG_CONFIGURATION) {
      for (const line of describeError(error).split("\n")) printError(line);
      return EX_CONFIGURATION;
    }
    process.stderr.write(usageReport("picolet-hub", error, "picolet-hub help lists the commands and flags"));
    return EX_USAGE;
  }
  try {
    switch (args.command) {
      case "help":
        print(helpText(args.words, HUB));
        return 0;
      case "version":
        print(`picolet-hub ${VERSION}\n`);
        return 0;
      case "serve":
        return await runServe(args);
      default:
        print(await runCommand(args, systemClock, print));
        return 0;
    }
  } catch (error) {
    printError(describeError(error));
    return error instanceof PicoletError && error.code === "invalid" ? EX_USAGE : exitCodeOf(error);
  }
}

for (const output of [process.stdout, process.stderr])
  output.on("error", ignore("boards depend on the hub, not on a reader of its output"));
void main(process.argv.slice(2)).then((code) => process.exit(code));
