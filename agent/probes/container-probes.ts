import type { Container, Probe } from "@picolet/protocol/pod/pod.ts";
import { type Millis, type MonotonicMs, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { ProbeResult } from "../core/pods/probe-ports.ts";
import type { ProbeOutcome } from "./handlers/probe-outcome.ts";
import { type ProbeKind, ProbeTask, type TaskComponents, type TaskOwner } from "./probe-task.ts";
import type { Streak } from "./thresholds.ts";

export interface RunComponents extends TaskComponents {
  readonly random: Random;
  /** Since when this agent probes. */
  readonly startedAt: MonotonicMs;
  /** When the next probe of an adopted container may come at the earliest: `ADOPTION_GAP` after the one before it. */
  readonly adoptionSlot: () => MonotonicMs;
}

/** The part of a pod that the probes of one run need. */
export interface RunOwner {
  deadlineOf(probe: Probe): Millis;
  attempt(run: ContainerProbes, probe: Probe, signal: AbortSignal): Promise<ProbeOutcome>;
  ran(run: ContainerProbes, kind: ProbeKind, outcome: ProbeOutcome, duration: number): void;
  /** A probe has failed as often in a row as it may. */
  failed(run: ContainerProbes, task: ProbeTask, failures: number): void;
  /** The readiness probe makes the container ready. */
  passed(run: ContainerProbes, task: ProbeTask): void;
  /** `result` is another one now. */
  changed(): void;
}

export interface RunInit {
  readonly id: string;
  readonly container: Container;
  /** As far as it is known. */
  readonly startedAt: MonotonicMs;
  /** The result that the previous agent reported for this run. */
  readonly before: ProbeResult | undefined;
}

/** The probes of one run of a container. The startup probe holds up the others until it has passed. */
export class ContainerProbes implements TaskOwner {
  readonly id: string;
  readonly container: Container;
  readonly #components: RunComponents;
  readonly #owner: RunOwner;
  readonly #startedAt: MonotonicMs;
  /** True when the run began before this agent did. */
  readonly #isAdopted: boolean;
  /** True when the previous agent reported a result, which counts until the first probe. */
  readonly #isReported: boolean;
  readonly #startup: ProbeTask | undefined;
  readonly #liveness: ProbeTask | undefined;
  readonly #readiness: ProbeTask | undefined;
  #result: ProbeResult;
  #isEnding = false;

  constructor(components: RunComponents, owner: RunOwner, { id, container, startedAt, before }: RunInit) {
    this.id = id;
    this.container = container;
    this.#components = components;
    this.#owner = owner;
    this.#startedAt = startedAt;
    this.#isReported = before !== undefined;
    this.#isAdopted = this.#isReported || startedAt < components.startedAt;
    this.#startup = this.#task("Startup", container.startupProbe);
    this.#liveness = this.#task("Liveness", container.livenessProbe);
    this.#readiness = this.#task("Readiness", container.readinessProbe);
    const started = this.#startup === undefined || before?.started === true;
    this.#result = { started, ready: started && (this.#readiness === undefined || before?.ready === true) };
  }

  get result(): ProbeResult {
    return this.#result;
  }

  begin(): void {
    if (!this.#result.started) this.#begin(this.#startup);
    else {
      this.#begin(this.#liveness);
      this.#begin(this.#readiness);
    }
  }

  /** Called when the pod begins to end. Probes that would restart the container stop, and count as passed. */
  end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.#startup?.stop();
    this.#liveness?.stop();
    const ready = this.#readiness === undefined || this.#result.ready;
    this.#result = { started: true, ready };
    this.#begin(this.#readiness);
  }

  stop(): void {
    for (const task of [this.#startup, this.#liveness, this.#readiness]) task?.stop();
  }

  deadlineOf(probe: Probe): Millis {
    return this.#owner.deadlineOf(probe);
  }

  attempt(probe: Probe, signal: AbortSignal): Promise<ProbeOutcome> {
    return this.#owner.attempt(this, probe, signal);
  }

  ran(task: ProbeTask, outcome: ProbeOutcome, duration: number): void {
    this.#owner.ran(this, task.kind, outcome, duration);
  }

  judged(task: ProbeTask, { result, count }: Streak): void {
    const passed = result === "success";
    if (!passed && count === task.probe.failureThreshold) this.#owner.failed(this, task, count);
    if (passed && task.kind === "Readiness" && !this.#result.ready) this.#owner.passed(this, task);
    switch (task.kind) {
      case "Readiness":
        if (passed !== this.#result.ready) this.#become({ ...this.#result, ready: passed });
        return;
      case "Liveness":
        if (!passed) this.#fail("liveness", task);
        return;
      case "Startup":
        if (!passed) this.#fail("startup", task);
        else this.#started(task);
    }
  }

  #started(startup: ProbeTask): void {
    startup.stop();
    this.#become({ started: true, ready: this.#readiness === undefined });
    this.begin();
  }

  /** It rests until the container is another run: nothing is to meddle with one that is being stopped. */
  #fail(probe: "liveness" | "startup", task: ProbeTask): void {
    task.stop();
    const { terminationGracePeriodSeconds: grace } = task.probe;
    const gracePeriod = grace === undefined ? undefined : seconds(grace);
    this.#become({ ...this.#result, failed: { probe, gracePeriod } });
  }

  #become(result: ProbeResult): void {
    this.#result = result;
    this.#owner.changed();
  }

  #task(kind: ProbeKind, probe: Probe | undefined): ProbeTask | undefined {
    return probe === undefined ? undefined : new ProbeTask(this.#components, this, kind, probe);
  }

  #begin(task: ProbeTask | undefined): void {
    if (task === undefined) return;
    const { clock, random, startedAt, adoptionSlot } = this.#components;
    const now = clock.monotonic();
    const period = seconds(task.probe.periodSeconds);
    const earliest = Math.max(now, this.#startedAt + seconds(task.probe.initialDelaySeconds ?? 0));
    const isFirstRound = this.#isAdopted && now - startedAt < period;
    // When an agent finds a whole node running, its probes are spread over their periods, as by the kubelet.
    const spread = isFirstRound ? Math.max(earliest, now + random.next() * period) : earliest;
    // A container in service stays ready until its first probe. Any other may have become ready while no agent ran.
    const isInService = this.#isReported && (task.kind === "Liveness" || this.#result.ready);
    const first = isFirstRound && !isInService ? earliest + ((adoptionSlot() - now) % period) : spread;
    const isWaiting = earliest > now;
    task.begin(first as MonotonicMs, isWaiting ? undefined : (spread as MonotonicMs));
  }
}
