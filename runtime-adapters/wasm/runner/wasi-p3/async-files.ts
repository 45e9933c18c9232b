/**
 * wasi:filesystem of WASI 0.3 on the descriptors of 0.2, with the same rules: volumes alone, read-only ones unchanged,
 * no way out. Parts that differ are translated here: error codes, types, times, streams.
 */

import type { DescriptorStat, MetadataHash, NewTimestamp } from "../../shared/host/file-status.ts";
import { type Descriptor, type DirectoryEntryStream, preopenedDirectories } from "../../shared/host/filesystem.ts";
import type { Imports } from "../../shared/host/host.ts";
import type { Preopen } from "../../shared/host/mounts.ts";
import type { DescriptorFlags, OpenFlags } from "../../shared/host/open-entry.ts";
import type { DescriptorType } from "../../shared/host/opened-file.ts";
import { Failure, type FileErrorCode, fileErrorCode } from "../../shared/resources/failure.ts";
import { HostResource } from "../../shared/resources/handles.ts";
import type { AsyncContext } from "./async-context.ts";
import {
  ByteFlow,
  type ByteReader,
  drainStream,
  type FlowPair,
  failedFlow,
  type Result,
  refusedStream,
} from "./byte-flow.ts";

type ErrorCode = { readonly tag: FileErrorCode } | { readonly tag: "other"; readonly val: string };
type Outcome = Promise<Result<undefined, ErrorCode>>;
type TypeVariant =
  | { readonly tag: Exclude<DescriptorType, "unknown"> }
  | { readonly tag: "other"; readonly val: undefined };
type Instant = { readonly seconds: bigint; readonly nanoseconds: number };
type PathFlags = Parameters<Descriptor["statAt"]>[0];

interface AsyncStat {
  readonly type: TypeVariant;
  readonly linkCount: bigint;
  readonly size: bigint;
  readonly dataAccessTimestamp: Instant;
  readonly dataModificationTimestamp: Instant;
  readonly statusChangeTimestamp: Instant;
}

interface DirectoryEntry {
  readonly type: TypeVariant;
  readonly name: string;
}

const KIND = "descriptors";
/** Seconds are signed here. */
const SECONDS_BITS = 64;

class AsyncDescriptor extends HostResource {
  readonly #context: AsyncContext;
  readonly #inner: Descriptor;

  constructor(context: AsyncContext, inner: Descriptor) {
    super(context.pool(KIND));
    this.#context = context;
    this.#inner = inner;
  }

  protected override closed(): void {
    this.#inner[Symbol.dispose]();
  }

