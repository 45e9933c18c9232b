/** The machine that `edgectl doctor` examines and mends. A port, so that every state of a board can be tried. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statfsSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { arch, release } from "node:os";
import { dirname } from "node:path";
import { toPicoletError } from "@picolet/protocol/errors.ts";

export interface FreeSpace {
  readonly bytes: number;
  readonly totalBytes: number;
  readonly inodes: number;
}

export interface BoardMachine {
  /** As `process.arch` names it. */
  readonly architecture: string;
  /** `uname -r` */
  readonly kernel: string;
  readonly now: () => number;
  /** @returns `undefined` for a file that cannot be read */
  readonly read: (path: string) => string | undefined;
  /** @returns the names in a folder; none for a folder that cannot be read */
  readonly list: (path: string) => readonly string[];
  readonly exists: (path: string) => boolean;
  readonly freeSpace: (path: string) => FreeSpace | undefined;
  /** @returns standard output; `undefined` for a program that fails or is not there */
  readonly output: (program: string, ...args: readonly string[]) => string | undefined;
  /** @returns milliseconds until something accepts a connection, or why nothing does */
  readonly dial: (target: DialTarget) => Promise<number | string>;
  /** Replaces a file at once, so that a power cut leaves the old or the new one. @throws `failed` */
  readonly write: (path: string, content: string) => void;
}

export type DialTarget = { readonly path: string } | { readonly host: string; readonly port: number };

const PROGRAM_LIMIT_MS = 30_000;
const DIAL_LIMIT_MS = 10_000;

export class LocalMachine implements BoardMachine {
  readonly architecture = arch();
  readonly kernel = release();
  readonly now = (): number => Date.now();
  readonly exists = existsSync;

  read(path: string): string | undefined {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return undefined;
    }
  }

  list(path: string): readonly string[] {
    try {
      return readdirSync(path);
    } catch {
      return [];
    }
  }

  freeSpace(path: string): FreeSpace | undefined {
    try {
      const { bavail, blocks, bsize, ffree } = statfsSync(path);
      return { bytes: bavail * bsize, totalBytes: blocks * bsize, inodes: ffree };
    } catch {
      return undefined;
    }
  }

  output(program: string, ...args: readonly string[]): string | undefined {
    const { status, stdout } = spawnSync(program, args, { encoding: "utf8", timeout: PROGRAM_LIMIT_MS });
    return status === 0 ? stdout : undefined;
  }

  dial(target: DialTarget): Promise<number | string> {
    const start = performance.now();
    return new Promise((resolve) => {
      const socket = "path" in target ? connect(target.path) : connect(target.port, target.host);
      const end = (result: number | string): void => {
        socket.destroy();
        resolve(result);
      };
      socket.setTimeout(DIAL_LIMIT_MS, () => end(`no answer within ${DIAL_LIMIT_MS / 1000} s`));
      socket.once("connect", () => end(performance.now() - start));
      socket.once("error", ({ message }) => end(message));
    });
  }

  write(path: string, content: string): void {
    try {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(`${path}.new`, content, { flush: true });
      renameSync(`${path}.new`, path);
    } catch (error) {
      throw toPicoletError(error, "failed", `cannot write ${path}`);
    }
  }
}
