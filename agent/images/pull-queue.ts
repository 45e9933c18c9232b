import { cancelled } from "../../protocol/async/abort.ts";
import { PicoletError } from "../../protocol/errors.ts";
import type { Clock, Millis } from "../../protocol/ports.ts";
import { millis } from "../../protocol/ports.ts";
import type { ImageInfo } from "../../runtime-adapters/contract/runtime-adapter.ts";

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
  readonly begin: () => void;
  waiters: number;
  state: "waiting" | "running" | "ended";
}

/**
 * Pulls of one runtime, as many at a time as is allowed, first come first served. Who wants an image that somebody
 * is waiting for already shares that pull; it is given up when nobody wants it any more.
 */
export class PullQueue {
  readonly #clock: Clock;
  readonly #maxParallel: number;
  readonly #jobs = new Map<string, Job>();
  /** At most MAX_PENDING_PULLS, because each is in `#jobs`. */
  readonly #waiting: Job[] = [];
  #running = 0;

  constructor(components: { readonly clock: Clock }, init: { readonly maxParallel: number }) {
    this.#clock = components.clock;
    this.#maxParallel = init.maxParallel;
  }

  /** @throws what `pull` throws, to each who shares it; `resource_exhausted` when too many wait. */
  async pull(key: string, pull: (signal: AbortSignal) => Promise<ImageInfo>, signal: AbortSignal): Promise<Pulled> {
    if (signal.aborted) throw cancelled("the image pull");
    const job = this.#jobs.get(key) ?? this.#enqueue(key, pull);
    job.waiters += 1;
    try {
      return await settledOrAborted(job.result, signal);
    } finally {
      job.waiters -= 1;
      if (job.waiters === 0 && job.state !== "ended") this.#giveUp(job);
    }
  }

  #enqueue(key: string, pull: (signal: AbortSignal) => Promise<ImageInfo>): Job {
    if (this.#jobs.size >= MAX_PENDING_PULLS)
      throw new PicoletError("resource_exhausted", `more than ${MAX_PENDING_PULLS} images wait to be pulled`, {
        retryable: true,
      });
    const { promise, resolve, reject } = Promise.withResolvers<Pulled>();
    // Nobody may be left to hear of a failure; it is no less handled for that.
    promise.catch(() => undefined);
    const abort = new AbortController();
    const job: Job = {
      key,
      abort,
      result: promise,
      begin: () => {
        const startedAt = this.#clock.monotonic();
        pull(abort.signal)
          .then((image) => resolve({ image, duration: millis(this.#clock.monotonic() - startedAt) }), reject)
          .finally(() => this.#end(job));
      },
      waiters: 0,
      state: "waiting",
    };
    this.#jobs.set(key, job);
    this.#waiting.push(job);
    this.#fill();
    return job;
  }

  #fill(): void {
    while (this.#running < this.#maxParallel) {
      const job = this.#waiting.shift();
      if (job === undefined) return;
      job.state = "running";
      this.#running += 1;
      job.begin();
    }
  }

  /** Whoever wants the image from now on starts anew; a runtime that does not stop at once holds no place any more. */
  #giveUp(job: Job): void {
    const index = this.#waiting.indexOf(job);
    if (index >= 0) this.#waiting.splice(index, 1);
    job.abort.abort(cancelled("the image pull"));
    this.#end(job);
  }

  #end(job: Job): void {
    if (job.state === "ended") return;
    if (job.state === "running") this.#running -= 1;
    job.state = "ended";
    if (this.#jobs.get(job.key) === job) this.#jobs.delete(job.key);
    // Not at once: when everybody leaves, the next in line is about to leave too and must not be begun for that.
    queueMicrotask(() => this.#fill());
  }
}

function settledOrAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(cancelled("the image pull"));
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
