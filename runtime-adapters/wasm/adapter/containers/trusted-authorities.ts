/**
 * The authorities that components trust in https requests beside the built-in ones: a file of the node, read when a
 * component starts.
 */
import { describeError, ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";

const CONFIG_ERROR = "CreateContainerConfigError";

export class TrustedAuthorities {
  readonly #log: Log;
  readonly #path: string | undefined;
  #problem: string | undefined;
  #looked: Promise<void> | undefined;

  /** @param path absolute; undefined: only the built-in authorities are trusted */
  constructor(log: Log, path: string | undefined) {
    this.#log = log;
    this.#path = path;
  }

  /** The problem of the file when it was last read. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Reads the file once before it is needed, so that its problem is logged when the agent starts. */
  async check(): Promise<void> {
    const checked = ignore("`problem` has it");
    this.#looked ??= this.read().then(checked, checked);
    await this.#looked;
  }

  /**
   * PEM; undefined: there are none. @throws `invalid` and CreateContainerConfigError: a request would only fail later,
   * and say less
   */
  async read(): Promise<string | undefined> {
    if (this.#path === undefined) return undefined;
    const { readAuthorities } = await import("./authorities-file.ts");
    try {
      const pem = readAuthorities(this.#path);
      this.#found(undefined);
      return pem;
    } catch (error) {
      if (!isPicoletError(error)) throw error;
      const problem = describeError(error);
      this.#found(problem);
      throw new PicoletError(error.code, problem, { retryable: true, reason: CONFIG_ERROR });
    }
  }

  #found(problem: string | undefined): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    if (problem === undefined) this.#log.info("the authorities for https requests of components can be used again");
    else this.#log.error("components that ask by https cannot start", { problem });
  }
}
