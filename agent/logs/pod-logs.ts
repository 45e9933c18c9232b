/** Finds the log file that a request for a pod's log means. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { ignoreCancelled } from "@picolet/protocol/async/abort.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { DEFAULT_CONTAINER_ANNOTATION } from "@picolet/protocol/pod/default-container.ts";
import type { ContainerStatus } from "@picolet/protocol/pod/pod.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { ContainerLogs, FoundLog } from "../core/pods/container-logs.ts";
import { type LogWriter, readContainerLog } from "./container-log-reader.ts";

/**
 * Runtimes report the end of a container, or open a new log for it, before its last lines are in its log: containerd's
 * copier ends some milliseconds later, on a busy machine some tens. Only a reader within this time of the end, or of a
 * rotation, waits.
 */
const SETTLE_MS = 250;

/** What is known of the node's pods; answers from memory. */
export interface LogPods {
  pods(): readonly AgentPod[];
  /** Changes whenever `pods()` may answer something new. */
  readonly podsChanged: Watch<unknown>;
}

/** The logs of this node's pods. */
export class PodLogs implements ContainerLogs {
  readonly #pods: LogPods;
  readonly #clock: Clock;

  /** @param components.clock the system's own, by which runtimes say when a container ended */
  constructor(components: { readonly pods: LogPods; readonly clock: Clock }) {
    this.#pods = components.pods;
    this.#clock = components.clock;
  }

  async find(
    pod: AgentPod,
    wanted: { readonly container: string | undefined; readonly previous: boolean },
  ): Promise<FoundLog> {
    const { container, notice } = chooseContainer(pod, wanted.container);
    const newest = await newestAttempt(pod, container);
    const status = statusOf(pod, container);
    if (newest === undefined && !wanted.previous) {
      const reason = status?.state.waiting?.reason ?? "ContainerCreating";
      const { name } = pod.desired.pod.metadata;
      throw new PicoletError("unavailable", `container "${container}" in pod "${name}" is waiting to start: ${reason}`);
    }
    const attempt = wanted.previous ? previousAttempt(newest, status) : (newest ?? 0);
    if (attempt < 0) {
      const { name } = pod.desired.pod.metadata;
      throw new PicoletError("not_found", `previous terminated container "${container}" in pod "${name}" not found`);
    }
    const observed = pod.containers.find((each) => each.name === container && each.attempt === attempt);
    const path = observed?.logPath ?? join(pod.logDirectory, container, `${attempt}.log`);
    const writer = new PodLogWriter({ pods: this.#pods, clock: this.#clock }, pod, { container, attempt });
    return { notice, read: (request, signal) => readContainerLog(path, request, writer, signal) };
  }
}

function chooseContainer(pod: AgentPod, wanted: string | undefined): { container: string; notice: string } {
  const { metadata, spec } = pod.desired.pod;
  const main = spec.containers.map((each) => each.name);
  const init = (spec.initContainers ?? []).map((each) => each.name);
  const ephemeral = (spec.ephemeralContainers ?? []).map((each) => each.name);
  if (wanted !== undefined) {
    if ([...main, ...init, ...ephemeral].includes(wanted)) return { container: wanted, notice: "" };
    throw new PicoletError("invalid", `container ${wanted} is not valid for pod ${metadata.name}`);
  }
  const annotated = metadata.annotations?.[DEFAULT_CONTAINER_ANNOTATION];
  if (annotated !== undefined && main.includes(annotated)) return { container: annotated, notice: "" };
  const [first = ""] = main;
  if (main.length + init.length + ephemeral.length === 1) return { container: first, notice: "" };
  const others = [...main, ...init.map((each) => `${each} (init)`), ...ephemeral.map((each) => `${each} (ephem)`)];
  return { container: first, notice: `Defaulted container "${first}" out of: ${others.join(", ")}` };
}

function statusOf(pod: AgentPod, container: string): ContainerStatus | undefined {
  const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = pod.status ?? {};
  return [...containerStatuses, ...initContainerStatuses, ...ephemeralContainerStatuses].find(
    (each) => each.name === container,
  );
}

/** As observed; while the runtime cannot be asked, as the log files say. */
async function newestAttempt(pod: AgentPod, container: string): Promise<number | undefined> {
  const observed = pod.containers.filter((each) => each.name === container).map((each) => each.attempt);
  if (observed.length > 0) return Math.max(...observed);
  const names = await readdir(join(pod.logDirectory, container)).catch(() => []);
  const written = names.map((name) => /^(\d{1,9})\.log$/.exec(name)?.[1]).filter((attempt) => attempt !== undefined);
  return written.length === 0 ? undefined : Math.max(...written.map(Number));
}

/**
 * As the kubelet: the run that `lastState` reports. While a container waits for its restart, that is its newest run.
 */
function previousAttempt(newest: number | undefined, status: ContainerStatus | undefined): number {
  if (newest === undefined) return -1;
  const waits = status?.state.waiting !== undefined && status.lastState.terminated !== undefined;
  return waits ? newest : newest - 1;
}

interface Run {
  readonly container: string;
  readonly attempt: number;
}

class PodLogWriter implements LogWriter {
  readonly #pods: LogPods;
  readonly #clock: Clock;
  readonly #pod: AgentPod;
  readonly #run: Run;
  #wasSeen = false;

  constructor({ pods, clock }: { readonly pods: LogPods; readonly clock: Clock }, pod: AgentPod, run: Run) {
    this.#pods = pods;
    this.#clock = clock;
    this.#pod = pod;
    this.#run = run;
  }

  running(): boolean {
    const observed = this.#observed();
    if (observed === undefined || observed.some(({ attempt }) => attempt > this.#run.attempt)) return false;
    const run = this.#runOf(observed);
    if (run === undefined) return !this.#wasSeen;
    this.#wasSeen = true;
    return run.state.kind !== "exited";
  }

  async settled(signal: AbortSignal): Promise<void> {
    const { state } = this.#runOf(this.#observed() ?? this.#pod.containers) ?? {};
    if (state?.kind !== "exited") return;
    await this.arrived(signal, state.finishedAtMs);
  }

  async arrived(signal: AbortSignal, changedAtMs?: number): Promise<void> {
    const now = this.#clock.wall().getTime();
    const left = (changedAtMs ?? now) + SETTLE_MS - now;
    // A time that is still to come is of a clock that was set back since.
    if (left <= 0 || left > SETTLE_MS) return;
    await this.#clock.sleep(millis(left), signal).catch(ignoreCancelled);
  }

  changes(signal: AbortSignal): AsyncIterable<unknown> {
    return this.#pods.podsChanged.changes(signal);
  }

  /** Every run of the container; undefined: the pod has gone. */
  #observed(): readonly ObservedContainer[] | undefined {
    const now = this.#pods.pods().find(({ desired }) => desired.uid === this.#pod.desired.uid);
    return now?.containers.filter(({ name }) => name === this.#run.container);
  }

  #runOf(observed: readonly ObservedContainer[]): ObservedContainer | undefined {
    const { container, attempt } = this.#run;
    return observed.find((each) => each.name === container && each.attempt === attempt);
  }
}
