/**
 * WASI 0.3 as far as `shared/grants/import-grants.ts` lists it. The glue asks for its interfaces by names that end in
 * `@0.3` (`transpile/generated-files.ts`), and for those of 0.2 without a version, because a component may import both.
 */
import type { Imports } from "../../shared/host/host.ts";
import type { LogStream, LogWriter } from "../../shared/host/log-writer.ts";
import { millisecondsUntil } from "../../shared/resources/polling.ts";
import { type ByteReader, bytesOf, emptyStream, type Result as ResultOf, success } from "./byte-flow.ts";
import type { StartTimer } from "./patient-timers.ts";

type Result = ResultOf<undefined, never>;

export interface AsyncComponents {
  readonly log: Pick<LogWriter, "write" | "flushUnfinished">;
  /** Nanoseconds of the monotonic clock. */
  readonly now: () => bigint;
  /** Milliseconds since the epoch. */
  readonly wallNow: () => number;
  readonly wallIsSet: () => boolean;
  readonly after: StartTimer;
  /** The host was called, or a promise of it has settled. */
  readonly onActivity: () => void;
  /** Runs each time before the component waits for time alone. */
  readonly beforeWait: () => void;
  /** Output of the component that is under way. */
  readonly sending: () => readonly Promise<unknown>[];
  /** Releases all resources of the component. Resolves when nothing of them is left. */
  readonly release: () => Promise<void>;
  /** Ends the process. */
  readonly exit: (code: number) => never;
}

/** Those of which much is in 0.3 as it was. */
const SAME = /^wasi:(?:cli|clocks|random)\//;
/** The size of one read of the component's output, which goes into the log as one piece. */
const CHUNK_BYTES = 4096;
/** Bounds the time until output that was reported as written is in the log. */
const DRAIN_MS = 100;
/** The same bound in turns of the event loop. */
const DRAIN_TURNS = 32;
const NANOSECONDS_PER_MS = 1_000_000n;
const WALL_RESOLUTION = 1_000_000n;
const MS_PER_SECOND = 1000;

/** The glue's suffix of interfaces of 0.3. */
const ASYNC_SUFFIX = "@0.3";

/** Thrown through the component, which does not continue. */
export class ExitRequest extends Error {}

export class AsyncHost {
  readonly #components: AsyncComponents;
  readonly #outputs = new Set<Promise<Result>>();

  constructor(components: AsyncComponents) {
    this.#components = components;
  }

  /** Waits until written output is in the log, or at its receiver. A stream that is never closed is not awaited. */
  async drained(): Promise<void> {
    const { sending, release } = this.#components;
    await Promise.race([Promise.allSettled([...this.#outputs, ...sending()]), this.#patience()]);
    await release();
  }

  async #patience(): Promise<void> {
    const { after, onActivity } = this.#components;
    const wait = (milliseconds: number): Promise<void> => new Promise((done) => void after(milliseconds, done));
    await wait(DRAIN_MS);
    // The process may have had no processor until now.
    for (let left = DRAIN_TURNS; left > 0; left -= 1) {
      onActivity();
      await wait(0);
    }
  }

  /** @param imports of WASI 0.2 @param more of 0.3, by their names without a version */
  extended(imports: Imports, more: Imports): Imports {
    const extended: Record<string, Readonly<Record<string, unknown>>> = { ...imports };
    const same = Object.entries(imports).filter(([name]) => SAME.test(name));
    for (const [name, own] of [...same, ...Object.entries(this.#own(imports)), ...Object.entries(more)]) {
      const asynchronous = name + ASYNC_SUFFIX;
      extended[asynchronous] = { ...extended[asynchronous], ...this.#noticed(own) };
    }
    return extended;
  }

  #own(imports: Imports): Imports {
    const { now, exit } = this.#components;
    const output = (stream: LogStream) => ({ writeViaStream: (data: ByteReader) => this.#output(stream, data) });
    const leave = (code: number): never => {
      void this.drained().then(() => exit(code));
      throw new ExitRequest("the component left");
    };
    return {
      "wasi:cli/environment": { getInitialCwd: imports["wasi:cli/environment"]?.initialCwd },
      "wasi:cli/exit": {
        exit: ({ tag }: { readonly tag: "ok" | "err" }) => leave(tag === "ok" ? 0 : 1),
        exitWithCode: leave,
      },
      // At its end from the start.
      "wasi:cli/stdin": { readViaStream: () => [emptyStream(), Promise.resolve(success())] },
      "wasi:cli/stdout": output("stdout"),
      "wasi:cli/stderr": output("stderr"),
      "wasi:clocks/monotonic-clock": {
        now,
        getResolution: () => 1n,
        waitUntil: (mark: bigint) => this.#until(mark),
        waitFor: (duration: bigint) => this.#until(now() + duration),
      },
      "wasi:clocks/system-clock": { now: () => this.#instant(), getResolution: () => this.#resolution() },
      "wasi:random/insecure-seed": { getInsecureSeed: imports["wasi:random/insecure-seed"]?.insecureSeed },
    };
  }

  /** Each call is an activity, and so is the end of an operation that it started. */
  #noticed(functions: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
    const { onActivity } = this.#components;
    const noticed = ([name, call]: [string, unknown]): [string, unknown] => {
      // Methods of a class report their own starts.
      if (typeof call !== "function" || /^[A-Z]/.test(name)) return [name, call];
      const watched = (...args: unknown[]): unknown => {
        onActivity();
        const result: unknown = call(...args);
        if (result instanceof Promise) void result.then(onActivity, onActivity);
        return result;
      };
      return [name, watched];
    };
    return Object.fromEntries(Object.entries(functions).map(noticed));
  }

  #output(stream: LogStream, data: ByteReader): Promise<Result> {
    const copied = this.#copy(stream, data);
    this.#outputs.add(copied);
    const forget = (): void => void this.#outputs.delete(copied);
    copied.then(forget, forget);
    return copied;
  }

  async #copy(stream: LogStream, data: ByteReader): Promise<Result> {
    const { log, onActivity } = this.#components;
    for (;;) {
      const { done, value } = await data.read({ count: CHUNK_BYTES });
      onActivity();
      if (value !== undefined) log.write(stream, bytesOf(value));
      if (done === true) return success();
    }
  }

  /** No timer is longer than 24 days. */
  async #until(mark: bigint): Promise<void> {
    const { now, after, log, beforeWait } = this.#components;
    log.flushUnfinished();
    beforeWait();
    while (now() < mark) {
      await new Promise<void>((resolve) => void after(Math.ceil(millisecondsUntil(mark, now())), resolve));
    }
  }

  /** A clock that has not been set counts from 1970, with a resolution of 0. */
  #instant(): { readonly seconds: bigint; readonly nanoseconds: number } {
    const { wallNow, wallIsSet, now } = this.#components;
    const milliseconds = wallIsSet() ? wallNow() : Number(now() / NANOSECONDS_PER_MS);
    const seconds = Math.floor(milliseconds / MS_PER_SECOND);
    const rest = Math.floor((milliseconds - seconds * MS_PER_SECOND) * Number(NANOSECONDS_PER_MS));
    return { seconds: BigInt(seconds), nanoseconds: rest };
  }

  #resolution(): bigint {
    return this.#components.wallIsSet() ? WALL_RESOLUTION : 0n;
  }
}
