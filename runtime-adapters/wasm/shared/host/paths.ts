/**
 * Resolves paths inside one directory so that nothing outside can be reached, even while others change the tree. Each
 * component is opened below the one before with O_NOFOLLOW, symbolic links are read and walked here, and `..` is taken
 * from our own stack, never from the kernel. A directory that is moved away during the walk is left by the way it was
 * entered. Linux resolves `/proc/self/fd/<n>/<name>` below the open directory n, which is openat(2) for callers that
 * only have paths.
 */
import { closeSync, constants, openSync, readlinkSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type FileErrorCode, fileErrorCode, fileFailure } from "../resources/failure.ts";

/** Not among Node's constants; the same on all of Linux' architectures that Node runs on. */
export const O_PATH = 0o10000000;

/** Linux' PATH_MAX. */
const MAX_PATH_BYTES = 4096;
/** Linux' own number of symbolic links in one resolution. */
const MAX_LINKS = 40;
/** Directories below the root held open by one resolution; deeper paths are refused as too long. */
const MAX_DEPTH = 256;

export const fdPath = (fd: number): string => `/proc/self/fd/${fd}`;
export const entryPath = (directory: number, name: string): string => `/proc/self/fd/${directory}/${name}`;

/** The last directory on a path and the name in it. Disposing closes the directories opened on the way. */
export class ResolvedPath implements Disposable {
  /** An open directory. */
  readonly directory: number;
  /** One component; `.` for the directory itself. Never `..`, never a path. */
  readonly name: string;
  /** True when the path ended in a slash or a dot, so that it must name a directory. */
  readonly mustBeDirectory: boolean;
  /** True when `directory` is the root that the path started from. */
  readonly atRoot: boolean;
  readonly #opened: readonly number[];

  constructor(root: number, opened: readonly number[], name: string, mustBeDirectory: boolean) {
    this.directory = opened.at(-1) ?? root;
    this.name = name;
    this.mustBeDirectory = mustBeDirectory;
    this.atRoot = opened.length === 0;
    this.#opened = opened;
  }

  get path(): string {
    return entryPath(this.directory, this.name);
  }

  [Symbol.dispose](): void {
    for (const fd of this.#opened) closeSync(fd);
  }
}

/**
 * @param root an open directory; O_PATH is enough
 * @param followLast whether a symbolic link at the end is followed
 * @throws Failure with `not-permitted` for a path that leads out, else with Linux' error
 */
export function resolvePath(root: number, path: string, followLast: boolean): ResolvedPath {
  const walk = new Walk(root, path);
  try {
    return walk.run(followLast);
  } catch (error) {
    walk.close();
    throw error;
  }
}

class Walk {
  readonly #root: number;
  readonly #opened: number[] = [];
  /** Components still to walk, the next one last. */
  readonly #pending: string[] = [];
  #mustBeDirectory = false;
  #links = 0;

  constructor(root: number, path: string) {
    this.#root = root;
    if (path === "") throw fileFailure("no-entry");
    this.#push(path);
  }

  run(followLast: boolean): ResolvedPath {
    for (;;) {
      const name = this.#pending.pop();
      if (name === undefined) return new ResolvedPath(this.#root, this.#opened, ".", true);
      if (name === "..") this.#leave();
      else if (this.#pending.length > 0) this.#enter(name);
      // "link/" names the target of the link, also where links are not followed.
      else if (!(followLast || this.#mustBeDirectory) || !this.#follow(name)) {
        return new ResolvedPath(this.#root, this.#opened, name, this.#mustBeDirectory);
      }
    }
  }

  close(): void {
    for (const fd of this.#opened) closeSync(fd);
  }

  get #current(): number {
    return this.#opened.at(-1) ?? this.#root;
  }

  #push(path: string): void {
    if (path.startsWith("/")) throw fileFailure("not-permitted");
    if (Buffer.byteLength(path) >= MAX_PATH_BYTES) throw fileFailure("name-too-long");
    if (path.includes("\0")) throw fileFailure("invalid");
    const components = path.split("/").filter((each) => each !== "" && each !== ".");
    // Only the end of the whole path decides about its target.
    if (this.#pending.length === 0 && /(?:^|\/)\.?$/.test(path)) this.#mustBeDirectory = true;
    this.#pending.push(...components.reverse());
  }

  #leave(): void {
    const fd = this.#opened.pop();
    if (fd === undefined) throw fileFailure("not-permitted");
    closeSync(fd);
  }

  #enter(name: string): void {
    if (this.#opened.length >= MAX_DEPTH) throw fileFailure("name-too-long");
    const flags = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
    try {
      this.#opened.push(openSync(entryPath(this.#current, name), flags));
    } catch (error) {
      // A symbolic link is no directory either.
      if (errnoOf(error) !== "ENOTDIR" && errnoOf(error) !== "ELOOP") throw fileFailure(fileErrorCode(error));
      if (!this.#follow(name)) throw fileFailure("not-directory");
    }
  }

  /** @returns whether it is a symbolic link, whose target is walked next */
  #follow(name: string): boolean {
    const target = readLink(entryPath(this.#current, name));
    if (target === undefined) return false;
    this.#links += 1;
    if (this.#links > MAX_LINKS) throw fileFailure("loop");
    if (target === "") throw fileFailure("no-entry");
    this.#push(target);
    return true;
  }
}

/** `undefined` when there is no symbolic link. */
function readLink(path: string): string | undefined {
  try {
    return decodeName(readlinkSync(path, "latin1"));
  } catch (error) {
    const code = errnoOf(error);
    // It is no link, or does not exist. The operation on the name reports that.
    if (code === "EINVAL" || code === "ENOENT") return undefined;
    throw code === "" ? error : fileFailure(fileErrorCode(error));
  }
}

const ILLEGAL: FileErrorCode = "illegal-byte-sequence";

/** A file name read as Latin-1, so that no byte is lost, as the UTF-8 that WASI wants. */
export function decodeName(latin1: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(latin1, "latin1"));
  } catch {
    throw fileFailure(ILLEGAL);
  }
}
