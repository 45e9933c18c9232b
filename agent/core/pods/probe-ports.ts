/** Ports of pod workers to probes and hooks. `agent/probes` implements both. */
import type { Container, LifecycleHandler } from "@picolet/protocol/pod/pod.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface ProbeResult {
  /** The start-up probe has passed, or there is none. */
  readonly started: boolean;
  readonly ready: boolean;
  /** Set when the liveness or start-up probe has reached its failure threshold: the container must restart. */
  readonly failed?: ProbeFailure | undefined;
}

export interface ProbeFailure {
  readonly probe: "liveness" | "startup";
  /** `terminationGracePeriodSeconds` of the probe; `undefined`: the pod's. */
  readonly gracePeriod: Millis | undefined;
}

/** Probes of the containers that run. Every result belongs to one run of a container, by its id. */
export interface Prober {
  /**
   * Called in every round of a pod's worker with what it sees: begins the probes of what runs, and ends those of what
   * runs no more. Cheap when nothing has changed.
   * @param ending the pod is being ended: readiness alone is probed from now on, as the kubelet does.
   * @param wasReady what the status written last, also by an agent before this one, says of a container's run: it holds
   * until the first result, so that a restart of the agent takes nothing out of service.
   */
  follow(
    pod: DesiredPod,
    observed: ObservedPod,
    adapter: RuntimeAdapter,
    state: { readonly ending: boolean; readonly wasReady: (containerId: string) => ProbeResult | undefined },
  ): void;
  /** By container id; one that is missing has no probes. */
  results(uid: PodUid): ReadonlyMap<string, ProbeResult>;
  /** Nothing of the pod is left. */
  forget(uid: PodUid): void;
  /** @param changed called when a result of that pod is another one now. */
  observe(changed: (uid: PodUid) => void): Disposable;
}

export interface HookTarget {
  readonly pod: DesiredPod;
  readonly container: Container;
  readonly containerId: string;
  /** The pod's addresses, its main one first; the node's with the host's network. */
  readonly podIps: readonly string[];
  readonly adapter: RuntimeAdapter;
}

/** Runs postStart and preStop handlers: exec, httpGet, sleep (tcpSocket does nothing and fails, as in Kubernetes). */
export interface HookRunner {
  /**
   * Resolves when the handler has succeeded.
   * @throws PicoletError `failed` with the kubelet's message, which goes into the container's status and the log; the
   * events FailedPostStartHook and FailedPreStopHook contain only `PostStartHook failed` and `PreStopHook failed`, so
   * that no secret leaks. `cancelled` when `signal` aborts (end of the grace period, removal of the pod), which is not
   * reported.
   */
  run(handler: LifecycleHandler, target: HookTarget, signal: AbortSignal): Promise<void>;
}
