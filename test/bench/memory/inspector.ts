/** The inspector of a process on Node that runs: opened by SIGUSR1, spoken to as a debugger does. */
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { WebSocket } from "ws";

/** Has Node choose a free port when the signal comes. */
const INSPECTABLE = { NODE_OPTIONS: "--inspect-port=0" };

/** Starts processes that the inspector can reach. */
export async function inspectable<T>(start: () => Promise<T>): Promise<T> {
  const before = process.env.NODE_OPTIONS;
  Object.assign(process.env, INSPECTABLE);
  try {
    return await start();
  } finally {
    if (before === undefined) delete process.env.NODE_OPTIONS;
    else process.env.NODE_OPTIONS = before;
  }
}

const OPEN_LIMIT_MS = 30_000;
const CALL_LIMIT_MS = 120_000;
const LOOK_MS = 50;

interface Answer {
  readonly id?: number;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
}

export class Inspector implements Disposable {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #listeners = new Map<string, (params: never) => void>();
  #calls = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data) => this.#take(JSON.parse(data.toString()) as Answer));
    socket.on("close", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error("the inspector is gone"));
    });
  }

  /** @param said all that the process has written to its standard error */
  static async open(pid: number, said: () => string): Promise<Inspector> {
    process.kill(pid, "SIGUSR1");
    const limit = performance.now() + OPEN_LIMIT_MS;
    for (;;) {
      const url = said().match(/Debugger listening on (ws:\S+)/)?.[1];
      if (url !== undefined) {
        const socket = new WebSocket(url, { perMessageDeflate: false });
        await once(socket, "open");
        return new Inspector(socket);
      }
      if (performance.now() > limit) throw new Error(`process ${pid} opened no inspector`);
      await delay(LOOK_MS);
    }
  }

  on<T>(event: string, listener: (params: T) => void): void {
    this.#listeners.set(event, listener as (params: never) => void);
  }

  async call<T>(method: string, params: object = {}): Promise<T> {
    this.#calls += 1;
    const answer = Promise.withResolvers<unknown>();
    this.#waiting.set(this.#calls, answer);
    this.#socket.send(JSON.stringify({ id: this.#calls, method, params }));
    const timer = setTimeout(() => answer.reject(new Error(`${method} takes too long`)), CALL_LIMIT_MS);
    try {
      return (await answer.promise) as T;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Evaluates an expression in the process, and returns the value as JSON. */
  async evaluate<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = await this.call<{
      readonly result: { readonly value: T };
      readonly exceptionDetails?: unknown;
    }>("Runtime.evaluate", { expression, returnByValue: true });
    if (exceptionDetails !== undefined) throw new Error(`${expression} failed: ${JSON.stringify(exceptionDetails)}`);
    return result.value;
  }

  #take({ id, method, params, result, error }: Answer): void {
    if (method !== undefined) this.#listeners.get(method)?.(params as never);
    if (id === undefined) return;
    const answer = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error === undefined) answer?.resolve(result);
    else answer?.reject(new Error(error.message));
  }

  [Symbol.dispose](): void {
    this.#socket.terminate();
  }
}
