/** wasi:filesystem/types and preopens, on nothing but the container's mounts. */
import {
  type BigIntStats,
  constants,
  type Dir,
  type Dirent,
  fdatasyncSync,
  fsyncSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  opendirSync,
  openSync,
  readlinkSync,
  readSync,
  renameSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeSync,
} from "node:fs";
import { fileCall, fileFailure } from "../resources/failure.ts";
import { HostResource } from "../resources/handles.ts";
import {
  type ByteSink,
  type ByteSource,
  type HostError,
  InputStream,
  OutputStream,
  type StreamContext,
  transferLength,
} from "../resources/streams.ts";
import { type DescriptorStat, hashOf, type MetadataHash, type NewTimestamp, statOf, timesFor } from "./file-status.ts";
import type { MountedFile, Preopen, Tree } from "./mounts.ts";
import {
  accessOf,
  type DescriptorFlags,
  exists,
  type OpenFlags,
  openEntry,
  readOnlyOpenFlags,
  reopenFile,
} from "./open-entry.ts";
import { AppendSink, type DescriptorType, FileSink, FileSource, OpenedFile } from "./opened-file.ts";
import { decodeName, fdPath, type ResolvedPath, resolvePath } from "./paths.ts";

interface PathFlags {
  readonly symlinkFollow?: boolean;
}

interface DirectoryEntry {
  readonly type: DescriptorType;
  readonly name: string;
}

const NO_FILES: ReadonlyMap<string, MountedFile> = new Map();
/** Entries that one system call of a directory listing reads ahead. */
const DIRECTORY_BATCH = 32;
/** As for a container whose umask is 022, and Docker's default. */
const DIRECTORY_MODE = 0o755;

interface DescriptorInit {
  readonly file: OpenedFile;
  readonly tree: Tree;
  readonly flags: DescriptorFlags;
  /** Files mounted into this directory. */
  readonly files: ReadonlyMap<string, MountedFile>;
}

export class Descriptor extends HostResource {
  readonly #context: StreamContext;
  readonly #file: OpenedFile;
  readonly #tree: Tree;
  readonly #flags: DescriptorFlags;
  readonly #files: ReadonlyMap<string, MountedFile>;

  constructor(context: StreamContext, init: DescriptorInit) {
    super(context.handles.descriptors);
    this.#context = context;
    this.#file = init.file;
    this.#tree = init.tree;
    this.#flags = init.flags;
    this.#files = init.files;
  }

  protected override closed(): void {
    this.#file.release();
  }

  // Files

