/** A folder that is copied to a machine as it is, and runs there: `dist/board`, `dist/hub`. */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { isNativeFor, type Platform } from "./platform-parts.ts";

export class Distribution {
  readonly root: string;
  readonly #platform: Platform;
  readonly #files = new Set<string>();

  constructor(root: string, platform: Platform) {
    this.root = root;
    this.#platform = platform;
  }

  write(path: string, content: string | Uint8Array, mode = 0o644): void {
    const target = this.#target(path);
    writeFileSync(target, content);
    chmodSync(target, mode);
  }

  /** A file, or a folder with all that is in it. @throws `corrupt` for machine code of another platform */
  add(path: string, source: string): void {
    if (statSync(source).isDirectory()) {
      for (const name of readdirSync(source)) this.add(join(path, name), join(source, name));
      return;
    }
    if (isNativeFor(this.#platform, source) === false)
      throw new PicoletError("corrupt", `${source} is not for ${this.#platform}`);
    place(source, this.#target(path));
  }

  /** Removes what an earlier build left. */
  prune(): void {
    for (const entry of readdirSync(this.root, { recursive: true, withFileTypes: true }).reverse()) {
      const path = join(entry.parentPath, entry.name);
      if (entry.isDirectory()) removeIfEmpty(path);
      else if (!this.#files.has(relative(this.root, path))) rmSync(path);
    }
  }

  #target(path: string): string {
    const target = join(this.root, path);
    this.#files.add(relative(this.root, target));
    mkdirSync(dirname(target), { recursive: true });
    return target;
  }
}

/**
 * Running programs have the file mapped, so it is replaced, never written to. A file of npm's is linked: it is large.
 */
function place(source: string, target: string): void {
  if (existsSync(target) && isSame(source, target)) return;
  const temporary = `${target}.new`;
  rmSync(temporary, { force: true });
  if (!source.startsWith("node_modules/") || !linked(source, temporary)) copyFileSync(source, temporary);
  renameSync(temporary, target);
}

/** @returns false where it lies on another file system */
function linked(source: string, target: string): boolean {
  try {
    linkSync(source, target);
    return true;
  } catch {
    return false;
  }
}

function isSame(one: string, other: string): boolean {
  const [first, second] = [statSync(one), statSync(other)];
  if (first.dev === second.dev && first.ino === second.ino) return true;
  return first.size === second.size && readFileSync(one).equals(readFileSync(other));
}

function removeIfEmpty(folder: string): void {
  if (readdirSync(folder).length === 0) rmdirSync(folder);
}
