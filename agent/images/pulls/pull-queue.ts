import { cancelled, onAbort, rejectOnAbort } from "@picolet/protocol/async/abort.ts";
import { type FairSlot, FairSlots } from "@picolet/protocol/async/fair-slots.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { ImageInfo } from "@picolet/runtime-contract/runtime-adapter.ts";

/**
 * Different images of one runtime that wait or are being pulled. A node has 110 pods at most unless configured
 * otherwise, most of one container, and a pod pulls one image at a time. A pull beyond is refused and tried again
 * later, as every failed pull is.
 */
export const MAX_PENDING_PULLS = 256;

export interface Pulled {
  readonly image: ImageInfo;
  /** Without the wait for its turn. */
  readonly duration: Millis;
}

interface Job {
  readonly key: string;
  readonly abort: AbortController;
  readonly result: Promise<Pulled>;
  waiters: number;
  hasEnded: boolean;
}

/** Contended: a pull from another registry waits for this one's place. A pull may leave its place and go on. */
export type PullPlace = Omit<FairSlot, "index">;

export type PullTask = (signal: AbortSignal, place: PullPlace) => Promise<ImageInfo>;

/**
 * Queues the pulls of one runtime. It runs as many at a time as is allowed, and takes registries in turn; a registry
 * that did not answer lately comes last. Callers that want the same image share one pull, which is cancelled when the
 * last of them has left.
 */
export class PullQueue {
  readonly #clock: Clock;
  readonly #places: FairSlots;
  readonly #jobs = new Map<string, Job>();

  constructor(components: { readonly clock: Clock }, init: { readonly maxParallel: number }) {
    this.#clock = components.clock;
    this.#places = new FairSlots({ total: init.maxParallel, what: "image pull" });
  }

  /**
   * @param registry that is asked
   * @throws what `pull` throws, to each who shares it; `resource_exhausted` when too many wait.
   */
  async pull(key: string, registry: string, pull: PullTask, signal: AbortSignal): Promise<Pulled> {
    if (signal.aborted) throw cancelled("the image pull");
    const job = this.#jobs.get(key) ?? this.#enqueue(key, registry, pull);
    job.waiters += 1;
    try {
      return await rejectOnAbort(job.result, signal, "the image pull");
    } finally {
      job.waiters -= 1;
      if (job.waiters === 0 && !job.hasEnded) this.#giveUp(job);
    }
  }

  #enqueue(key: string, registry: string, pull: PullTask): Job {
    if (this.#jobs.size >= MAX_PENDING_PULLS)
      throw new PicoletError("resource_exhausted", `more than ${MAX_PENDING_PULLS} images wait to be pulled`, {
        retryable: true,
      });
    const abort = new AbortController();
    const result = this.#run(registry, pull, abort.signal);
    const job: Job = { key, abort, result, waiters: 0, hasEnded: false };
    const end = (): void => this.#end(job);
    // All callers may have left; without this the failure would be an unhandled rejection.
    result.then(end, end);
    this.#jobs.set(key, job);
    return job;
  }

  async #run(registry: string, pull: PullTask, signal: AbortSignal): Promise<Pulled> {
    const place = await this.#places.take(registry, signal);
    // One that is given up holds no place any more, even when the runtime does not stop at once.
    using _leave = onAbort(signal, () => place[Symbol.dispose]());
    const startedAt = this.#clock.monotonic();
    try {
      const image = await pull(signal, place);
      place.report(true);
      return { image, duration: millis(this.#clock.monotonic() - startedAt) };
    } catch (error) {
      if (!signal.aborted) place.report(!isPicoletError(error, "unavailable"));
      throw error;
    } finally {
      place[Symbol.dispose]();
    }
  }

  /** Cancels the job; later callers start a new one. */
  #giveUp(job: Job): void {
    job.abort.abort(cancelled("the image pull"));
    this.#end(job);
  }

  #end(job: Job): void {
    job.hasEnded = true;
    if (this.#jobs.get(job.key) === job) this.#jobs.delete(job.key);
  }
}
