import type { Probe } from "@picolet/protocol/pod/pod.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { GrpcHealth } from "@picolet/runtime-contract/grpc-health.ts";
import { resolvePort } from "./handlers/container-port.ts";
import { type ExecTarget, type Expand, execDeadline, execProbe } from "./handlers/exec-probe.ts";
import { grpcOutcome } from "./handlers/grpc-probe.ts";
import type { HttpGetter } from "./handlers/http-getter.ts";
import { type HttpGetAction, httpRequestOf } from "./handlers/http-request.ts";
import { isProbeTimeout, type ProbeOutcome, SUCCESS } from "./handlers/probe-outcome.ts";
import { tcpProbe } from "./handlers/tcp-probe.ts";

export interface ProbeTarget extends ExecTarget {
  /** For a probe that names no host. */
  readonly podIp: string;
}

export interface ProbeRunnerComponents {
  readonly http: HttpGetter;
  readonly grpc: GrpcHealth;
  readonly expand: Expand;
  /** The time that a runtime has for its answer beyond a command's own timeout. */
  readonly runtimeRequestTimeout: Millis;
}

/** The time beyond the timeout for the gRPC client, which has a deadline of its own. */
const GRPC_GRACE_MS = 1_000;

/** Runs one attempt of a probe of any kind. */
export class ProbeRunner {
  readonly #components: ProbeRunnerComponents;

  constructor(components: ProbeRunnerComponents) {
    this.#components = components;
  }

  /** How long an attempt may take before its signal must abort with `ProbeTimeout`. */
  deadlineOf({ exec, grpc, timeoutSeconds }: Probe): Millis {
    const timeout = seconds(timeoutSeconds);
    if (exec !== undefined) return execDeadline(timeout, this.#components.runtimeRequestTimeout);
    return grpc === undefined ? timeout : millis(timeout + GRPC_GRACE_MS);
  }

  /** Never rejects. */
  async run(probe: Probe, target: ProbeTarget, signal: AbortSignal): Promise<ProbeOutcome> {
    try {
      return await this.#run(probe, target, signal);
    } catch (error) {
      return { kind: "error", state: "unknown", message: (error as Error).message };
    }
  }

  async #run(probe: Probe, target: ProbeTarget, signal: AbortSignal): Promise<ProbeOutcome> {
    const { exec, httpGet, tcpSocket, grpc, timeoutSeconds } = probe;
    const { container, podIp } = target;
    if (exec !== undefined) {
      const { expand, runtimeRequestTimeout } = this.#components;
      const init = { timeoutSeconds, runtimeRequestTimeout, expand };
      return await execProbe(target, exec.command ?? [], init, signal);
    }
    if (httpGet !== undefined) return await this.#httpGet(httpGet, target, signal);
    if (tcpSocket !== undefined) {
      return await tcpProbe(tcpSocket.host || podIp, resolvePort(tcpSocket.port, container), signal);
    }
    if (grpc !== undefined) {
      const { port, service } = grpc;
      const server = { host: podIp, port, service };
      const timeout = seconds(timeoutSeconds);
      const answer = await this.#components.grpc.check(server, timeout, signal).catch((error: unknown) => {
        if (isProbeTimeout(signal)) return { kind: "late" } as const;
        throw error;
      });
      return grpcOutcome(answer, { host: podIp, port, timeoutSeconds });
    }
    const { namespace, name } = target.pod.pod.metadata;
    throw new Error(`missing probe handler for ${name}_${namespace}(${target.pod.uid}):${container.name}`);
  }

  async #httpGet(action: HttpGetAction, { container, podIp }: ProbeTarget, signal: AbortSignal): Promise<ProbeOutcome> {
    const request = httpRequestOf(action, container, podIp, "probe");
    try {
      const { status, body, bodyError } = await this.#components.http.get(request, signal);
      if (bodyError !== undefined) return { kind: "error", state: "failure", message: bodyError };
      if (status >= 200 && status < 300) return SUCCESS;
      if (status >= 300 && status < 400) {
        return { kind: "warning", message: `Probe terminated redirects, Response body: ${body}` };
      }
      return { kind: "failure", message: `HTTP probe failed with statuscode: ${status}` };
    } catch (error) {
      return { kind: "failure", message: (error as Error).message };
    }
  }
}
