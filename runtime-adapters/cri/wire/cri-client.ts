import { isAbsolute } from "node:path";
import { type ErrorCode, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { ContainerdServices } from "./containerd-services.ts";
import { GrpcClient, type GrpcMethod } from "./grpc-client.ts";

export interface CriClientInit {
  /** `unix:///run/containerd/containerd.sock`, or the path alone. The socket need not exist yet. */
  readonly endpoint: string;
  /** Of every call that says nothing else. */
  readonly requestTimeoutMs: number;
}

/** Calls one CRI socket, each with a deadline. */
export class CriClient implements Disposable {
  readonly grpc: GrpcClient;
  /** What containerd offers beyond CRI; every other runtime offers nothing of it. */
  readonly containerd: ContainerdServices;
  readonly socketPath: string;
  readonly requestTimeoutMs: number;

  /** @throws `invalid` for an endpoint that is no unix socket. */
  constructor(components: { readonly clock: Clock }, init: CriClientInit) {
    this.socketPath = socketPathOf(init.endpoint);
    this.requestTimeoutMs = init.requestTimeoutMs;
    this.grpc = new GrpcClient(components, { path: this.socketPath });
    const { requestTimeoutMs } = init;
    this.containerd = new ContainerdServices({ clock: components.clock, grpc: this.grpc }, { requestTimeoutMs });
  }

  call<Q, A>(
    method: GrpcMethod<Q, A>,
    request: Q,
    signal: AbortSignal,
    timeoutMs: number = this.requestTimeoutMs,
  ): Promise<A> {
    return this.grpc.unary(method, request, timeoutMs, signal);
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

/** The error of a call in the words of what was to be done with it. `cancelled` passes as it is. */
export function failure(error: unknown, message: string, init: { reason?: string; code?: ErrorCode } = {}): unknown {
  if (isCancelled(error)) return error;
  const ours = isPicoletError(error) ? error : undefined;
  const reason = init.reason ?? ours?.reason;
  return new PicoletError(init.code ?? ours?.code ?? "internal", message, {
    cause: error,
    retryable: ours?.retryable ?? false,
    ...(reason === undefined ? {} : { reason }),
  });
}
