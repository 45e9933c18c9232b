import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { MetricsFormat } from "@picolet/protocol/metrics/metrics.ts";
import {
  type Clock,
  type Millis,
  type MonotonicMs,
  millis,
  type PodUid,
  type Random,
} from "@picolet/protocol/ports.ts";
import type { GrpcHealth } from "@picolet/runtime-contract/grpc-health.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ProbeResult, Prober } from "../core/pods/probe-ports.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import type { ProbeFigures } from "../metrics/agent-metrics.ts";
import type { Expand } from "./handlers/exec-probe.ts";
import type { HttpGetter } from "./handlers/http-getter.ts";
import { type ContainerEvents, PodProbes, probedContainers } from "./pod-probes.ts";
import { ProbeRunner } from "./probe-runner.ts";
import { Timetable } from "./timetable.ts";

export interface PodProberComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly events: ContainerEvents;
  readonly http: HttpGetter;
  readonly grpc: GrpcHealth;
  readonly expand: Expand;
  readonly runtimeRequestTimeout: Millis;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  /** The node's addresses: those of a pod on the host's network. */
  readonly hostIps: () => readonly string[];
}

type Changed = (uid: PodUid) => void;

/** The time between the first probes of adopted containers that are not in service: fifty of them take a second. */
const ADOPTION_GAP = millis(20);

const NO_RESULTS: ReadonlyMap<string, ProbeResult> = new Map();

/**
 * Probes as the kubelet runs them (pkg/kubelet/prober), but that the first one of a run comes as soon as it may, not
 * with the next beat of a ticker. All wait in one timetable; each that runs has at most one connection or one command,
 * so that there are never more of them than probes. A pod without probes takes nothing.
 */
export class PodProber implements Prober, Component {
  readonly name = "probes";
  readonly #components: PodProberComponents;
  readonly #runner: ProbeRunner;
  readonly #timetable: Timetable;
  readonly #startedAt: MonotonicMs;
  #nextAdoption: MonotonicMs;
  readonly #pods = new Map<PodUid, PodProbes>();
  readonly #observers = new Set<Changed>();

  constructor(components: PodProberComponents) {
    const { clock } = components;
    this.#components = components;
    this.#runner = new ProbeRunner(components);
    this.#timetable = new Timetable(clock);
    this.#startedAt = clock.monotonic();
    this.#nextAdoption = this.#startedAt;
  }

  follow(
    pod: DesiredPod,
    observed: ObservedPod,
    adapter: RuntimeAdapter,
    state: Parameters<Prober["follow"]>[3],
  ): void {
    const known = this.#pods.get(pod.uid);
    if (known === undefined && probedContainers(pod.pod).next().done) return;
    const probes = known ?? this.#add(pod, adapter);
    probes.follow(pod, observed, adapter, state);
  }

  results(uid: PodUid): ReadonlyMap<string, ProbeResult> {
    return this.#pods.get(uid)?.results ?? NO_RESULTS;
  }

  forget(uid: PodUid): void {
    this.#pods.get(uid)?.stop();
    this.#pods.delete(uid);
  }

  observe(changed: Changed): Disposable {
    // A closure of its own, so that an observer that subscribes twice is called twice and may unsubscribe twice.
    const observer: Changed = (uid) => changed(uid);
    this.#observers.add(observer);
    return { [Symbol.dispose]: () => this.#observers.delete(observer) };
  }

  /** The kubelet's /metrics/probes, in pieces of whole lines. @param format default: Prometheus' */
  async metrics(format?: MetricsFormat): Promise<Iterable<string>> {
    const { metricsText } = await import("@picolet/protocol/metrics/metrics.ts");
    const { PROBE_METRICS } = await import("../metrics/agent-metrics.ts");
    return metricsText(PROBE_METRICS, () => this.#figures(), format);
  }

  *#figures(): Generator<ProbeFigures> {
    for (const pod of this.#pods.values()) yield* pod.figures();
  }

  /** It does nothing by itself; when the agent ends, so do the probes. */
  async run(signal: AbortSignal): Promise<void> {
    await aborted(signal);
    this.#stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop();
  }

  #stop(): void {
    for (const pod of this.#pods.values()) pod.stop();
    this.#timetable[Symbol.dispose]();
  }

  #adoptionSlot(): MonotonicMs {
    const slot = Math.max(this.#nextAdoption, this.#components.clock.monotonic()) as MonotonicMs;
    this.#nextAdoption = (slot + ADOPTION_GAP) as MonotonicMs;
    return slot;
  }

  #add(pod: DesiredPod, adapter: RuntimeAdapter): PodProbes {
    const { uid } = pod;
    const { clock, random, events, decisions, hostIps } = this.#components;
    const changed = (): void => {
      for (const observer of this.#observers) observer(uid);
    };
    const own = { clock, random, events, decisions, hostIps, changed };
    const shared = {
      runner: this.#runner,
      timetable: this.#timetable,
      startedAt: this.#startedAt,
      adoptionSlot: () => this.#adoptionSlot(),
    };
    const probes = new PodProbes({ ...own, ...shared }, pod, adapter);
    this.#pods.set(uid, probes);
    return probes;
  }
}
