/** How a container's log is read. `agent/logs` implements it; the local API and the streams of the tunnel use it. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { AgentPod } from "./agent-pod.ts";

export type LogStream = "stdout" | "stderr";

/** Selects a part of a log, and its format. */
export interface LogRequest {
  /** Entries written before it are left out. Milliseconds since the epoch. */
  readonly sinceMs: number | undefined;
  /** Puts the entry's time stamp before each line. */
  readonly timestamps: boolean;
  /** Output ends after this many bytes, in the middle of a line if need be. */
  readonly limitBytes: number | undefined;
  /** Only the last lines of both streams, across rotated files. */
  readonly tailLines: number | undefined;
  /** Goes on with what is written until the container has ended, across rotations. */
  readonly follow: boolean;
  /** Only what was written to this one; both when it is missing. */
  readonly stream?: LogStream | undefined;
}

/**
 * `stream` of PodLogOptions: "All", "Stdout", "Stderr".
 * @returns `undefined` for both
 * @throws `invalid`
 */
export function logStreamOf(value: string | undefined): LogStream | undefined {
  if (value === undefined || value === "" || value === "All") return undefined;
  if (value === "Stdout") return "stdout";
  if (value === "Stderr") return "stderr";
  throw new PicoletError(
    "invalid",
    `stream: Unsupported value: "${value}": supported values: "All", "Stderr", "Stdout"`,
  );
}

export interface FoundLog {
  /** Message for standard error, as in kubectl; "" for none. */
  readonly notice: string;
  /**
   * The log as a user sees it, in pieces of at most some 100 KiB; read only as fast as they are taken. Ends early,
   * without an error, when `signal` aborts.
   * @throws `not_found` when there is no log; `resource_exhausted` when the kernel gives no inotify watch.
   */
  read(request: LogRequest, signal: AbortSignal): AsyncGenerator<Uint8Array>;
}

export interface ContainerLogs {
  /**
   * @param wanted.container undefined: the pod's default one
   * @param wanted.previous the run before the one that runs now
   * @throws `invalid` for a container that the pod has not, `not_found`, `unavailable` while it waits to start
   */
  find(
    pod: AgentPod,
    wanted: { readonly container: string | undefined; readonly previous: boolean },
  ): Promise<FoundLog>;
}
