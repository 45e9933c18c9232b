/**
 * wasi:io/streams and wasi:io/error. Files are always ready; other streams have a `readiness`, for which only the
 * blocking functions wait.
 */
import { Failure, fileErrorCode } from "./failure.ts";
import { type Handles, HostResource, trap } from "./handles.ts";
import { Pollable, type Poller, type Readiness, WouldBlock } from "./polling.ts";

/** Bytes moved by one call at most, so that one call cannot make the host allocate much; callers loop. */
export const MAX_TRANSFER_BYTES = 65_536;
/** The interface's limit for blocking writes. The host accepts that much in addition to what it accepts otherwise. */
const MAX_BLOCKING_WRITE_BYTES = MAX_TRANSFER_BYTES;

export type StreamError =
  | { readonly tag: "last-operation-failed"; readonly val: HostError }
  | { readonly tag: "closed" };

export const closedStream = (): Failure<StreamError> => new Failure({ tag: "closed" });

/** The interface whose `error-code` an error has. A component asks each interface for its own. */
export type ErrorDomain = "filesystem" | "network" | "http";

/** wasi:io/error.error */
export class HostError extends HostResource {
  readonly #domain: ErrorDomain;
  readonly #code: unknown;

  /** @param code as the domain's interface has it: an enum's text, or a variant. */
  constructor(handles: Handles, domain: ErrorDomain, code: unknown) {
    super(handles.errors);
    this.#domain = domain;
    this.#code = code;
  }

  toDebugString(): string {
    return typeof this.#code === "string" ? this.#code : JSON.stringify(this.#code);
  }

  /** Undefined: it is another domain's. */
  codeIn(domain: ErrorDomain): unknown {
    return domain === this.#domain ? this.#code : undefined;
  }
}

export interface StreamContext {
  readonly handles: Handles;
  readonly poller: Poller;
  /** Milliseconds since the epoch. */
  readonly wallNow: () => number;
}

/** Converts an error of a file system call to the stream's last error. */
const streamFailure = (context: StreamContext, error: unknown): Failure<StreamError> =>
  error instanceof Failure
    ? error
    : new Failure({
        tag: "last-operation-failed",
        val: new HostError(context.handles, "filesystem", fileErrorCode(error)),
      });

/** A length from the component, cut to the limit of one call. */
export const transferLength = (length: bigint): number =>
  length > BigInt(MAX_TRANSFER_BYTES) ? MAX_TRANSFER_BYTES : Number(length);

export interface ByteSource {
  /** Ready when there is something to read, or the end. Missing: at any time. */
  readonly readiness?: Readiness;
  /**
   * At most `length` bytes. Empty: nothing has arrived yet, see `readiness`; undefined: the end. Throws errors of
   * `node:fs`, or a `Failure` of a `StreamError`.
   */
  read(length: number): Uint8Array | undefined;
  close(): void;
}

export interface ByteSink {
  /** Ready when it takes more. Missing: at any time. */
  readonly readiness?: Readiness;
  /**
   * Bytes that `write` takes now. 0: none until `readiness` is ready, as during a flush. Missing: `MAX_TRANSFER_BYTES`.
   */
  writable?(): number;
  /** Writes at most `writable` bytes. Throws errors of `node:fs`, or a `Failure` of a `StreamError`. */
  write(bytes: Uint8Array): void;
  /** Starts to pass written bytes on. `writable` is 0 until that is done. */
  flush(): void;
  close(): void;
}

export class InputStream extends HostResource {
  readonly #context: StreamContext;
  readonly #source: ByteSource;

  constructor(context: StreamContext, source: ByteSource) {
    super(context.handles.inputs);
    this.#context = context;
    this.#source = source;
  }

