/**
 * Calls of an API server over one kubeconfig. Objects travel as plain JSON: the generated models of the client library
 * drop fields that they do not know, and a conformance test is about such fields. Types of the library are used for
 * manifests; answers have times as text.
 */
import { once } from "node:events";
import type { IncomingMessage, RequestOptions } from "node:http";
import { Agent, request as httpsRequest } from "node:https";
import { PassThrough, type Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { Exec, KubeConfig, type V1Status } from "@kubernetes/client-node";
import { type ClientOptions, WebSocket } from "ws";

/** An API server that says nothing for so long is gone. */
const REQUEST_LIMIT_MS = 60_000;
const WATCH_RETRY_MS = 500;

export type PatchType = "merge" | "strategic-merge" | "json";

export interface CallOptions {
  readonly query?: Readonly<Record<string, string>>;
  readonly contentType?: string;
}

/** An API server's error answer. */
export class ApiError extends Error {
  readonly code: number;
  readonly reason: string;

  constructor(code: number, reason: string, message: string) {
    super(`${code} ${reason}: ${message}`);
    this.code = code;
    this.reason = reason;
  }
}

export interface ExecResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

type WatchType = "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";

interface ObjectList<T> {
  readonly metadata: { readonly resourceVersion: string };
  readonly items: readonly T[];
}

export interface WatchObserver<T> {
  readonly onList: (objects: readonly T[]) => void;
  readonly onChange: (deleted: boolean, object: T) => void;
}

export class KubeApi implements Disposable {
  readonly #config: KubeConfig;
  readonly #server: URL;
  readonly #options: RequestOptions;
  readonly #agent: Agent;

  private constructor(config: KubeConfig, server: URL, options: RequestOptions) {
    this.#config = config;
    this.#server = server;
    const { agent: _, ...rest } = options;
    this.#options = rest;
    const { ca, cert, key, rejectUnauthorized } = options as ClientOptions;
    const tls = { ca, cert, key, ...(rejectUnauthorized === undefined ? {} : { rejectUnauthorized }) };
    this.#agent = new Agent({ keepAlive: true, ...tls });
  }

  static async open(kubeconfig: string): Promise<KubeApi> {
    const config = new KubeConfig();
    config.loadFromFile(kubeconfig);
    const cluster = config.getCurrentCluster();
    if (cluster === null) throw new Error(`${kubeconfig} has no current cluster`);
    const options: RequestOptions = {};
    await config.applyToHTTPSOptions(options);
    return new KubeApi(config, new URL(cluster.server), options);
  }

  async call<T>(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<T> {
    const response = await this.#send(method, path, body, options);
    const text = await textOf(response);
    if ((response.statusCode ?? 500) < 300) return JSON.parse(text) as T;
    throw errorOf(response.statusCode ?? 500, text);
  }

  async get<T>(path: string, query: Readonly<Record<string, string>> = {}): Promise<T> {
    return await this.call<T>("GET", path, undefined, { query });
  }

  async patch<T>(path: string, patch: unknown, type: PatchType = "merge"): Promise<T> {
    return await this.call<T>("PATCH", path, patch, { contentType: `application/${type}-patch+json` });
  }

  /** An answer that is no object: logs, the kubelet's own pages. */
  async text(path: string, query: Readonly<Record<string, string>> = {}): Promise<string> {
    const response = await this.#send("GET", path, undefined, { query });
    const text = await textOf(response);
    if ((response.statusCode ?? 500) < 300) return text;
    throw errorOf(response.statusCode ?? 500, text);
  }

  /** As it comes; ends with `signal`. */
  async *stream(path: string, query: Readonly<Record<string, string>>, signal: AbortSignal): AsyncIterable<string> {
    const response = await this.#send("GET", path, undefined, { query }, signal);
    if ((response.statusCode ?? 500) >= 300) throw errorOf(response.statusCode ?? 500, await textOf(response));
    response.setEncoding("utf8");
    for await (const piece of response) yield String(piece);
  }

  /**
   * Calls `onList` with the present objects, then `onChange` for each change, until `signal`; a watch that ends begins
   * again.
   */
  watch<T>(path: string, observer: WatchObserver<T>, signal: AbortSignal): void {
    const follow = async (): Promise<void> => {
      const { metadata, items } = await this.get<ObjectList<T>>(path);
      observer.onList(items);
      const query = { watch: "true", resourceVersion: metadata.resourceVersion };
      let rest = "";
      for await (const piece of this.stream(path, query, signal)) {
        const lines = (rest + piece).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          const { type, object } = JSON.parse(line) as { type: WatchType; object: T };
          if (type === "ERROR") return;
          if (type !== "BOOKMARK") observer.onChange(type === "DELETED", object);
        }
      }
    };
    void (async () => {
      while (!signal.aborted) {
        try {
          await follow();
        } catch {
          // It is over, or cannot be opened now: then again, but not as fast as the server can refuse it.
          if (!signal.aborted) await pause(WATCH_RETRY_MS);
        }
      }
    })();
  }

  /** Runs `command` and waits for its end. */
  async exec(namespace: string, pod: string, container: string, command: readonly string[]): Promise<ExecResult> {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const [out, err] = [textOf(stdout), textOf(stderr)];
    const done = Promise.withResolvers<V1Status>();
    const exec = new Exec(this.#config);
    const socket = await exec.exec(namespace, pod, container, [...command], stdout, stderr, null, false, done.resolve);
    socket.onclose = () => done.reject(new Error(`exec of ${command.join(" ")} was cut off`));
    const status = await done.promise;
    stdout.end();
    stderr.end();
    return { code: exitCodeOf(status), stdout: await out, stderr: await err };
  }

  /** @param path with its query @param protocols the first that the server takes is the one */
  async webSocket(path: string, protocols: readonly string[]): Promise<WebSocket> {
    const url = new URL(path, this.#server);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url, [...protocols], this.#options as ClientOptions);
    await once(socket, "open", { signal: AbortSignal.timeout(REQUEST_LIMIT_MS) });
    return socket;
  }

  async #send(
    method: string,
    path: string,
    body: unknown,
    { query = {}, contentType = "application/json" }: CallOptions,
    signal?: AbortSignal,
  ): Promise<IncomingMessage> {
    const url = new URL(path, this.#server);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const { port, pathname, search } = url;
    const hostname = url.hostname.replace(/^\[|\]$/g, "");
    const text = body === undefined ? "" : JSON.stringify(body);
    const headers = {
      ...this.#options.headers,
      Accept: "application/json, */*",
      // Node gives the body of a DELETE no length by itself.
      ...(text === "" ? {} : { "Content-Type": contentType, "Content-Length": String(Buffer.byteLength(text)) }),
    };
    const request = httpsRequest({
      ...this.#options,
      agent: this.#agent,
      ...{ method, hostname, port, path: `${pathname}${search}`, headers },
      signal: signal ?? AbortSignal.timeout(REQUEST_LIMIT_MS),
    });
    request.end(text);
    const [response] = (await once(request, "response")) as [IncomingMessage];
    return response;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}

async function textOf(stream: Readable): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of stream) pieces.push(Buffer.from(piece));
  return Buffer.concat(pieces).toString("utf8");
}

function errorOf(code: number, text: string): ApiError {
  try {
    const status = JSON.parse(text) as V1Status;
    return new ApiError(code, status.reason ?? "", status.message ?? text);
  } catch {
    return new ApiError(code, "", text);
  }
}

/** @throws when it failed otherwise than by its exit code */
function exitCodeOf(status: V1Status): number {
  if (status.status === "Success") return 0;
  const code = status.details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
  if (code === undefined) throw new Error(`exec failed: ${status.message}`);
  return Number(code);
}
