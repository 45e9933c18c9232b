/** Probes, hooks and admission that do what a test tells them, and remember what they were asked. */
import type { PodAdmission, Rejection, ResizeVerdict } from "@picolet/agent/core/pods/pod-admission.ts";
import type { HookRunner, HookTarget, ProbeResult, Prober } from "@picolet/agent/core/pods/probe-ports.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { LifecycleHandler } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";

/** A prober without results until the test gives one. */
export class FakeProber implements Prober {
  /** `web ending=false`, whenever that is another than the last of this pod. */
  readonly followed: string[] = [];
  readonly #results = new Map<PodUid, Map<string, ProbeResult>>();
  readonly #sinks = new Set<(uid: PodUid) => void>();
  readonly #states = new Map<PodUid, string>();
  /** Called with the result that a worker reports of a run. */
  onFollow: (run: string, told: ProbeResult | undefined) => void = () => undefined;

  follow(
    { uid }: DesiredPod,
    { containers }: ObservedPod,
    _adapter: RuntimeAdapter,
    state: { readonly ending: boolean; readonly wasReady: (containerId: string) => ProbeResult | undefined },
  ): void {
    const told = `${uid} ending=${state.ending}`;
    if (this.#states.get(uid) !== told) this.followed.push(told);
    this.#states.set(uid, told);
    for (const { id, state: run } of containers) if (run.kind === "running") this.onFollow(id, state.wasReady(id));
  }

  say(uid: PodUid, containerId: string, result: ProbeResult): void {
    const known = this.#results.get(uid) ?? new Map<string, ProbeResult>();
    this.#results.set(uid, known.set(containerId, result));
    for (const changed of this.#sinks) changed(uid);
  }

  results(uid: PodUid): ReadonlyMap<string, ProbeResult> {
    return this.#results.get(uid) ?? new Map();
  }

  forget(uid: PodUid): void {
    this.#results.delete(uid);
    this.#states.delete(uid);
  }

  observe(changed: (uid: PodUid) => void): Disposable {
    this.#sinks.add(changed);
    return { [Symbol.dispose]: () => this.#sinks.delete(changed) };
  }
}

/** Handlers are `sleep`, and `exec` of `fail`, `hang` or anything else, which is done at once. */
export class FakeHooks implements HookRunner {
  /** `begin container-1 app`, and `end` or `cut` of it, in order. */
  readonly calls: string[] = [];
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async run(handler: LifecycleHandler, target: HookTarget, signal: AbortSignal): Promise<void> {
    const hook = `${target.containerId} ${target.container.name}`;
    this.calls.push(`begin ${hook}`);
    try {
      await this.#run(handler, signal);
      this.calls.push(`end ${hook}`);
    } catch (error) {
      this.calls.push(`${signal.aborted ? "cut" : "fail"} ${hook}`);
      throw error;
    }
  }

  async #run({ exec, sleep }: LifecycleHandler, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw cancelled("the hook");
    if (sleep !== undefined) return this.#clock.sleep(seconds(sleep.seconds), signal);
    const [command] = exec?.command ?? [];
    if (command === "fail") throw new PicoletError("failed", "Exec lifecycle hook ([fail]) failed");
    if (command === "hang") return this.#clock.sleep(seconds(1_000_000), signal);
  }
}

/** Takes every pod that `rejects` says nothing of. */
export class FakeAdmission implements PodAdmission {
  /** `web beside [db, cache]` */
  readonly asked: string[] = [];
  rejects: (pod: DesiredPod) => Rejection | undefined = () => undefined;

  admit(pod: DesiredPod, others: readonly DesiredPod[]): Rejection | undefined {
    this.asked.push(`${pod.uid} beside [${others.map(({ uid }) => uid).join(", ")}]`);
    return this.rejects(pod);
  }

  /** What is asked of it is granted unless this says something. */
  defers: (requested: DesiredPod, others: readonly DesiredPod[]) => string | undefined = () => undefined;

  resize(requested: DesiredPod, _allocated: DesiredPod, others: readonly DesiredPod[]): ResizeVerdict {
    const message = this.defers(requested, others);
    return message === undefined ? { kind: "granted" } : { kind: "pending", reason: "Deferred", message };
  }
}