  /** As many as there are, which may be none. */
  read(length: bigint): Uint8Array {
    if (length === 0n) return new Uint8Array();
    let bytes: Uint8Array | undefined;
    try {
      bytes = this.#source.read(transferLength(length));
    } catch (error) {
      throw streamFailure(this.#context, error);
    }
    if (bytes === undefined) throw closedStream();
    return bytes;
  }

  /** At least one byte. */
  blockingRead(length: bigint): Uint8Array {
    for (;;) {
      const bytes = this.read(length);
      if (bytes.length > 0 || length === 0n || this.#source.readiness === undefined) return bytes;
      this.#context.poller.until(this.#source.readiness);
    }
  }

  skip(length: bigint): bigint {
    return BigInt(this.read(length).length);
  }

  blockingSkip(length: bigint): bigint {
    return BigInt(this.blockingRead(length).length);
  }

  /** As `blockingRead` would have to wait for. */
  until(): void {
    if (this.#source.readiness !== undefined) this.#context.poller.until(this.#source.readiness);
  }

  subscribe(): Pollable {
    return new Pollable(this.#context.handles.pollables, this.#context.poller, this.#source.readiness);
  }

  protected override closed(): void {
    this.#source.close();
  }
}

export class OutputStream extends HostResource {
  readonly #context: StreamContext;
  readonly #sink: ByteSink;
  #failed = false;
  /** A blocking write that waits. */
  #underway: { left: Uint8Array; flushed: boolean } | undefined;

  constructor(context: StreamContext, sink: ByteSink) {
    super(context.handles.outputs);
    this.#context = context;
    this.#sink = sink;
  }

  /** Bytes that `write` takes now. */
  checkWrite(): bigint {
    if (this.#failed) throw closedStream();
    return BigInt(this.#writable());
  }

  write(contents: Uint8Array): void {
    if (contents.length > Math.max(this.#writable(), 0) && !this.#failed) {
      throw trap("more bytes written than check-write allowed");
    }
    this.#run(() => this.#sink.write(contents));
  }

  blockingWriteAndFlush(contents: Uint8Array): void {
    this.#finished(() => {
      if (contents.length > MAX_BLOCKING_WRITE_BYTES) throw trap("more bytes written at once than any stream takes");
      return contents;
    });
  }

  flush(): void {
    this.#run(() => this.#sink.flush());
  }

  blockingFlush(): void {
    this.#finished(() => new Uint8Array());
  }

  subscribe(): Pollable {
    return new Pollable(this.#context.handles.pollables, this.#context.poller, this.#sink.readiness);
  }

  writeZeroes(length: bigint): void {
    if (length > BigInt(this.#writable())) throw trap("more zeroes written than check-write allowed");
    this.write(new Uint8Array(Number(length)));
  }

  blockingWriteZeroesAndFlush(length: bigint): void {
    this.#finished(() => {
      if (length > BigInt(MAX_BLOCKING_WRITE_BYTES)) throw trap("more zeroes written at once than any stream takes");
      return new Uint8Array(Number(length));
    });
  }

  splice(source: InputStream, length: bigint): bigint {
    if (this.#failed) throw closedStream();
    const room = BigInt(this.#writable());
    if (room === 0n) return 0n;
    const bytes = source.read(length < room ? length : room);
    this.write(bytes);
    return BigInt(bytes.length);
  }

  blockingSplice(source: InputStream, length: bigint): bigint {
    if (length === 0n) return 0n;
    this.#untilWritable();
    source.until();
    return this.splice(source, length);
  }

  /**
   * Writes all of it, as far as there is room, and returns when it has been passed on. The current step is kept,
   * because on an event loop the call is repeated after each wait.
   */
  #finished(contents: () => Uint8Array): void {
    this.#underway ??= { left: contents(), flushed: false };
    const underway = this.#underway;
    try {
      while (underway.left.length > 0) {
        this.#untilWritable();
        const part = underway.left.subarray(0, this.#writable());
        this.#run(() => this.#sink.write(part));
        underway.left = underway.left.subarray(part.length);
      }
      if (!underway.flushed) this.flush();
      underway.flushed = true;
      this.#untilWritable();
    } catch (error) {
      if (!(error instanceof WouldBlock)) this.#underway = undefined;
      throw error;
    }
    this.#underway = undefined;
  }

  #writable(): number {
    return this.#sink.writable?.() ?? MAX_TRANSFER_BYTES;
  }

  #untilWritable(): void {
    if (this.#failed) throw closedStream();
    if (this.#sink.readiness !== undefined) this.#context.poller.until(this.#sink.readiness);
  }

  /** After one failure the stream is closed, as the interface has it. */
  #run(operation: () => void): void {
    if (this.#failed) throw closedStream();
    try {
      operation();
    } catch (error) {
      this.#failed = true;
      throw streamFailure(this.#context, error);
    }
  }

  protected override closed(): void {
    this.#sink.close();
  }
}
