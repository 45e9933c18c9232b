/** All that a component can import: WASI 0.2 as far as `grants.ts` lists it, and nothing of the host beside that. */
import { Descriptor, DirectoryEntryStream, filesystemErrorCode, preopenedDirectories } from "./filesystem.ts";
import { Handles } from "./handles.ts";
import type { LogStream, LogWriter } from "./log-writer.ts";
import type { Preopen } from "./mounts.ts";
import { Pollable, Poller, type Sleeper } from "./polling.ts";
import { RandomBytes } from "./random.ts";
import { socketImports } from "./sockets.ts";
import { type ByteSink, HostError, InputStream, OutputStream, type StreamContext } from "./streams.ts";

export interface HostComponents {
  readonly sleeper: Sleeper;
  /** Milliseconds since the epoch. */
  readonly wallNow: () => number;
  readonly log: Pick<LogWriter, "write" | "flushUnfinished">;
  /** Runs each time before the component sleeps, after its output is written out. */
  readonly beforeSleep: () => void;
  /** Ends the process. */
  readonly exit: (code: number) => never;
}

export interface HostInit {
  readonly args: readonly string[];
  readonly env: readonly (readonly [name: string, value: string])[];
  readonly workingDir: string | undefined;
  readonly preopens: readonly Preopen[];
}

/** Interfaces without their version: the generated glue asks for `wasi:cli/exit`, whatever 0.2 the component named. */
export type Imports = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/** Nanoseconds; what a Node clock can tell of the wall time. */
const WALL_RESOLUTION = 1_000_000;
const U64 = 64;

class TerminalInput {}
class TerminalOutput {}

export function hostImports(components: HostComponents, init: HostInit): Imports {
  const { log, beforeSleep, sleeper, wallNow } = components;
  const handles = new Handles();
  const poller = new Poller(sleeper, () => {
    log.flushUnfinished();
    beforeSleep();
  });
  const context: StreamContext = { handles, poller, wallNow };
  return {
    ...cliImports(components, init, context),
    ...clockImports(components, context),
    ...randomImports(),
    ...socketImports(handles),
    "wasi:io/error": { Error: HostError },
    "wasi:io/poll": { Pollable, poll: (pollables: readonly Pollable[]) => poller.poll(pollables) },
    "wasi:io/streams": { InputStream, OutputStream },
    "wasi:filesystem/types": { Descriptor, DirectoryEntryStream, filesystemErrorCode },
    "wasi:filesystem/preopens": { getDirectories: () => preopenedDirectories(context, init.preopens) },
  };
}

function cliImports({ log, exit }: HostComponents, init: HostInit, context: StreamContext): Imports {
  const output = (stream: LogStream) => () => new OutputStream(context, logSink(log, stream));
  return {
    "wasi:cli/environment": {
      getEnvironment: () => init.env,
      getArguments: () => init.args,
      initialCwd: () => init.workingDir,
    },
    "wasi:cli/exit": {
      exit: (status: { readonly tag: "ok" | "err" }) => exit(status.tag === "ok" ? 0 : 1),
      exitWithCode: (code: number) => exit(code),
    },
    "wasi:cli/stdin": { getStdin: () => new InputStream(context, nothing) },
    "wasi:cli/stdout": { getStdout: output("stdout") },
    "wasi:cli/stderr": { getStderr: output("stderr") },
    "wasi:cli/terminal-input": { TerminalInput },
    "wasi:cli/terminal-output": { TerminalOutput },
    "wasi:cli/terminal-stdin": { getTerminalStdin: none },
    "wasi:cli/terminal-stdout": { getTerminalStdout: none },
    "wasi:cli/terminal-stderr": { getTerminalStderr: none },
  };
}

function clockImports({ sleeper, wallNow }: HostComponents, context: StreamContext): Imports {
  const timer = (readyAt: bigint) => new Pollable(context.handles.pollables, context.poller, readyAt);
  return {
    "wasi:clocks/monotonic-clock": {
      now: () => sleeper.now(),
      resolution: () => 1n,
      subscribeInstant: timer,
      subscribeDuration: (duration: bigint) => timer(sleeper.now() + duration),
    },
    "wasi:clocks/wall-clock": {
      now: () => {
        const milliseconds = wallNow();
        const seconds = Math.floor(milliseconds / 1000);
        return {
          seconds: BigInt.asUintN(U64, BigInt(seconds)),
          nanoseconds: Math.floor((milliseconds - seconds * 1000) * WALL_RESOLUTION),
        };
      },
      resolution: () => ({ seconds: 0n, nanoseconds: WALL_RESOLUTION }),
    },
    // Nothing of the host's settings shows: components live in UTC, as containers do.
    "wasi:clocks/timezone": {
      display: () => ({ utcOffset: 0, name: "UTC", inDaylightSavingTime: false }),
      utcOffset: () => 0,
    },
  };
}

function randomImports(): Imports {
  const random = new RandomBytes();
  const bytes = (length: bigint) => random.take(length);
  const u64 = () => random.u64();
  return {
    "wasi:random/random": { getRandomBytes: bytes, getRandomU64: u64 },
    "wasi:random/insecure": { getInsecureRandomBytes: bytes, getInsecureRandomU64: u64 },
    "wasi:random/insecure-seed": { insecureSeed: () => [random.u64(), random.u64()] },
  };
}

const none = (): undefined => undefined;

/** stdin: at its end from the start. */
const nothing = { read: () => new Uint8Array(), close: () => undefined };

const logSink = (log: Pick<LogWriter, "write">, stream: LogStream): ByteSink => ({
  write: (bytes) => log.write(stream, bytes),
  flush: none,
  close: none,
});
