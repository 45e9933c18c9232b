/**
 * The health protocol of gRPC (grpc.health.v1) as the agent's probes need it; it is spoken beside the client of CRI.
 */
import type { Millis } from "@picolet/protocol/ports.ts";

export interface GrpcHealthTarget {
  readonly host: string;
  readonly port: number;
  /** "" is the server as a whole. */
  readonly service: string;
}

export type GrpcHealthAnswer =
  /** @property status its number in the enum `ServingStatus`. */
  | { readonly kind: "answered"; readonly status: number }
  /** No HTTP/2 connection came to be in time. */
  | { readonly kind: "unreached" }
  /** There was a connection, but no answer in time. */
  | { readonly kind: "late" }
  /** It has no such service. */
  | { readonly kind: "unimplemented"; readonly message: string }
  /** @property error such as `rpc error: code = NotFound desc = unknown service`. */
  | { readonly kind: "failed"; readonly error: string };

export interface GrpcHealth {
  /**
   * One call on a connection of its own, without TLS, tried for until the time is over. @throws the signal's reason
   * alone
   */
  check(target: GrpcHealthTarget, timeout: Millis, signal: AbortSignal): Promise<GrpcHealthAnswer>;
}
