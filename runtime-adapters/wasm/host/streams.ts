/** wasi:io/streams and wasi:io/error. All sources and sinks here are files: they are ready at any time. */
import { Failure, type FileErrorCode, fileErrorCode } from "./failure.ts";
import { type Handles, HostResource, trap } from "./handles.ts";
import { Pollable, type Poller } from "./polling.ts";

/** Bytes moved by one call at most, so that one call cannot make the host allocate much; callers loop. */
export const MAX_TRANSFER_BYTES = 65_536;

export type StreamError =
  | { readonly tag: "last-operation-failed"; readonly val: HostError }
  | { readonly tag: "closed" };

export const closedStream = (): Failure<StreamError> => new Failure({ tag: "closed" });

/** wasi:io/error.error */
export class HostError extends HostResource {
  readonly code: FileErrorCode;

  constructor(handles: Handles, code: FileErrorCode) {
    super(handles.errors);
    this.code = code;
  }

  toDebugString(): string {
    return this.code;
  }
}

export interface StreamContext {
  readonly handles: Handles;
  readonly poller: Poller;
  /** Milliseconds since the epoch. */
  readonly wallNow: () => number;
}

/** What a file system call threw, as the stream's last error. */
const streamFailure = (context: StreamContext, error: unknown): Failure<StreamError> =>
  new Failure({ tag: "last-operation-failed", val: new HostError(context.handles, fileErrorCode(error)) });

/** A length as the component gave it, cut to what one call moves. */
export const transferLength = (length: bigint): number =>
  length > BigInt(MAX_TRANSFER_BYTES) ? MAX_TRANSFER_BYTES : Number(length);

export interface ByteSource {
  /** At most `length` bytes; none at the end. Throws what `node:fs` throws. */
  read(length: number): Uint8Array;
  close(): void;
}

export interface ByteSink {
  write(bytes: Uint8Array): void;
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

  read(length: bigint): Uint8Array {
    if (length === 0n) return new Uint8Array();
    let bytes: Uint8Array;
    try {
      bytes = this.#source.read(transferLength(length));
    } catch (error) {
      throw streamFailure(this.#context, error);
    }
    if (bytes.length === 0) throw closedStream();
    return bytes;
  }

  blockingRead(length: bigint): Uint8Array {
    return this.read(length);
  }

  skip(length: bigint): bigint {
    return BigInt(this.read(length).length);
  }

  blockingSkip(length: bigint): bigint {
    return this.skip(length);
  }

  subscribe(): Pollable {
    return new Pollable(this.#context.handles.pollables, this.#context.poller, undefined);
  }

  protected override closed(): void {
    this.#source.close();
  }
}

export class OutputStream extends HostResource {
  readonly #context: StreamContext;
  readonly #sink: ByteSink;
  #failed = false;

  constructor(context: StreamContext, sink: ByteSink) {
    super(context.handles.outputs);
    this.#context = context;
    this.#sink = sink;
  }

  checkWrite(): bigint {
    if (this.#failed) throw closedStream();
    return BigInt(MAX_TRANSFER_BYTES);
  }

  write(contents: Uint8Array): void {
    this.#run(() => this.#sink.write(contents));
  }

  blockingWriteAndFlush(contents: Uint8Array): void {
    this.#run(() => {
      this.#sink.write(contents);
      this.#sink.flush();
    });
  }

  flush(): void {
    this.#run(() => this.#sink.flush());
  }

  blockingFlush(): void {
    this.flush();
  }

  subscribe(): Pollable {
    return new Pollable(this.#context.handles.pollables, this.#context.poller, undefined);
  }

  writeZeroes(length: bigint): void {
    if (length > BigInt(MAX_TRANSFER_BYTES)) throw trap("more zeroes written than check-write allowed");
    this.write(new Uint8Array(Number(length)));
  }

  blockingWriteZeroesAndFlush(length: bigint): void {
    this.writeZeroes(length);
    this.flush();
  }

  splice(source: InputStream, length: bigint): bigint {
    if (this.#failed) throw closedStream();
    const bytes = source.read(length);
    this.write(bytes);
    return BigInt(bytes.length);
  }

  blockingSplice(source: InputStream, length: bigint): bigint {
    return this.splice(source, length);
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
