/** `edgectl wasm run`: a component once, as a pod's container, with what it writes on standard output and error. */

import { once } from "node:events";
import { joinSignals, onAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { ComponentToolRequest } from "@picolet/protocol/local-api/component-tool-messages.ts";
import { millis, NEVER } from "@picolet/protocol/ports.ts";
import type { ContainerState } from "@picolet/runtime-contract/runtime-adapter.ts";
import { readContainerLog } from "../../logs/container-log-reader.ts";
import { ToolRuntime } from "./tool-runtime.ts";

/** As `timeout` has it. */
const TIMED_OUT = 124;

/** Bounds the kept end of standard error, which may already show why the component ended: a trap has 3 KiB. */
const LAST_BYTES = 8192;

type Exited = Extract<ContainerState, { kind: "exited" }>;

interface Ended {
  readonly exited: Exited;
  readonly lastErrors: string;
}

/**
 * @param signal ends the component
 * @returns its exit code; 124 when its time was up. @throws when it was interrupted
 */
export async function runComponent(request: ComponentToolRequest, signal: AbortSignal): Promise<number> {
  await using runtime = await ToolRuntime.create(request, signal);
  await runtime.createSandbox(signal);
  const { desired } = runtime;
  // Made runnable first: that is no time of the component's.
  await runtime.adapter.check(desired, runtime.launch, signal);
  const timeout = request.timeoutMs === undefined ? undefined : AbortSignal.timeout(request.timeoutMs);
  using stop = joinSignals(signal, ...(timeout === undefined ? [] : [timeout]));
  try {
    const { exited, lastErrors } = await untilItEnds(runtime, stop.signal);
    if (!stop.signal.aborted) return reportEnd(exited, lastErrors);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  }
  signal.throwIfAborted();
  process.stderr.write(`edgectl: ended after ${(request.timeoutMs ?? 0) / 1000} s\n`);
  return TIMED_OUT;
}

/** Starts the container and copies what it writes. @param stop ends it, in its start too */
async function untilItEnds(runtime: ToolRuntime, stop: AbortSignal): Promise<Ended> {
  const { desired } = runtime;
  await runtime.adapter.apply(desired, { kind: "startContainer", container: runtime.launch }, stop);
  const { containers } = await runtime.adapter.inspect(desired.uid, NEVER);
  const [container] = containers;
  if (container === undefined) throw new PicoletError("internal", "the container is gone as soon as it was made");
  using _stop = onAbort(stop, () => {
    const action = { kind: "stopContainer", containerId: container.id, gracePeriod: millis(0) } as const;
    void runtime.adapter.apply(desired, action, NEVER).catch(ignore("the container's end is followed below"));
  });
  const end = new EndOf(runtime);
  const [lastErrors, , exited] = await Promise.all([
    copyLog(container.logPath, "stderr", end, stop),
    copyLog(container.logPath, "stdout", end, stop),
    end.follow(),
  ]);
  return { exited, lastErrors };
}

/** Prints the reason of the end if neither the exit code nor the log shows it. @returns the exit code */
function reportEnd({ exitCode, reason, message }: Exited, lastErrors: string): number {
  if (message !== "" && lastErrors.includes(message)) return exitCode;
  if (reason !== "Completed" && (reason !== "Error" || message !== "")) {
    process.stderr.write(`edgectl: ${reason}${message === "" ? "" : `: ${message}`} (exit code ${exitCode})\n`);
  }
  return exitCode;
}

/** The end of the runtime's one container, and those that wait for it. */
class EndOf {
  readonly #runtime: ToolRuntime;
  #ended: Promise<Exited> | undefined;
  #isOver = false;

  constructor(runtime: ToolRuntime) {
    this.#runtime = runtime;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  follow(): Promise<Exited> {
    this.#ended ??= this.#wait();
    return this.#ended;
  }

  async #wait(): Promise<Exited> {
    const { adapter, desired } = this.#runtime;
    const enough = new AbortController();
    const hints = adapter.hints(enough.signal)[Symbol.asyncIterator]();
    for (let next = hints.next(); ; next = hints.next()) {
      const { containers } = await adapter.inspect(desired.uid, NEVER);
      const state = containers[0]?.state;
      if (state?.kind === "exited") {
        this.#isOver = true;
        enough.abort();
        return state;
      }
      await next;
    }
  }
}

/** @param stop ends the copy. @returns the last bytes */
async function copyLog(path: string, stream: "stdout" | "stderr", end: EndOf, stop: AbortSignal): Promise<string> {
  const request = { sinceMs: undefined, timestamps: false, limitBytes: undefined, tailLines: undefined, follow: true };
  const writer = {
    running: () => !end.isOver,
    // The runner writes its log itself, so that all of it is there when the runner has ended.
    settled: () => Promise.resolve(),
    arrived: () => Promise.resolve(),
    async *changes() {
      yield await end.follow();
    },
  };
  const output = process[stream];
  let last = Buffer.alloc(0);
  for await (const bytes of readContainerLog(path, { ...request, stream }, writer, NEVER)) {
    last = Buffer.concat([last, bytes]).subarray(-LAST_BYTES);
    if (!output.write(bytes)) await once(output, "drain", { signal: stop });
  }
  return last.toString();
}
