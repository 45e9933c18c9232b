/**
 * Long calculations of tests in a thread of their own: the test runner follows every promise that is made in its own
 * one, which makes code that is nothing but promises half as slow again, and holds on to some of them.
 */
import { once } from "node:events";
import { parentPort, Worker } from "node:worker_threads";

type Tasks = Readonly<Record<string, (...args: never[]) => Promise<unknown>>>;

interface Question {
  readonly name: string;
  readonly args: never[];
}

type Answer = { readonly value: unknown } | { readonly error: unknown };

/** Serves tasks, one after the other. Called by the module that the thread runs. */
export function serve(tasks: Tasks): void {
  parentPort?.on("message", ({ name, args }: Question) => {
    const done = tasks[name]?.(...args) ?? Promise.reject(new Error(`there is no task ${name}`));
    done.then(
      (value) => parentPort?.postMessage({ value }),
      (error: unknown) => parentPort?.postMessage({ error }),
    );
  });
}

/** @template T what the module hands to `serve` */
export class OwnThread<T extends Tasks> implements AsyncDisposable {
  readonly #worker: Worker;

  /** @param module its own URL */
  constructor(module: URL) {
    this.#worker = new Worker(module);
  }

  /** Runs one task at a time. Arguments and results are copied. */
  async run<Name extends keyof T & string>(
    name: Name,
    ...args: Parameters<T[Name]>
  ): Promise<Awaited<ReturnType<T[Name]>>> {
    const answered = once(this.#worker, "message") as Promise<[Answer]>;
    this.#worker.postMessage({ name, args });
    const [answer] = await answered;
    if ("error" in answer) throw answer.error;
    return answer.value as Awaited<ReturnType<T[Name]>>;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }
}
