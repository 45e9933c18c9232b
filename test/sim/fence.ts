/**
 * The border between one life of the agent and the world. After a kill -9 nothing passes it any more: no awaited result
 * comes, and no listener is called.
 */
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Clock, Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { Action, DesiredPod, ImageService, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface ActionListener {
  applying(pod: DesiredPod, action: Action): void;
  failed(pod: DesiredPod, action: Action): void;
}

const never = <T>(): Promise<T> => new Promise<T>(() => undefined);

export class Fence {
  readonly #base: Clock;
  readonly #died: () => void;
  readonly #inFlight = new Set<AbortController>();
  readonly #timers = new AbortController();
  #dead = false;
  #sleeping = 0;
  /** How many more calls may pass; the one after that is the end, before or after its effect. */
  #callsLeft: number;
  readonly #afterEffect: boolean;

  constructor(
    components: { readonly clock: Clock; readonly died: () => void },
    init: { readonly calls: number; readonly afterEffect: boolean },
  ) {
    this.#base = components.clock;
    this.#died = components.died;
    this.#callsLeft = init.calls;
    this.#afterEffect = init.afterEffect;
  }

  get dead(): boolean {
    return this.#dead;
  }

  /** Timers and calls of this life that have not come to an end. */
  get pending(): number {
    return this.#sleeping + this.#inFlight.size;
  }

  kill(): void {
    if (this.#dead) return;
    this.#dead = true;
    this.#timers.abort();
    this.#died();
  }

  /** It lives on, however often it calls. */
  spare(): void {
    this.#callsLeft = Number.MAX_SAFE_INTEGER;
  }

  /** The peers notice that the caller is gone. */
  cutOff(): void {
    for (const call of this.#inFlight) call.abort();
    this.#inFlight.clear();
  }

  /** To be called between two things that happen at once. @returns whether it goes on. */
  step(): boolean {
    this.#callsLeft -= 1;
    if (this.#callsLeft === 0) this.kill();
    return !this.#dead;
  }

  call<T>(task: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    if (this.#dead) return never();
    const last = this.#callsLeft === 1;
    if (!(last && this.#afterEffect) && !this.step()) return never();
    const own = new AbortController();
    const onAbort = (): void => {
      // The agent waits for it no more, whether or not the world ever answers.
      this.#inFlight.delete(own);
      own.abort();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) own.abort();
    else this.#inFlight.add(own);
    const over = (): boolean => {
      signal.removeEventListener("abort", onAbort);
      this.#inFlight.delete(own);
      if (last && this.#afterEffect) this.kill();
      return this.#dead;
    };
    return new Promise<T>((resolve, reject) => {
      task(own.signal).then(
        (value) => over() || resolve(value),
        (error: unknown) => over() || reject(error),
      );
    });
  }

  clock(): Clock {
    return {
      monotonic: () => this.#base.monotonic(),
      wall: () => this.#base.wall(),
      sleep: (duration: Millis, signal: AbortSignal) => {
        if (this.#dead) return never();
        this.#sleeping += 1;
        const joined = joinSignals(signal, this.#timers.signal);
        return new Promise<void>((resolve, reject) => {
          const over = (): boolean => {
            this.#sleeping -= 1;
            joined[Symbol.dispose]();
            return this.#dead;
          };
          this.#base.sleep(duration, joined.signal).then(
            () => over() || resolve(),
            (error: unknown) => over() || reject(error),
          );
        });
      },
    };
  }

  /**
   * Passes calls on to the runtime.
   * @param listener called for an action as it is let through, and when its answer is an error
   */
  adapter(inner: RuntimeAdapter, listener: ActionListener): RuntimeAdapter {
    const call = <T>(task: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> =>
      this.call(task, signal);
    const fence = this;
    const images: ImageService = {
      list: (signal) => call((own) => inner.images.list(own), signal),
      status: (reference, signal) => call((own) => inner.images.status(reference, own), signal),
      pull: (reference, options, signal) => call((own) => inner.images.pull(reference, options, own), signal),
      remove: (id, signal) => call((own) => inner.images.remove(id, own), signal),
      import: (path, name, signal) => call((own) => inner.images.import(path, name, own), signal),
    };
    return {
      name: inner.name,
      images,
      status: (signal) => call((own) => inner.status(own), signal),
      list: (signal) => call((own) => inner.list(own), signal),
      inspect: (uid, signal) => call((own) => inner.inspect(uid, own), signal),
      apply: (pod, action, signal) =>
        call((own) => {
          listener.applying(pod, action);
          const applied = inner.apply(pod, action, own);
          applied.catch(() => listener.failed(pod, action));
          return applied;
        }, signal),
      async *hints(signal: AbortSignal): AsyncIterable<PodUid> {
        using joined = joinSignals(signal, fence.#timers.signal);
        for await (const uid of inner.hints?.(joined.signal) ?? []) {
          if (fence.dead) await never();
          yield uid;
        }
        if (fence.dead) await never();
      },
      reopenLog: (uid, id, signal) => call((own) => inner.reopenLog(uid, id, own), signal),
      stream: (uid, request, signal) => call((own) => inner.stream(uid, request, own), signal),
      execSync: (uid, id, command, timeout, signal) =>
        call((own) => inner.execSync(uid, id, command, timeout, own), signal),
      [Symbol.asyncDispose]: () => inner[Symbol.asyncDispose](),
    };
  }
}
