import { cancelled } from "@picolet/protocol/async/abort.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { LifecycleHandler } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { ExecResult } from "@picolet/runtime-contract/runtime-adapter.ts";
import { apiUidOf } from "../../core/pods/pod-identity.ts";
import type { HookRunner, HookTarget } from "../../core/pods/probe-ports.ts";
import { outputOf, untilAborted } from "./exec-probe.ts";
import { goQuote } from "./go-text.ts";
import { type HttpGetter, PLAIN_ANSWER } from "./http-getter.ts";
import { httpRequestOf } from "./http-request.ts";

export interface LifecycleHooksComponents {
  readonly clock: Clock;
  readonly http: HttpGetter;
}

/** A command of a hook has no limit but the signal; runtimes want one that fits into their timers. A week. */
const NO_EXEC_LIMIT: Millis = seconds(7 * 24 * 3600);

export class LifecycleHooks implements HookRunner {
  readonly #components: LifecycleHooksComponents;

  constructor(components: LifecycleHooksComponents) {
    this.#components = components;
  }

  /** @throws PicoletError `failed` with the kubelet's message, `cancelled` when `signal` aborts */
  async run(handler: LifecycleHandler, target: HookTarget, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw cancelled("the hook");
    try {
      await this.#run(handler, target, signal);
    } catch (error) {
      if (signal.aborted || isCancelled(error)) throw cancelled("the hook");
      throw error;
    }
  }

  async #run(handler: LifecycleHandler, target: HookTarget, signal: AbortSignal): Promise<void> {
    const { exec, httpGet, sleep, tcpSocket } = handler;
    if (exec !== undefined) await execHook(exec.command ?? [], target, signal);
    else if (httpGet !== undefined) await this.#httpGet(httpGet, target, signal);
    else if (sleep !== undefined) await this.#components.clock.sleep(seconds(sleep.seconds), signal);
    else throw new PicoletError("failed", `Cannot run handler: invalid handler: ${shown(tcpSocket)}`);
  }

  /** Succeeds with any answer of the server. */
  async #httpGet(
    action: NonNullable<LifecycleHandler["httpGet"]>,
    target: HookTarget,
    signal: AbortSignal,
  ): Promise<void> {
    const { http } = this.#components;
    const [podIp] = target.podIps;
    try {
      if (podIp === undefined && !action.host) throw new Error("failed to find networking container: no IP");
      const request = httpRequestOf(action, target.container, podIp ?? "", "lifecycle");
      try {
        await http.get(request, signal);
      } catch (error) {
        // The scheme was of no meaning once, and there are manifests from then.
        if (request.scheme === "http" || !(error as Error).message.includes(PLAIN_ANSWER)) throw error;
        const headers = request.headers.filter(([name]) => name !== "Authorization");
        try {
          await http.get({ ...request, scheme: "http", headers }, signal);
        } catch {
          throw error;
        }
      }
    } catch (error) {
      const what = `HTTP lifecycle hook (${action.path}) for ${containerOf(target)}`;
      throw new PicoletError("failed", `${what} failed - error: ${describeError(error)}`);
    }
  }
}

async function execHook(command: readonly string[], target: HookTarget, signal: AbortSignal): Promise<void> {
  const { pod, containerId, adapter } = target;
  let why: string;
  let output = "";
  try {
    const given = adapter.execSync(pod.uid, containerId, command, NO_EXEC_LIMIT, signal);
    const result: ExecResult = await untilAborted(given, signal);
    if (result.exitCode === 0) return;
    output = outputOf(result);
    const stderr = outputOf({ ...result, stdout: new Uint8Array() });
    why = `command '${command.join(" ")}' exited with ${result.exitCode}: ${stderr}`;
  } catch (error) {
    if (signal.aborted) throw error;
    why = describeError(error);
  }
  const what = `Exec lifecycle hook ([${command.join(" ")}]) for ${containerOf(target)}`;
  throw new PicoletError("failed", `${what} failed - error: ${why}, message: ${goQuote(output)}`);
}

function containerOf({ pod, container }: HookTarget): string {
  const { namespace, name } = pod.pod.metadata;
  return `Container ${goQuote(container.name)} in Pod ${goQuote(`${name}_${namespace}(${apiUidOf(pod)})`)}`;
}

/** As Go prints a handler that has nothing to run. */
function shown(tcpSocket: LifecycleHandler["tcpSocket"]): string {
  let socket = "nil";
  if (tcpSocket !== undefined) {
    const { port, host = "" } = tcpSocket;
    const value = typeof port === "number" ? `{0 ${port} }` : `{1 0 ${port}}`;
    socket = `&TCPSocketAction{Port:${value},Host:${host},}`;
  }
  return `&LifecycleHandler{Exec:nil,HTTPGet:nil,TCPSocket:${socket},Sleep:nil,}`;
}
