/** The laws that hold at every moment of a simulation. The first breach is kept, because the others follow from it. */

import type { OutgoingStatus } from "@picolet/agent/core/hub/tunnel-ports.ts";
import { apiUidOf } from "@picolet/agent/core/pods/pod-identity.ts";
import type { DesiredSnapshot } from "@picolet/agent/core/store/store-ports.ts";
import { containersOf } from "@picolet/agent/plan/container-roles.ts";
import type { Plan, PodView } from "@picolet/agent/plan/pod-view.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { Clock, PodUid } from "@picolet/protocol/ports.ts";
import type { Action, DesiredPod, ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { FakeChange, FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import type { FakePodEnvironment } from "../support/unit/agent/fake-pod-environment.ts";
import { DecisionLaws } from "./decision-laws.ts";
import { LifecycleLaws } from "./lifecycle-laws.ts";
import type { SimHub } from "./sim-hub.ts";
import { hasRoom } from "./sim-manifests.ts";

/** Two attempts, and a third while the oldest is being taken away; the kubelet keeps as many. */
const MAX_RUNS = 4;
const MAX_SANDBOXES = 4;
/** Latencies and relists may let a start come this much before its time by the runtime's clock. */
const BACKOFF_TOLERANCE_MS = 50;

interface RunRecord {
  readonly id: string;
  readonly sandboxId: string;
  readonly life: number;
  readonly hash: string;
  readonly startedAt: number;
  /** The wait that is due after its end. */
  readonly backoff: number;
  endedAt: number | undefined;
}

const INITIAL_BACKOFF_MS = 10_000;
const MAX_BACKOFF_MS = 300_000;
const RESET_AFTER_MS = 600_000;

export class Laws {
  readonly lifecycle: LifecycleLaws;
  readonly decisions: DecisionLaws;
  readonly #clock: Clock;
  readonly #runtimes: () => readonly FakeRuntime[];
  readonly #trace: (line: string) => void;
  readonly #hub: SimHub;
  readonly #disk: FakePodEnvironment;
  /** The API server's last UID of each incarnation on this node. */
  readonly #apiUids = new Map<PodUid, string>();
  /** The last decided state of each pod's worker in the current life. */
  readonly #states = new Map<PodUid, Plan["next"]["kind"]>();
  /** By pod, container and attempt. */
  readonly #runs = new Map<string, RunRecord>();
  /** Runs whose start was answered with an error. */
  readonly #guessed = new Set<string>();
  #life = 0;
  #alive = false;
  #breach: string | undefined;

  constructor(components: {
    readonly clock: Clock;
    readonly hub: SimHub;
    readonly disk: FakePodEnvironment;
    readonly runtimes: () => readonly FakeRuntime[];
    readonly trace: (line: string) => void;
  }) {
    this.#hub = components.hub;
    this.#disk = components.disk;
    this.#clock = components.clock;
    this.#runtimes = components.runtimes;
    this.#trace = components.trace;
    this.decisions = new DecisionLaws((what) => this.broken(what));
    this.lifecycle = new LifecycleLaws({
      clock: this.#clock,
      broken: (what) => this.broken(what),
      observed: (uid) => this.#observed(uid),
    });
  }

  get breach(): string | undefined {
    return this.#breach;
  }

  broken(what: string): void {
    this.#trace(`BREACH ${what}`);
    this.#breach ??= what;
  }

  lifeBegan(): void {
    this.#life += 1;
    this.#alive = true;
    this.#states.clear();
    this.lifecycle.lifeBegan();
    this.decisions.lifeBegan();
  }

  /**
   * With the disk lost, neither the number of runs of a half-removed pod's containers nor the owner of its folders is
   * known.
   */
  diskLost(): void {
    this.#runs.clear();
    this.#apiUids.clear();
  }

  lifeEnded(): void {
    this.#alive = false;
  }

  planned(view: PodView, plan: Plan): void {
    const { uid } = view.desired;
    this.#states.set(uid, plan.next.kind);
    this.lifecycle.planned(view, plan);
    this.decisions.planned(view, plan);
    this.#apiUids.set(uid, apiUidOf(view.desired));
    if (plan.actions.length > 0) {
      this.#trace(`plan ${uid} ${plan.next.kind}: ${plan.actions.map((each) => JSON.stringify(each)).join(" ")}`);
    }
    const starts = plan.actions.some((each) => each.kind === "startContainer" || each.kind === "createSandbox");
    if (starts && plan.next.kind !== "active") this.broken(`${uid} is ${plan.next.kind} and is to start something`);
  }

  /** Pods that run as the hub wants them go on, under any UID. */
  changing(desired: Watch<DesiredSnapshot>, change: () => void): void {
    const before = desired.current.removed;
    change();
    const { pods, removed } = desired.current;
    if (removed === before) return;
    for (const [uid, ending] of removed) {
      if (before.has(uid) || ending.source !== "api" || !this.#isHealthy(uid)) continue;
      // One that could not be made out for minutes has been given up, and its successor has started.
      const isTooLate = [...pods.values()].some((each) => isNamesake(each, ending) && this.#observed(each.uid));
      if (this.#hub.hasSuccessorOf(ending.pod) && !isTooLate) {
        this.broken(`${uid} is to end, and what it runs is wanted under another UID`);
      }
    }
  }

  /** What is granted to all that runs is never more than there is. */
  granted(uid: PodUid, { pods, removed }: DesiredSnapshot): void {
    this.#trace(`granted ${uid}`);
    const others = [...pods.values(), ...removed.values()].filter((each) => {
      return each.uid !== uid && this.#containersOf(each.uid).some(({ state }) => state.kind === "running");
    });
    const own = pods.get(uid);
    const all = [...others, ...(own === undefined ? [] : [own])];
    if (!hasRoom(all.map(({ pod }) => pod))) this.broken(`${uid} is granted more than there is`);
  }

  /** No pod is reported gone while anything of it exists. */
  told({ name, uid: apiUid, gone }: OutgoingStatus): void {
    if (!gone) return;
    this.#trace(`told that ${name} ${apiUid} is gone`);
    const left = [...this.#apiUids].filter(([, each]) => each === apiUid).map(([uid]) => uid);
    for (const uid of left) {
      if (this.#observed(uid) !== undefined) this.broken(`${uid} is told to be gone and is in the runtime`);
      if (this.#disk.prepared.has(uid)) this.broken(`${uid} is told to be gone and is on the disk`);
    }
  }

  /** All of it runs, in a good sandbox. */
  #isHealthy(uid: PodUid): boolean {
    const { sandboxes = [], containers = [] } = this.#observed(uid) ?? {};
    const [sandbox] = sandboxes;
    const running = containers.filter((each) => each.state.kind === "running");
    return sandbox?.state === "ready" && running.length > 0 && running.every((each) => each.sandboxId === sandbox.id);
  }

  /** Healthy work is left alone: what is wanted, of the right definition and in a good sandbox is not stopped. */
  applying(pod: DesiredPod, action: Action): void {
    this.#trace(`apply ${pod.uid} ${JSON.stringify(action)}`);
    this.lifecycle.applying(pod, action);
    if (this.#states.get(pod.uid) !== "active") return;
    for (const container of this.#containersOf(pod.uid)) {
      if (container.state.kind !== "running" || !hits(action, container)) continue;
      if (this.lifecycle.isUnwell(pod.uid, container.id)) continue;
      const spec = containersOf(pod.pod).find((each) => each.name === container.name);
      const sandbox = this.#observed(pod.uid)?.sandboxes[0];
      const healthy = sandbox?.id === container.sandboxId && sandbox.state === "ready";
      if (healthy && spec !== undefined && containerHash(spec) === container.hash) {
        this.broken(`${action.kind} hits healthy container ${container.name} of ${pod.uid}`);
      }
    }
  }

  /** Its agent can only guess whether it started nevertheless, and when. */
  failed(pod: DesiredPod, action: Action): void {
    if (action.kind === "stopContainer") this.lifecycle.stopFailed(pod);
    if (action.kind === "startContainer") {
      this.#guessed.add(`${pod.uid} ${action.container.name} ${action.container.attempt}`);
    }
  }

  happened(change: FakeChange): void {
    const { pod } = change;
    if ("container" in change) {
      const { name, attempt, id } = change.container;
      this.#trace(`${change.kind} ${pod.uid} ${name}/${attempt} ${id}`);
      if (change.kind === "containerStarted") this.#started(pod, change.container);
      if (change.kind === "containerExited") this.#exited(pod, change.container);
    } else {
      this.#trace(`${change.kind} ${pod.uid} ${change.id}`);
      if (change.kind === "sandboxCreated") {
        this.#mayStart(pod, "a sandbox");
        this.lifecycle.sandboxCreated(pod);
      }
    }
    const observed = this.#observed(pod.uid);
    if (observed === undefined)
      for (const key of this.#runs.keys()) if (key.startsWith(`${pod.uid} `)) this.#runs.delete(key);
    if ((observed?.sandboxes.length ?? 0) > MAX_SANDBOXES) this.broken(`${pod.uid} heaps up sandboxes`);
    for (const { name } of containersOf(pod.pod)) {
      const runs = observed?.containers.filter((each) => each.name === name) ?? [];
      if (runs.length > MAX_RUNS) this.broken(`${pod.uid} heaps up runs of ${name}`);
      if (runs.filter((each) => each.state.kind === "running").length > 1)
        this.broken(`${name} of ${pod.uid} runs twice`);
    }
  }

  #mayStart(pod: DesiredPod, what: string): void {
    const state = this.#states.get(pod.uid);
    if (this.#alive && state !== "active")
      this.broken(`${what} of ${pod.uid} starts while it is ${state ?? "unknown"}`);
  }

  #started(pod: DesiredPod, container: ObservedContainer): void {
    this.#mayStart(pod, `container ${container.name}`);
    this.lifecycle.started(pod, container);
    const { namespace, name } = pod.pod.metadata;
    for (const other of this.#allContainers()) {
      const same = other.pod.pod.metadata;
      if (other.pod.uid === pod.uid || same.name !== name || same.namespace !== namespace) continue;
      if (other.container.state.kind === "running") {
        this.broken(`${pod.uid} starts while ${other.pod.uid} of the same name runs`);
      }
    }
    const now = this.#clock.monotonic();
    const key = `${pod.uid} ${container.name} ${container.attempt}`;
    if (this.#runs.has(key)) this.broken(`${key} starts a second time`);
    const backoff = this.#dueBackoff(pod, container);
    const { hash, id, sandboxId } = container;
    this.#runs.set(key, { id, sandboxId, life: this.#life, hash, startedAt: now, endedAt: undefined, backoff });
  }

  /** Judges the wait before this run. @returns the one after it. */
  #dueBackoff(pod: DesiredPod, container: ObservedContainer): number {
    const { attempt, name, hash, backoff } = container;
    const key = `${pod.uid} ${name} ${attempt - 1}`;
    const before = this.#runs.get(key);
    if (before?.endedAt === undefined || before.hash !== hash || this.#guessed.has(key)) return backoff;
    // A pod starts from the beginning in a new sandbox.
    const isInit = pod.pod.spec.initContainers?.some((each) => each.name === name) === true;
    if (isInit && before.sandboxId !== container.sandboxId) return backoff;
    // Only the wall clock, which jumps here, has the times of events under a former agent.
    if (before.life !== this.#life || !this.#alive) return backoff;
    const forgiven = before.endedAt - before.startedAt >= RESET_AFTER_MS;
    const due = before.backoff === 0 || forgiven ? INITIAL_BACKOFF_MS : Math.min(before.backoff * 2, MAX_BACKOFF_MS);
    if (backoff !== due) this.broken(`${name}/${attempt} of ${pod.uid} has back-off ${backoff} instead of ${due}`);
    // A container that failed a probe waits from the end of the run before it.
    const since = this.lifecycle.isUnwell(pod.uid, before.id) ? before.startedAt : before.endedAt;
    const waited = this.#clock.monotonic() - since;
    if (!forgiven && waited + BACKOFF_TOLERANCE_MS < before.backoff) {
      this.broken(`${name}/${attempt} of ${pod.uid} waited ${waited} ms instead of ${before.backoff}`);
    }
    return due;
  }

  #exited(pod: DesiredPod, container: ObservedContainer): void {
    const record = this.#runs.get(`${pod.uid} ${container.name} ${container.attempt}`);
    if (record !== undefined) record.endedAt = this.#clock.monotonic();
  }

  #observed(uid: PodUid) {
    return this.#runtimes()
      .map((runtime) => runtime.inspect(uid))
      .find((each) => each.sandboxes.length > 0);
  }

  #containersOf(uid: PodUid): readonly ObservedContainer[] {
    return this.#observed(uid)?.containers ?? [];
  }

  *#allContainers(): Iterable<{ readonly pod: DesiredPod; readonly container: ObservedContainer }> {
    for (const runtime of this.#runtimes()) {
      for (const { uid } of runtime.list()) {
        const { manifest, containers } = runtime.inspect(uid);
        if (manifest !== undefined) for (const container of containers) yield { pod: manifest, container };
      }
    }
  }
}

const isNamesake = (one: DesiredPod, other: DesiredPod): boolean =>
  one.uid !== other.uid && one.pod.metadata.name === other.pod.metadata.name;

function hits(action: Action, container: ObservedContainer): boolean {
  switch (action.kind) {
    case "stopContainer":
    case "removeContainer":
      return action.containerId === container.id;
    case "stopSandbox":
    case "removeSandbox":
      return action.sandboxId === container.sandboxId;
    case "createSandbox":
    case "startContainer":
    case "updateContainer":
    case "updateSandbox":
      return false;
  }
}
