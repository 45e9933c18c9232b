import { onAbort } from "@picolet/protocol/async/abort.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { GrpcHealth, GrpcHealthAnswer, GrpcHealthTarget } from "@picolet/runtime-contract/grpc-health.ts";
import { GrpcClient, type GrpcMethod } from "./wire/grpc-client.ts";
import { GrpcStatusError } from "./wire/grpc-status.ts";
import { int32, message, string } from "./wire/protobuf.ts";

const CHECK: GrpcMethod<{ service?: string }, { status: number }> = {
  path: "/grpc.health.v1.Health/Check",
  request: message("HealthCheckRequest", { service: string(1) }),
  response: message("HealthCheckResponse", { status: int32(1) }),
};
/** The answer is one small number. */
const MAX_MESSAGE_BYTES = 4096;
const READ_BUFFER_BYTES = 4096;
/** gRPC's own clients wait so long before they try to connect again. */
const RECONNECT_DELAY = seconds(1);
/** The status that gRPC's own clients report for a failed connection. */
const UNAVAILABLE = 14;

export class GrpcHealthClient implements GrpcHealth {
  readonly #clock: Clock;
  readonly #userAgent: string;
  /** Shared by all connections, because bytes are processed at once. Made with the first connection. */
  #readBuffer: Buffer | undefined;

  constructor(components: { readonly clock: Clock }, init: { readonly userAgent: string }) {
    this.#clock = components.clock;
    this.#userAgent = init.userAgent;
  }

  async check(target: GrpcHealthTarget, timeout: Millis, signal: AbortSignal): Promise<GrpcHealthAnswer> {
    const clock = this.#clock;
    const end = clock.monotonic() + timeout;
    for (let left: number = timeout; left > 0; left = end - clock.monotonic()) {
      const answer = await this.#attempt(target, left, signal);
      if (answer.kind !== "unreached" || end - clock.monotonic() <= RECONNECT_DELAY) return answer;
      await clock.sleep(RECONNECT_DELAY, signal);
    }
    return { kind: "unreached" };
  }

  async #attempt(
    { host, port, service }: GrpcHealthTarget,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<GrpcHealthAnswer> {
    this.#readBuffer ??= Buffer.allocUnsafeSlow(READ_BUFFER_BYTES);
    const end = this.#clock.monotonic() + timeoutMs;
    const own = { userAgent: this.#userAgent, readBuffer: this.#readBuffer, maxMessageBytes: MAX_MESSAGE_BYTES };
    using client = new GrpcClient({ clock: this.#clock }, { host, port, connectTimeoutMs: timeoutMs, ...own });
    using _leave = onAbort(signal, () => client[Symbol.dispose]());
    try {
      const isConnected = await client.connect().then(
        () => true,
        () => false,
      );
      signal.throwIfAborted();
      if (!isConnected) return { kind: "unreached" };
      const left = Math.max(1, end - this.#clock.monotonic());
      return { kind: "answered", status: (await client.unary(CHECK, { service }, left, signal)).status };
    } catch (error) {
      signal.throwIfAborted();
      return failureOf(error);
    }
  }
}

function failureOf(error: unknown): GrpcHealthAnswer {
  if (isPicoletError(error, "deadline_exceeded")) return { kind: "late" };
  // Also of a server that speaks HTTP/2 but no gRPC.
  if (isPicoletError(error, "unimplemented")) return { kind: "unimplemented", message: error.message };
  const status = error instanceof GrpcStatusError ? error : new GrpcStatusError(UNAVAILABLE, describeError(error));
  return { kind: "failed", error: status.printed };
}
