/** Reads the data of a page. The token, if one is needed, is kept in memory alone. */
import { ignore } from "@picolet/protocol/errors.ts";
import { type PodAction, podActionOf, podActionRequest } from "@picolet/protocol/page/pod-actions.ts";

export class RequestFailure extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** A longer line of a stream is cut: it would be no event of ours. */
const MAX_LINE_LENGTH = 1024 * 1024;

export class PageClient {
  readonly #base: string;
  readonly #token: () => string;

  /** @param base ends with a slash; relative to the page. @param token "": none */
  constructor(base: string, token: () => string) {
    this.#base = base;
    this.#token = token;
  }

  below(path: string): PageClient {
    return new PageClient(this.#base + path, this.#token);
  }

  async json<T>(path: string, signal: AbortSignal): Promise<T> {
    return (await (await this.#open(path, signal)).json()) as T;
  }

  get hasToken(): boolean {
    return this.#token() !== "";
  }

  /** Restarts or deletes a pod. @returns what has become of it, as a sentence. @throws RequestFailure */
  async change(action: PodAction, signal: AbortSignal): Promise<string> {
    const { method, path } = podActionRequest(action);
    // A board may say anything; another address must not become of it.
    if (podActionOf(method, path) === undefined) throw new Error("this is no name of a pod");
    const { message = "" } = (await (await this.#open(path, signal, method)).json()) as { readonly message?: string };
    return message.slice(0, MAX_MESSAGE_LENGTH);
  }

  /** The pieces of a text as they come. */
  async *pieces(path: string, signal: AbortSignal): AsyncGenerator<string> {
    const { body } = await this.#open(path, signal);
    if (body === null) return;
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield value;
      }
    } finally {
      await reader.cancel().catch(ignore("the stream is over either way"));
    }
  }

  /** One JSON value a line, those of a piece together. */
  async *lines<T>(path: string, signal: AbortSignal): AsyncGenerator<readonly T[]> {
    let rest = "";
    for await (const piece of this.pieces(path, signal)) {
      const lines = (rest + piece).split("\n");
      rest = (lines.pop() ?? "").slice(0, MAX_LINE_LENGTH);
      const values = lines.filter((line) => line !== "").map((line) => JSON.parse(line) as T);
      if (values.length > 0) yield values;
    }
  }

  async #open(path: string, signal: AbortSignal, method = "GET"): Promise<Response> {
    const token = this.#token();
    const headers: Record<string, string> = token === "" ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(this.#base + path, {
      method,
      signal,
      headers,
      credentials: "omit",
      redirect: "error",
    });
    if (response.ok) return response;
    throw new RequestFailure(response.status, messageOf(await response.text(), response.status));
  }
}

const MAX_MESSAGE_LENGTH = 500;

function messageOf(body: string, status: number): string {
  try {
    const { error, message } = JSON.parse(body) as {
      readonly error?: { readonly message?: string };
      readonly message?: string;
    };
    return (error?.message ?? message ?? `answer ${status}`).slice(0, MAX_MESSAGE_LENGTH);
  } catch {
    return (body.trim() || `answer ${status}`).slice(0, MAX_MESSAGE_LENGTH);
  }
}
