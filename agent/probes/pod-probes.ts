import { publicName } from "@picolet/protocol/decisions/public-text.ts";
import { DEFAULT_BOUNDS, Distribution } from "@picolet/protocol/metrics/distribution.ts";
import type { Container, Pod, Probe } from "@picolet/protocol/pod/pod.ts";
import type { Millis, MonotonicMs } from "@picolet/protocol/ports.ts";
import type {
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { ProbeResult, Prober } from "../core/pods/probe-ports.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import type { ProbeFigures } from "../metrics/agent-metrics.ts";
import { ContainerProbes, type RunComponents, type RunOwner } from "./container-probes.ts";
import type { ProbeOutcome } from "./handlers/probe-outcome.ts";
import type { ProbeRunner } from "./probe-runner.ts";
import type { ProbeKind, ProbeTask } from "./probe-task.ts";

/** Records an event of a pod's container. */
export interface ContainerEvents {
  record(pod: DesiredPod, type: "Normal" | "Warning", reason: string, message: string, container: string): void;
}

export interface PodProbesComponents extends RunComponents {
  readonly runner: ProbeRunner;
  readonly events: ContainerEvents;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  /** The node's addresses: those of a pod that has none of its own. */
  readonly hostIps: () => readonly string[];
  readonly changed: () => void;
}

type FollowState = Parameters<Prober["follow"]>[3];

const LOOPBACK = "127.0.0.1";

/** The containers of a pod that have probes: its own, and its sidecars. */
export function* probedContainers({ spec }: Pod): Generator<Container> {
  for (const container of spec.containers) if (hasProbes(container)) yield container;
  for (const container of spec.initContainers ?? []) {
    if (container.restartPolicy === "Always" && hasProbes(container)) yield container;
  }
}

const hasProbes = ({ startupProbe, livenessProbe, readinessProbe }: Container): boolean =>
  (startupProbe ?? livenessProbe ?? readinessProbe) !== undefined;

/** All probes of one pod, and what is remembered of them until nothing of it is left. */
export class PodProbes implements RunOwner {
  readonly #components: PodProbesComponents;
  readonly #runs = new Map<string, ContainerProbes>();
  /** By container and kind, over all runs. */
  readonly #counts = new Map<string, ProbeCounts>();
  #pod: DesiredPod;
  #adapter: RuntimeAdapter;
  #podIp: string | undefined;
  #results: ReadonlyMap<string, ProbeResult> = new Map();
  /** The time of the last update: a run that was not there then cannot have begun earlier. */
  #updatedAt: MonotonicMs | undefined;

  constructor(components: PodProbesComponents, pod: DesiredPod, adapter: RuntimeAdapter) {
    this.#components = components;
    this.#pod = pod;
    this.#adapter = adapter;
  }

  get results(): ReadonlyMap<string, ProbeResult> {
    return this.#results;
  }

  follow(pod: DesiredPod, observed: ObservedPod, adapter: RuntimeAdapter, state: FollowState): void {
    this.#pod = pod;
    this.#adapter = adapter;
    const [sandbox] = observed.sandboxes;
    if (sandbox?.state === "ready") this.#podIp = sandbox.ips[0];
    const seen = new Set<string>();
    for (const container of probedContainers(pod.pod)) {
      const newest = observed.containers.find(({ name }) => name === container.name);
      if (newest?.state.kind !== "running") continue;
      seen.add(newest.id);
      if (!this.#runs.has(newest.id)) this.#add(container, newest, newest.state.startedAtMs, state);
    }
    for (const [id, run] of this.#runs) {
      if (seen.has(id)) continue;
      run.stop();
      this.#runs.delete(id);
    }
    if (state.ending) for (const run of this.#runs.values()) run.end();
    this.#updatedAt = this.#components.clock.monotonic();
    this.#collect();
  }

  stop(): void {
    for (const run of this.#runs.values()) run.stop();
    this.#runs.clear();
  }

  deadlineOf(probe: Probe): Millis {
    return this.#components.runner.deadlineOf(probe);
  }

  attempt({ id, container }: ContainerProbes, probe: Probe, signal: AbortSignal): Promise<ProbeOutcome> {
    const podIp = this.#podIp ?? this.#components.hostIps()[0] ?? LOOPBACK;
    const target = { pod: this.#pod, container, containerId: id, adapter: this.#adapter, podIp };
    return this.#components.runner.run(probe, target, signal);
  }

  ran({ container }: ContainerProbes, kind: ProbeKind, outcome: ProbeOutcome, duration: number): void {
    const record = (reason: string, message: string): void =>
      this.#components.events.record(this.#pod, "Warning", reason, message, container.name);
    switch (outcome.kind) {
      case "success":
        this.#countsOf(container, kind).success(duration);
        return;
      case "warning":
        this.#countsOf(container, kind).success(duration);
        record("ProbeWarning", `${kind} probe warning: ${outcome.message}`);
        return;
      case "failure":
        this.#countsOf(container, kind).failure();
        record("Unhealthy", `${kind} probe failed: ${outcome.message}`);
        return;
      case "error":
        record("Unhealthy", `${kind} probe errored and resulted in ${outcome.state} state: ${outcome.message}`);
    }
  }

  failed({ container }: ContainerProbes, { kind, probe }: ProbeTask, failures: number): void {
    const figures = { failures, periodMs: probe.periodSeconds * 1000 };
    const fields = { container: publicName(container.name), probe: publicName(kind.toLowerCase()), figures };
    this.#components.decisions?.record({ kind: "probeFailed", ...fields }, this.#pod);
  }

  passed({ container }: ContainerProbes, { kind }: ProbeTask): void {
    const fields = { container: publicName(container.name), probe: publicName(kind.toLowerCase()) };
    this.#components.decisions?.record({ kind: "probePassed", ...fields }, this.#pod);
  }

  changed(): void {
    this.#collect();
    this.#components.changed();
  }

  *figures(): Generator<ProbeFigures> {
    const { namespace, name: pod } = this.#pod.pod.metadata;
    const podUid = apiUidOf(this.#pod);
    for (const [key, counts] of this.#counts) {
      const [kind = "", container = ""] = key.split(" ");
      yield { container, namespace, pod, podUid, kind, ...counts.figures };
    }
  }

  #add(container: Container, { id }: ObservedContainer, startedAtMs: number, state: FollowState): void {
    const { clock } = this.#components;
    const now = clock.monotonic();
    const byWall = Math.max(0, clock.wall().getTime() - startedAtMs);
    // The wall clock may have jumped since; how long it was not there is certain.
    const age = this.#updatedAt === undefined ? byWall : Math.min(byWall, now - this.#updatedAt);
    const startedAt = (now - age) as MonotonicMs;
    const before = state.wasReady(id);
    const run = new ContainerProbes(this.#components, this, { id, container, startedAt, before });
    this.#runs.set(id, run);
    if (!state.ending) run.begin();
  }

  /** Makes a new map only when a result has changed: holders of the old map keep a consistent view. */
  #collect(): void {
    const before = this.#results;
    const isSame = before.size === this.#runs.size;
    if (isSame && [...this.#runs.values()].every(({ id, result }) => before.get(id) === result)) return;
    this.#results = new Map([...this.#runs.values()].map(({ id, result }) => [id, result]));
  }

  #countsOf({ name }: Container, kind: ProbeKind): ProbeCounts {
    const key = `${kind} ${name}`;
    const known = this.#counts.get(key);
    if (known !== undefined) return known;
    const counts = new ProbeCounts();
    this.#counts.set(key, counts);
    return counts;
  }
}

/** Counts the results of one probe of a container, over all of its runs. */
class ProbeCounts {
  #successful = 0;
  #failed = 0;
  /** Durations of successes in seconds; created with the first success. */
  #durations: Distribution | undefined;

  success(durationMs: number): void {
    this.#successful += 1;
    this.#durations ??= new Distribution(DEFAULT_BOUNDS);
    this.#durations.observe(durationMs / 1000);
  }

  failure(): void {
    this.#failed += 1;
  }

  get figures() {
    return { failed: this.#failed, successful: this.#successful, durations: this.#durations };
  }
}
