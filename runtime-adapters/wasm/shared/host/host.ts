/**
 * All imports of a component: WASI 0.2 as far as `shared/grants/import-grants.ts` lists it, and nothing else of the
 * host.
 */
import { closeSync, openSync, readSync } from "node:fs";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { Handles, type LiveResources, trap } from "../resources/handles.ts";
import { Pollable, Poller, type Waiter } from "../resources/polling.ts";
import { type ByteSink, HostError, InputStream, OutputStream, type StreamContext } from "../resources/streams.ts";
import { Descriptor, DirectoryEntryStream, filesystemErrorCode, preopenedDirectories } from "./filesystem.ts";
import type { LogStream, LogWriter } from "./log-writer.ts";
import type { Preopen } from "./mounts.ts";
import { noNetworkImports } from "./no-network.ts";

export interface HostComponents {
  readonly waiter: Waiter;
  /** Milliseconds since the epoch. */
  readonly wallNow: () => number;
  /** True when that clock has been set since the board started; undefined: it is taken as set. */
  readonly wallIsSet?: (() => boolean) | undefined;
  readonly log: Pick<LogWriter, "write" | "flushUnfinished">;
  /** Runs each time before the component waits, after its output is written out. */
  readonly beforeWait: () => void;
  /** wasi:sockets, for a component that is granted a network. */
  readonly sockets?: ((context: StreamContext) => Imports | undefined) | undefined;
  /** Its interfaces of `wit/board`. */
  readonly board?: ((context: StreamContext) => Imports | undefined) | undefined;
  /** wasi:http, for a component that names it. */
  readonly http?: ((context: StreamContext) => Imports) | undefined;
  /** Ends the component. */
  readonly exit: (code: number) => never;
  /** Collects what the component holds, where it has to be closed; undefined: the end of the process closes it. */
  readonly live?: LiveResources | undefined;
}

export interface HostInit {
  readonly args: readonly string[];
  readonly env: readonly (readonly [name: string, value: string])[];
  readonly workingDir: string | undefined;
  readonly preopens: readonly Preopen[];
}

/** Interfaces without their version: the generated glue asks for `wasi:cli/exit`, for every version 0.2. */
export type Imports = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/** Resolution of Node's wall clock in nanoseconds. */
const WALL_RESOLUTION = 1_000_000;
const U64 = 64;

class TerminalInput {}
class TerminalOutput {}

export function hostContext({ log, beforeWait, waiter, wallNow, live }: HostComponents): StreamContext {
  const poller = new Poller(waiter, () => {
    log.flushUnfinished();
    beforeWait();
  });
  return { handles: new Handles(live), poller, wallNow };
}

export function hostImports(components: HostComponents, init: HostInit, context = hostContext(components)): Imports {
  const { handles, poller } = context;
  return {
    ...cliImports(components, init, context),
    ...clockImports(components, context),
    ...randomImports(),
    ...(components.sockets?.(context) ?? noNetworkImports(handles)),
    ...components.http?.(context),
    "wasi:io/error": { Error: HostError },
    "wasi:io/poll": { Pollable, poll: (pollables: readonly Pollable[]) => poller.poll(pollables) },
    "wasi:io/streams": { InputStream, OutputStream },
    "wasi:filesystem/types": { Descriptor, DirectoryEntryStream, filesystemErrorCode },
    ...components.board?.(context),
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

function clockImports(components: HostComponents, { handles, poller }: StreamContext): Imports {
  const { waiter, wallNow, wallIsSet = () => true } = components;
  const timer = (at: bigint) => new Pollable(handles.pollables, poller, poller.timer(at));
  return {
    "wasi:clocks/monotonic-clock": {
      now: () => waiter.now(),
      resolution: () => 1n,
      subscribeInstant: timer,
      subscribeDuration: (duration: bigint) => timer(waiter.now() + duration),
    },
    // A clock that has not been set reports that: it counts from 1970 at the board's start, with a resolution of 0.
    "wasi:clocks/wall-clock": {
      now: () => (wallIsSet() ? dateTimeOf(wallNow()) : dateTimeOf(Number(waiter.now()) / WALL_RESOLUTION)),
      resolution: () => ({ seconds: 0n, nanoseconds: wallIsSet() ? WALL_RESOLUTION : 0 }),
    },
    // Nothing of the host's settings shows: components live in UTC, as containers do.
    "wasi:clocks/timezone": {
      display: () => ({ utcOffset: 0, name: "UTC", inDaylightSavingTime: false }),
      utcOffset: () => 0,
    },
  };
}

/** Before 1970 the seconds wrap, as those of two's complement do. */
function dateTimeOf(milliseconds: number): { readonly seconds: bigint; readonly nanoseconds: number } {
  const seconds = Math.floor(milliseconds / 1000);
  return {
    seconds: BigInt.asUintN(U64, BigInt(seconds)),
    nanoseconds: Math.floor((milliseconds - seconds * 1000) * WALL_RESOLUTION),
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
const nothing = { read: none, close: () => undefined };

const logSink = (log: Pick<LogWriter, "write">, stream: LogStream): ByteSink => ({
  write: (bytes) => log.write(stream, bytes),
  flush: none,
  close: none,
});

/** Bounds the bytes of one call, because the interface returns all of them at once. */
const MAX_RANDOM_BYTES = MEBIBYTE;

/** wasi:random, from the kernel. Opening /dev/urandom costs less memory than loading Node's crypto. */
class RandomBytes {
  #fd: number | undefined;

  take(length: bigint): Uint8Array {
    if (length > BigInt(MAX_RANDOM_BYTES)) throw trap(`more than ${MAX_RANDOM_BYTES} random bytes at once`);
    const bytes = new Uint8Array(Number(length));
    this.#fd ??= openSync("/dev/urandom", "r");
    for (let done = 0; done < bytes.length; ) done += readSync(this.#fd, bytes, done, bytes.length - done, null);
    return bytes;
  }

  u64(): bigint {
    return new DataView(this.take(8n).buffer).getBigUint64(0);
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
  }
}