  readViaStream(offset: bigint): InputStream {
    return new InputStream(this.#context, this.source(offset));
  }

  source(offset: bigint): ByteSource {
    this.#requireFile();
    if (this.#flags.read !== true) throw fileFailure("bad-descriptor");
    return new FileSource(this.#file, offset);
  }

  writeViaStream(offset: bigint): OutputStream {
    return new OutputStream(this.#context, this.sink(offset));
  }

  sink(offset: bigint): ByteSink {
    this.#requireWritable();
    return new FileSink(this.#file, fileOffset(offset));
  }

  appendViaStream(): OutputStream {
    return new OutputStream(this.#context, this.appendSink());
  }

  appendSink(): ByteSink {
    this.#requireWritable();
    return fileCall(() => new AppendSink(this.#file));
  }

  read(length: bigint, offset: bigint): [Uint8Array, boolean] {
    this.#requireFile();
    const wanted = transferLength(length);
    const buffer = new Uint8Array(wanted);
    const count = fileCall(() => readSync(this.#file.fd, buffer, 0, wanted, fileOffset(offset)));
    return [buffer.subarray(0, count), count < wanted];
  }

  write(buffer: Uint8Array, offset: bigint): bigint {
    this.#requireWritable();
    return BigInt(fileCall(() => writeSync(this.#file.fd, buffer, 0, buffer.length, fileOffset(offset))));
  }

  setSize(size: bigint): void {
    this.#requireWritable();
    fileCall(() => ftruncateSync(this.#file.fd, fileOffset(size)));
  }

  /** Only a hint; there is no call for it in Node. */
  advise(): void {
    this.#requireFile();
  }

  // Files and directories

  syncData(): void {
    this.#sync(fdatasyncSync);
  }

  sync(): void {
    this.#sync(fsyncSync);
  }

  getFlags(): DescriptorFlags {
    return this.#flags;
  }

  getType(): DescriptorType {
    return this.#file.type;
  }

  stat(): DescriptorStat {
    return fileCall(() => statOf(this.#file.stat()));
  }

  setTimes(access: NewTimestamp, modification: NewTimestamp): void {
    this.#requireChangeable();
    fileCall(() => {
      const [atime, mtime] = timesFor(access, modification, this.#context.wallNow(), () => this.#file.stat());
      utimesSync(fdPath(this.#file.fd), atime, mtime);
    });
  }

  isSameObject(other: Descriptor): boolean {
    const [mine, others] = [this.#file.stat(), other.#file.stat()];
    return mine.dev === others.dev && mine.ino === others.ino;
  }

  metadataHash(): MetadataHash {
    return fileCall(() => hashOf(this.#file.stat()));
  }

  // Directories

  readDirectory(): DirectoryEntryStream {
    this.#requireDirectory();
    return new DirectoryEntryStream(this.#context, this.#file, this.#files);
  }

  openAt(pathFlags: PathFlags, path: string, openFlags: OpenFlags, flags: DescriptorFlags): Descriptor {
    if (this.#context.handles.descriptors.full) throw fileFailure("insufficient-memory");
    return this.#at(path, pathFlags.symlinkFollow === true, (resolved, mounted) => {
      if (mounted !== undefined) return this.#openMounted(mounted, openFlags, flags);
      const how = this.#tree.readOnly ? readOnlyOpenFlags(resolved, openFlags, flags) : openFlags;
      const file = fileCall(() => openEntry(resolved, how, flags));
      return this.#opened(file, flags, resolved.atRoot && resolved.name === ".");
    });
  }

  #opened(file: OpenedFile, flags: DescriptorFlags, isRoot: boolean): Descriptor {
    const directory = file.type === "directory";
    const granted: DescriptorFlags = {
      ...flags,
      write: flags.write === true && !directory,
      mutateDirectory: directory && !this.#tree.readOnly,
    };
    const files = isRoot ? this.#files : NO_FILES;
    return new Descriptor(this.#context, { file, tree: this.#tree, flags: granted, files });
  }

  #openMounted(mounted: MountedFile, openFlags: OpenFlags, flags: DescriptorFlags): Descriptor {
    if (openFlags.directory === true) throw fileFailure("not-directory");
    if (openFlags.create === true && openFlags.exclusive === true) throw fileFailure("exist");
    const writes = flags.write === true || openFlags.truncate === true;
    if (writes && mounted.readOnly) throw fileFailure("read-only");
    const truncates = openFlags.truncate === true ? constants.O_TRUNC : 0;
    const file = fileCall(() => reopenFile(mounted.file, accessOf(flags) | truncates));
    const tree = { readOnly: mounted.readOnly };
    return new Descriptor(this.#context, { file, tree, flags: { ...flags, mutateDirectory: false }, files: NO_FILES });
  }

  statAt(pathFlags: PathFlags, path: string): DescriptorStat {
    return this.#at(path, pathFlags.symlinkFollow === true, (resolved, mounted) =>
      fileCall(() => statOf(mounted?.file.stat() ?? statEntry(resolved))),
    );
  }

  metadataHashAt(pathFlags: PathFlags, path: string): MetadataHash {
    return this.#at(path, pathFlags.symlinkFollow === true, (resolved, mounted) =>
      fileCall(() => hashOf(mounted?.file.stat() ?? statEntry(resolved))),
    );
  }

  setTimesAt(pathFlags: PathFlags, path: string, access: NewTimestamp, modification: NewTimestamp): void {
    this.#at(path, pathFlags.symlinkFollow === true, (resolved, mounted) => {
      if (mounted?.readOnly ?? this.#tree.readOnly) throw fileFailure("read-only");
      fileCall(() => {
        const [atime, mtime] = timesFor(
          access,
          modification,
          this.#context.wallNow(),
          () => mounted?.file.stat() ?? statEntry(resolved),
        );
        if (resolved.mustBeDirectory) statEntry(resolved);
        if (mounted !== undefined) utimesSync(fdPath(mounted.file.fd), atime, mtime);
        else lutimesSync(resolved.path, atime, mtime);
      });
    });
  }

  createDirectoryAt(path: string): void {
    this.#changeAt(path, (resolved) => mkdirSync(resolved.path, { mode: DIRECTORY_MODE }));
  }

  removeDirectoryAt(path: string): void {
    this.#changeAt(path, (resolved) => rmdirSync(resolved.path));
  }

  unlinkFileAt(path: string): void {
    this.#changeAt(path, (resolved) => {
      if (resolved.mustBeDirectory) throw fileFailure("not-directory");
      unlinkSync(resolved.path);
    });
  }

  readlinkAt(path: string): string {
    return this.#at(path, false, (resolved, mounted) => {
      if (mounted !== undefined) throw fileFailure("invalid");
      return decodeName(fileCall(() => readlinkSync(resolved.path, "latin1")));
    });
  }

  /** A link that leads out could mislead other users of the volume; an absolute one always does. */
  symlinkAt(target: string, path: string): void {
    if (target.startsWith("/")) throw fileFailure("not-permitted");
    this.#changeAt(path, (resolved) => {
      if (resolved.mustBeDirectory) throw fileFailure(exists(resolved.path) ? "exist" : "no-entry");
      symlinkSync(target, resolved.path);
    });
  }

  linkAt(oldFlags: PathFlags, oldPath: string, newDescriptor: Descriptor, newPath: string): void {
    this.#betweenTwo(newDescriptor);
    this.#at(oldPath, oldFlags.symlinkFollow === true, (source, mounted) => {
      // Through a second name a read-only file could be written.
      if (mounted !== undefined) throw fileFailure("cross-device");
      newDescriptor.#changeAt(newPath, (target) => {
        requireDirectories(source, target);
        linkSync(source.path, target.path);
      });
    });
  }

  renameAt(oldPath: string, newDescriptor: Descriptor, newPath: string): void {
    this.#betweenTwo(newDescriptor);
    this.#changeAt(oldPath, (source) =>
      newDescriptor.#changeAt(newPath, (target) => {
        requireDirectories(source, target);
        renameSync(source.path, target.path);
      }),
    );
  }

  /** Resolves, runs, and closes again. */
  #at<T>(path: string, follow: boolean, run: (resolved: ResolvedPath, mounted: MountedFile | undefined) => T): T {
    this.#requireDirectory();
    using resolved = resolvePath(this.#file.fd, path, follow);
    const mounted = resolved.atRoot ? this.#files.get(resolved.name) : undefined;
    if (mounted !== undefined && resolved.mustBeDirectory) throw fileFailure("not-directory");
    return run(resolved, mounted);
  }

  /** A change of the directory's entries. Mounted files stay where they are, as in a container. */
  #changeAt(path: string, change: (resolved: ResolvedPath) => void): void {
    this.#at(path, false, (resolved, mounted) => {
      if (this.#tree.readOnly) throw fileFailure("read-only");
      if (mounted !== undefined) throw fileFailure("busy");
      fileCall(() => change(resolved));
    });
  }

  #betweenTwo(other: Descriptor): void {
    if (other.#tree !== this.#tree) throw fileFailure("cross-device");
  }

  #sync(call: (fd: number) => void): void {
    if (this.#file.type !== "directory") fileCall(() => call(this.#file.fd));
    else fileCall(() => withReopened(this.#file, call));
  }

  #requireDirectory(): void {
    if (this.#file.type !== "directory") throw fileFailure("not-directory");
  }

  #requireFile(): void {
    if (this.#file.type === "directory") throw fileFailure("is-directory");
  }

  #requireWritable(): void {
    this.#requireFile();
    if (this.#flags.write !== true) throw fileFailure("bad-descriptor");
  }

  #requireChangeable(): void {
    if (this.#tree.readOnly) throw fileFailure("read-only");
  }
}

export class DirectoryEntryStream extends HostResource {
  readonly #directory: Dir;
  readonly #file: OpenedFile;
  readonly #hidden: ReadonlySet<string>;
  readonly #mounted: DirectoryEntry[];

  constructor(context: StreamContext, file: OpenedFile, files: ReadonlyMap<string, MountedFile>) {
    super(context.handles.directoryStreams);
    // Names are read as Latin-1, so that those that are not UTF-8 are noticed.
    this.#directory = fileCall(() => opendirSync(fdPath(file.fd), { encoding: "latin1", bufferSize: DIRECTORY_BATCH }));
    this.#file = file.share();
    this.#hidden = new Set(files.keys());
    this.#mounted = [...files].map(([name, mounted]) => ({ name, type: mounted.file.type }));
  }

  readDirectoryEntry(): DirectoryEntry | undefined {
    for (;;) {
      const entry = fileCall(() => this.#directory.readSync());
      if (entry === null) return this.#mounted.shift();
      const name = decodeName(entry.name);
      if (!this.#hidden.has(name)) return { name, type: direntType(entry) };
    }
  }

  protected override closed(): void {
    this.#directory.closeSync();
    this.#file.release();
  }
}

/** Undefined: it is no error of a file. */
export const filesystemErrorCode = (error: HostError): unknown => error.codeIn("filesystem");

export const preopenedDirectories = (
  context: StreamContext,
  preopens: readonly Preopen[],
): readonly (readonly [Descriptor, string])[] =>
  preopens.map(({ guestPath, directory, tree, files }) => {
    const flags = { read: true, mutateDirectory: !tree.readOnly };
    return [new Descriptor(context, { file: directory.share(), tree, flags, files }), guestPath];
  });

function withReopened(directory: OpenedFile, call: (fd: number) => void): void {
  // A preopened directory is held by O_PATH, which cannot be synced.
  const reopenFile = new OpenedFile(openSync(fdPath(directory.fd), constants.O_RDONLY | constants.O_DIRECTORY));
  try {
    call(reopenFile.fd);
  } finally {
    reopenFile.release();
  }
}

/** A path with a trailing slash must name a directory. The kernel does not see the slash. */
function requireDirectories(source: ResolvedPath, target: ResolvedPath): void {
  if ((source.mustBeDirectory || target.mustBeDirectory) && !lstatSync(source.path).isDirectory()) {
    throw fileFailure("not-directory");
  }
}

function statEntry(resolved: ResolvedPath): BigIntStats {
  const stats = lstatSync(resolved.path, { bigint: true });
  if (resolved.mustBeDirectory && !stats.isDirectory()) throw fileFailure("not-directory");
  return stats;
}

/** Node's positions are doubles; files do not get that large. */
function fileOffset(offset: bigint): number {
  if (offset > BigInt(Number.MAX_SAFE_INTEGER)) throw fileFailure("file-too-large");
  return Number(offset);
}

function direntType(entry: Dirent): DescriptorType {
  if (entry.isFile()) return "regular-file";
  if (entry.isDirectory()) return "directory";
  if (entry.isSymbolicLink()) return "symbolic-link";
  if (entry.isCharacterDevice()) return "character-device";
  if (entry.isBlockDevice()) return "block-device";
  if (entry.isFIFO()) return "fifo";
  return entry.isSocket() ? "socket" : "unknown";
}