  readViaStream(offset: bigint): FlowPair<Uint8Array, ErrorCode> {
    try {
      const source = this.#inner.source(offset);
      return new ByteFlow(this.#context, { source, codeOf }).pair;
    } catch (error) {
      return failedFlow(codeOf(error));
    }
  }

  writeViaStream(data: ByteReader, offset: bigint): Outcome {
    return this.#written(data, () => this.#inner.sink(offset));
  }

  appendViaStream(data: ByteReader): Outcome {
    return this.#written(data, () => this.#inner.appendSink());
  }

  #written(data: ByteReader, open: () => ReturnType<Descriptor["sink"]>): Outcome {
    try {
      return drainStream(this.#context, data, { sink: open(), codeOf });
    } catch (error) {
      return refusedStream(data, codeOf(error));
    }
  }

  readDirectory(): FlowPair<DirectoryEntry, ErrorCode> {
    try {
      const listing = new Listing(this.#context, this.#inner.readDirectory());
      return [listing, listing.outcome];
    } catch (error) {
      return failedFlow(codeOf(error));
    }
  }

  async advise(): Promise<void> {
    attempt(() => this.#inner.advise());
  }

  async syncData(): Promise<void> {
    attempt(() => this.#inner.syncData());
  }

  async sync(): Promise<void> {
    attempt(() => this.#inner.sync());
  }

  async getFlags(): Promise<DescriptorFlags> {
    return this.#inner.getFlags();
  }

  async getType(): Promise<TypeVariant> {
    return typeVariant(this.#inner.getType());
  }

  async setSize(size: bigint): Promise<void> {
    attempt(() => this.#inner.setSize(size));
  }

  async setTimes(access: NewTimestamp, modification: NewTimestamp): Promise<void> {
    attempt(() => this.#inner.setTimes(access, modification));
  }

  async stat(): Promise<AsyncStat> {
    return attempt(() => asyncStat(this.#inner.stat()));
  }

  async statAt(flags: PathFlags, path: string): Promise<AsyncStat> {
    return attempt(() => asyncStat(this.#inner.statAt(flags, path)));
  }

  async setTimesAt(flags: PathFlags, path: string, access: NewTimestamp, modification: NewTimestamp): Promise<void> {
    attempt(() => this.#inner.setTimesAt(flags, path, access, modification));
  }

  async openAt(
    pathFlags: PathFlags,
    path: string,
    openFlags: OpenFlags,
    flags: DescriptorFlags,
  ): Promise<AsyncDescriptor> {
    return attempt(() => {
      // Before anything is made.
      if (this.#context.pool(KIND).full) throw new Failure("insufficient-memory");
      return new AsyncDescriptor(this.#context, this.#inner.openAt(pathFlags, path, openFlags, flags));
    });
  }

  async createDirectoryAt(path: string): Promise<void> {
    attempt(() => this.#inner.createDirectoryAt(path));
  }

  async removeDirectoryAt(path: string): Promise<void> {
    attempt(() => this.#inner.removeDirectoryAt(path));
  }

  async unlinkFileAt(path: string): Promise<void> {
    attempt(() => this.#inner.unlinkFileAt(path));
  }

  async linkAt(flags: PathFlags, path: string, directory: AsyncDescriptor, newPath: string): Promise<void> {
    attempt(() => this.#inner.linkAt(flags, path, directory.#inner, newPath));
  }

  async renameAt(path: string, directory: AsyncDescriptor, newPath: string): Promise<void> {
    attempt(() => this.#inner.renameAt(path, directory.#inner, newPath));
  }

  async symlinkAt(target: string, path: string): Promise<void> {
    attempt(() => this.#inner.symlinkAt(target, path));
  }

  async readlinkAt(path: string): Promise<string> {
    return attempt(() => this.#inner.readlinkAt(path));
  }

  async isSameObject(other: AsyncDescriptor): Promise<boolean> {
    return this.#inner.isSameObject(other.#inner);
  }

  async metadataHash(): Promise<MetadataHash> {
    return attempt(() => this.#inner.metadataHash());
  }

  async metadataHashAt(flags: PathFlags, path: string): Promise<MetadataHash> {
    return attempt(() => this.#inner.metadataHashAt(flags, path));
  }
}

/** The entries of a directory, one for each that the component takes, and how that ended. */
class Listing implements AsyncIterator<DirectoryEntry> {
  readonly #entries: DirectoryEntryStream;
  readonly #outcome = Promise.withResolvers<Result<undefined, ErrorCode>>();
  readonly #giveBack: () => void;
  #hasEnded = false;

  constructor(context: AsyncContext, entries: DirectoryEntryStream) {
    this.#entries = entries;
    this.#giveBack = context.takeFlow(() => this.#end({ tag: "ok", val: undefined }));
  }

  get outcome(): Outcome {
    return this.#outcome.promise;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<DirectoryEntry>> {
    try {
      const entry = this.#hasEnded ? undefined : this.#entries.readDirectoryEntry();
      if (entry !== undefined) return { done: false, value: { ...entry, type: typeVariant(entry.type) } };
      this.#end({ tag: "ok", val: undefined });
    } catch (error) {
      this.#end({ tag: "err", val: codeOf(error) });
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<DirectoryEntry>> {
    this.#end({ tag: "ok", val: undefined });
    return { done: true, value: undefined };
  }

  #end(result: Result<undefined, ErrorCode>): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#entries[Symbol.dispose]();
    this.#giveBack();
    this.#outcome.resolve(result);
  }
}

export const fileImports = (context: AsyncContext, preopens: readonly Preopen[]): Imports => ({
  "wasi:filesystem/types": { Descriptor: AsyncDescriptor },
  "wasi:filesystem/preopens": {
    getDirectories: () =>
      preopenedDirectories(context, preopens).map(([inner, path]) => [new AsyncDescriptor(context, inner), path]),
  },
});

/** The `would-block` of 0.2 is gone, and of files it is never true. */
const variant = (code: FileErrorCode): ErrorCode =>
  code === "would-block" ? { tag: "other", val: code } : { tag: code };

/**
 * @param error thrown by a call of files, or by Node
 * @throws errors that do not concern the component
 */
function codeOf(error: unknown): ErrorCode {
  if (error instanceof Failure) return variant((error as Failure<FileErrorCode>).payload);
  if (error instanceof WebAssembly.RuntimeError) throw error;
  return variant(fileErrorCode(error));
}

function attempt<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw error instanceof Failure ? new Failure(codeOf(error)) : error;
  }
}

const typeVariant = (type: DescriptorType): TypeVariant =>
  type === "unknown" ? { tag: "other", val: undefined } : { tag: type };

const signed = ({ seconds, nanoseconds }: Instant): Instant => ({
  seconds: BigInt.asIntN(SECONDS_BITS, seconds),
  nanoseconds,
});

const asyncStat = (stat: DescriptorStat): AsyncStat => ({
  type: typeVariant(stat.type),
  linkCount: stat.linkCount,
  size: stat.size,
  dataAccessTimestamp: signed(stat.dataAccessTimestamp),
  dataModificationTimestamp: signed(stat.dataModificationTimestamp),
  statusChangeTimestamp: signed(stat.statusChangeTimestamp),
});
