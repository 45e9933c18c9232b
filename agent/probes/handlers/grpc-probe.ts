import type { GrpcHealthAnswer } from "@picolet/runtime-contract/grpc-health.ts";
import { goQuote, goSeconds, joinHostPort } from "./go-text.ts";
import { type ProbeOutcome, SUCCESS } from "./probe-outcome.ts";

const SERVING = 1;
const SERVING_STATUSES: readonly string[] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
/** The outcome of a probe, with the kubelet's messages. Pure. */
export function grpcOutcome(
  answer: GrpcHealthAnswer,
  { host, port, timeoutSeconds }: { readonly host: string; readonly port: number; readonly timeoutSeconds: number },
): ProbeOutcome {
  if (answer.kind === "answered" && answer.status === SERVING) return SUCCESS;
  return { kind: "failure", message: messageOf(answer, joinHostPort(host, port), goSeconds(timeoutSeconds)) };
}

function messageOf(answer: GrpcHealthAnswer, address: string, timeout: string): string {
  switch (answer.kind) {
    case "answered": {
      const name = SERVING_STATUSES[answer.status] ?? String(answer.status);
      return `service unhealthy (responded with ${goQuote(name)})`;
    }
    case "unreached":
      return `timeout: failed to connect service ${goQuote(address)} within ${timeout}: context deadline exceeded`;
    case "late":
      return `timeout: health rpc did not complete within ${timeout}`;
    case "unimplemented":
      return `error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ${answer.message}`;
    case "failed":
      return `error: health rpc probe failed: ${answer.error}`;
  }
}
