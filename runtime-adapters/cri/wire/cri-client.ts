import { isAbsolute } from "node:path";
import { type ErrorCode, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { ContainerdServices } from "./containerd-services.ts";
import { GrpcClient, type GrpcMethod } from "./grpc-client.ts";
import { OptionalCalls } from "./optional-calls.ts";

export interface CriClientInit {
  /** `unix:///run/containerd/containerd.sock`, or the path alone. The socket need not exist yet. */
  readonly endpoint: string;
  /** The timeout of every call that names no other. */
  readonly requestTimeoutMs: number;
}

/** @param method of CRI, such as `RunPodSandbox`; @param error undefined: it succeeded */
export type CallObserver = (method: string, ms: number, error: unknown) => void;

/** Calls one CRI socket, each with a deadline. */
export class CriClient implements Disposable {
  readonly grpc: GrpcClient;
  /** containerd's own services beside CRI; other runtimes have none of them. */
  readonly containerd: ContainerdServices;
  readonly socketPath: string;
  readonly requestTimeoutMs: number;
  readonly #clock: Clock;
  readonly #observe: CallObserver | undefined;
  readonly #optional: OptionalCalls;

  /** @throws `invalid` for an endpoint that is no unix socket. */
  constructor(components: { readonly clock: Clock; readonly observe?: CallObserver | undefined }, init: CriClientInit) {
    this.#clock = components.clock;
    this.#observe = components.observe;
    this.#optional = new OptionalCalls(components.clock);
    this.socketPath = socketPathOf(init.endpoint);
    this.requestTimeoutMs = init.requestTimeoutMs;
    this.grpc = new GrpcClient(components, { path: this.socketPath });
    const { requestTimeoutMs } = init;
    this.containerd = new ContainerdServices({ clock: components.clock, grpc: this.grpc }, { requestTimeoutMs });
  }

  async call<Q, A>(
    method: GrpcMethod<Q, A>,
    request: Q,
    signal: AbortSignal,
    timeoutMs: number = this.requestTimeoutMs,
  ): Promise<A> {
    const observe = this.#observe;
    if (observe === undefined) return await this.grpc.unary(method, request, timeoutMs, signal);
    const began = this.#clock.monotonic();
    const report = (error: unknown): void =>
      observe(method.path.slice(method.path.lastIndexOf("/") + 1), this.#clock.monotonic() - began, error);
    try {
      const answer = await this.grpc.unary(method, request, timeoutMs, signal);
      report(undefined);
      return answer;
    } catch (error) {
      report(error);
      throw error;
    }
  }

  /** A call that not every runtime has. @returns undefined: this one has not */
  callIfOffered<Q, A>(method: GrpcMethod<Q, A>, request: Q, signal: AbortSignal): Promise<A | undefined> {
    return this.#optional.use(method.path, () => this.call(method, request, signal));
  }

  [Symbol.dispose](): void {
    this.grpc[Symbol.dispose]();
  }
}

function socketPathOf(endpoint: string): string {
  const path = endpoint.startsWith("unix://") ? endpoint.slice("unix://".length) : endpoint;
  if (isAbsolute(path)) return path;
  throw new PicoletError("invalid", `cannot use the endpoint ${endpoint}: it must be unix:// and an absolute path`);
}

/** When there is no runtime at all, says so in one sentence with what to do, for any call. */
function missingRuntime(error: unknown): string | undefined {
  if (!isPicoletError(error)) return undefined;
  if (error.code === "unimplemented" && /^unknown service runtime\.v1\./.test(error.message)) {
    return 'containerd has its CRI plugin switched off, as Docker installs it: remove "cri" from disabled_plugins in /etc/containerd/config.toml and restart containerd (1.6 or newer)';
  }
  const { code, address } = (error.cause ?? {}) as { readonly code?: unknown; readonly address?: unknown };
  if (error.code !== "unavailable" || typeof address !== "string") return undefined;
  if (code === "ENOENT") {
    return `there is no container runtime at ${address}: install containerd, or set containerRuntimeEndpoint to the runtime's socket, or to "" to run components alone`;
  }
  if (code === "EACCES") return `this user may not use the container runtime at ${address}: run picolet as root`;
  return undefined;
}

/** The error of a call in the words of what was to be done with it. `cancelled` passes as it is. */
export function failure(error: unknown, message: string, init: { reason?: string; code?: ErrorCode } = {}): unknown {
  if (isCancelled(error)) return error;
  const missing = missingRuntime(error);
  if (missing !== undefined) return new PicoletError("unavailable", missing, { retryable: true });
  const ours = isPicoletError(error) ? error : undefined;
  const reason = init.reason ?? ours?.reason;
  return new PicoletError(init.code ?? ours?.code ?? "internal", message, {
    cause: error,
    retryable: ours?.retryable ?? false,
    ...(reason === undefined ? {} : { reason }),
  });
}
