/** One kubectl as a child process, with hands on its input and outputs. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type KubectlVersion, kubectlPath } from "@picolet/scripts/test/install-kubectl.ts";

/** Generous: the machine is shared. A kubectl that has not come to its end by then never will. */
const LIMIT_MS = 60_000;

export class Kubectl implements Disposable {
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #timer: NodeJS.Timeout;
  #wake = (): void => undefined;
  stdout: Buffer = Buffer.alloc(0);
  stderr = "";

  /** @param terminal runs it on a terminal of its own, as a user has it; @param env besides this process's own */
  constructor(
    version: KubectlVersion,
    flags: readonly string[],
    args: readonly string[],
    terminal = false,
    env: Readonly<Record<string, string>> = {},
  ) {
    const words = [kubectlPath(version), ...flags, "--kubeconfig=/dev/null", ...args];
    const quoted = words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
    const [program = "", ...rest] = terminal ? ["script", "-qec", quoted, "/dev/null"] : words;
    const child = spawn(program, rest, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env } });
    this.#child = child;
    this.#exited = once(child, "close").then(() => this.#wake());
    this.#timer = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
    child.stdout.on("data", (data: Buffer) => {
      this.stdout = Buffer.concat([this.stdout, data]);
      this.#wake();
    });
    child.stderr.on("data", (data: Buffer) => {
      this.stderr += data.toString("utf8");
      this.#wake();
    });
    // It may have ended before it read everything.
    child.stdin.on("error", () => undefined);
  }

  /** Until either output has `text`. @throws when it ends before */
  async says(text: string): Promise<void> {
    while (!this.stdout.includes(text) && !this.stderr.includes(text)) {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
        throw new Error(`kubectl never said ${text}: ${this.stdout.toString().slice(-500)} ${this.stderr.slice(-500)}`);
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  type(text: string | Buffer): void {
    this.#child.stdin?.write(text);
  }

  /** No more input. @returns its exit code; null when it was killed */
  async end(input?: string | Buffer): Promise<number | null> {
    this.#child.stdin?.end(input);
    return await this.exit();
  }

  async exit(): Promise<number | null> {
    await this.#exited;
    return this.#child.exitCode;
  }

  kill(signal: "SIGINT" | "SIGKILL"): void {
    this.#child.kill(signal);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#child.kill("SIGKILL");
  }
}
