/** The shell of a reader: runs the commands of documents one after the other, and keeps variables and folder. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

/**
 * A command that takes longer hangs. The slowest, a build, takes some 10 s on a quiet machine, and the machine is
 * shared.
 */
const COMMAND_LIMIT_MS = 120_000;

export interface Ended {
  readonly code: number;
  /** Standard output and error, as they came. */
  readonly output: string;
}

export class ReaderShell implements Disposable {
  readonly #bash: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  /** For the texts and outputs of commands. */
  readonly #folder: string;
  #count = 0;

  constructor(init: { readonly cwd: string; readonly folder: string; readonly env: NodeJS.ProcessEnv }) {
    this.#folder = init.folder;
    mkdirSync(init.folder);
    const bash = spawn("bash", ["--norc"], { cwd: init.cwd, env: init.env, stdio: ["pipe", "pipe", "inherit"] });
    this.#bash = bash;
    this.#lines = createInterface({ input: bash.stdout })[Symbol.asyncIterator]();
    // Job control: each command is a process group of its own, which Ctrl-C reaches.
    bash.stdin.write("set -m\n");
  }

  /** Runs it to its end. @throws when it takes too long */
  async run(text: string): Promise<Ended> {
    const path = this.#write(text);
    const answered = this.#tell(`source ${path} </dev/null >${path}.out 2>&1; printf 'ended %s\\n' $?`);
    const timer = setTimeout(() => this.#bash.kill("SIGKILL"), COMMAND_LIMIT_MS);
    const code = await answered.catch((cause: unknown) => {
      throw new Error(`"${text}" did not end:\n${readFileSync(`${path}.out`, "utf8")}`, { cause });
    });
    clearTimeout(timer);
    return { code, output: readFileSync(`${path}.out`, "utf8") };
  }

  /** Starts it, and leaves it running. */
  async start(text: string): Promise<RunningCommand> {
    const path = this.#write(text);
    // The subshell survives the signal that ends the command, and records the exit code.
    const job = `{ trap : INT TERM; source ${path}; echo $? >${path}.part; mv ${path}.part ${path}.code; }`;
    const pid = await this.#tell(`${job} </dev/null >${path}.out 2>&1 & printf 'started %s\\n' $!`);
    return new RunningCommand(text, path, pid);
  }

  #write(text: string): string {
    const path = join(this.#folder, String(this.#count));
    this.#count += 1;
    writeFileSync(path, `${text}\n`);
    writeFileSync(`${path}.out`, "");
    return path;
  }

  /** @returns the number that it answers */
  async #tell(line: string): Promise<number> {
    this.#bash.stdin?.write(`${line}\n`);
    const { value, done } = await this.#lines.next();
    const [, number] = /^(?:ended|started) (\d+)$/.exec(done === true ? "" : value) ?? [];
    if (number === undefined) throw new Error(`the shell answers "${value ?? ""}" and not the end of "${line}"`);
    return Number(number);
  }

  [Symbol.dispose](): void {
    this.#bash.kill("SIGKILL");
  }
}

/** A command that runs until a reader ends it. */
export class RunningCommand {
  readonly text: string;
  readonly #path: string;
  readonly #pid: number;

  constructor(text: string, path: string, pid: number) {
    this.text = text;
    this.#path = path;
    this.#pid = pid;
  }

  get output(): string {
    return readFileSync(`${this.#path}.out`, "utf8");
  }

  /** @throws when the command ends before, or takes too long */
  async until(fits: (output: string) => boolean): Promise<void> {
    await this.#changed(() => fits(this.output) || this.#code !== undefined);
    if (!fits(this.output)) throw new Error(`"${this.text}" ended with ${this.#code}:\n${this.output}`);
  }

  /** Sends the signal to all of its processes. @returns its exit code */
  async end(signal: "SIGINT" | "SIGTERM"): Promise<number> {
    process.kill(-this.#pid, signal);
    await this.#changed(() => this.#code !== undefined);
    return this.#code ?? -1;
  }

  get #code(): number | undefined {
    return existsSync(`${this.#path}.code`) ? Number(readFileSync(`${this.#path}.code`, "utf8")) : undefined;
  }

  async #changed(isOver: () => boolean): Promise<void> {
    const watcher = watch(join(this.#path, ".."));
    try {
      const signal = AbortSignal.timeout(COMMAND_LIMIT_MS);
      while (!isOver()) await once(watcher, "change", { signal });
    } catch (cause) {
      throw new Error(`"${this.text}" says only:\n${this.output}`, { cause });
    } finally {
      watcher.close();
    }
  }
}
