/**
 * Commits changes that come close together in one transaction. A change is answered when it is on disk, so that a power
 * cut loses no acknowledged change.
 */
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import { ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import type { BucketTables } from "./bucket-tables.ts";
import type { KeyvalueFile } from "./keyvalue-file.ts";

/**
 * From one commit to the next. Each writes two pages to the log at least, 8 KiB: a component that sets in a loop wears
 * the flash with 0.8 MB a second, until the agent's flash budget stretches this.
 */
const INTERVAL_MS = 10;
/** Each of the board's runners has one change under way at the most. */
const MAX_WAITING = 256;

type Change = (tables: BucketTables) => () => void;

export class GroupCommit {
  readonly #clock: Pick<Clock, "monotonic" | "sleep">;
  readonly #file: KeyvalueFile;
  readonly #disposed: AbortSignal;
  #waiting: { readonly change: Change; readonly fail: (error: unknown) => void }[] = [];
  #committedAt: MonotonicMs | undefined;
  #stretch = 1;

  constructor(clock: Pick<Clock, "monotonic" | "sleep">, file: KeyvalueFile, disposed: AbortSignal) {
    this.#clock = clock;
    this.#file = file;
    this.#disposed = disposed;
  }

  /** @param factor 1 or more: commits come that much less often. */
  stretch(factor: number): void {
    this.#stretch = factor;
  }

  /**
   * Resolves with what `work` returned once it is on the disk. `work` must have changed nothing when it throws.
   * @throws what `work` throws, ServiceRefusal `storage` when the disk does not take it
   */
  submit<R>(work: (tables: BucketTables) => R): Promise<R> {
    if (this.#waiting.length >= MAX_WAITING) throw new ServiceRefusal("unavailable");
    return new Promise<R>((resolve, reject) => {
      const change: Change = (tables) => {
        try {
          const result = work(tables);
          return () => resolve(result);
        } catch (error) {
          // An error of the database ends the transaction.
          if (!(error instanceof ServiceRefusal)) throw error;
          return () => reject(error);
        }
      };
      this.#waiting.push({ change, fail: reject });
      if (this.#waiting.length === 1) void this.#commitSoon();
    });
  }

  /** Commits all waiting changes now. */
  flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    if (waiting.length === 0) return;
    this.#committedAt = this.#clock.monotonic();
    const answers: (() => void)[] = [];
    try {
      this.#file.durably((tables) => {
        for (const { change } of waiting) answers.push(change(tables));
      });
    } catch (error) {
      for (const { fail } of waiting) fail(error);
      return;
    }
    for (const answer of answers) answer();
  }

  async #commitSoon(): Promise<void> {
    const since =
      this.#committedAt === undefined ? Number.POSITIVE_INFINITY : this.#clock.monotonic() - this.#committedAt;
    const wait = Math.max(0, INTERVAL_MS * this.#stretch - since);
    await this.#clock
      .sleep(millis(wait), this.#disposed)
      .catch(ignore("what is open is committed at once when the store closes"));
    this.flush();
  }
}
