import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { ignore } from "@picolet/protocol/errors.ts";

/** Lets one process at a time work on what a file stands for. The kernel gives it back when its holder is killed. */
export class FileLock implements AsyncDisposable {
  readonly #holder: ChildProcess;

  private constructor(holder: ChildProcess) {
    this.#holder = holder;
  }

  /** Waits until no other process has the lock. Its folder must exist. */
  static async take(path: string): Promise<FileLock> {
    // It ends when its standard input does, and that ends with this process.
    const holder = spawn("flock", [path, "sh", "-c", "echo taken; exec cat"], { stdio: ["pipe", "pipe", "inherit"] });
    const ended = once(holder, "exit").then(() => Promise.reject(new Error(`cannot lock ${path}`)));
    await Promise.race([once(holder.stdout, "data"), ended]);
    ended.catch(ignore("the holder ends when this process gives the lock back"));
    return new FileLock(holder);
  }

  /** It is held until this process ends, which does not wait for it. */
  keep(): void {
    this.#holder.unref();
    for (const stream of [this.#holder.stdin, this.#holder.stdout]) (stream as Socket | null)?.unref();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#holder, "exit");
    this.#holder.stdin?.end();
    await exited;
  }
}
