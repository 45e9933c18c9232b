import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, ignore, isCancelled } from "@picolet/protocol/errors.ts";
import { quantityOf, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import { type Clock, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import { type ExpandedClaim, MAX_EXPANDED_CLAIMS } from "@picolet/protocol/tunnel/csi-report.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import { apiUidOf } from "../../core/pods/pod-identity.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import type { CsiDrivers } from "./csi-drivers.ts";
import { type CsiVolume, driverSpec, pendingExpansion } from "./csi-source.ts";
import type { CsiVolumes } from "./csi-volumes.ts";

/**
 * The shortest time between two publications of a volume, the kubelet's `syncFrequency`. There is no jitter: the driver
 * is local and the volumes' times differ by themselves, and a token is requested by its own age.
 */
const REPUBLISH_AFTER = seconds(60);
/** Pauses between attempts to expand one volume, the kubelet's longest. */
const EXPAND_RETRY: BackoffPolicy = { first: seconds(1), max: seconds(122) };

export interface CsiUpkeepComponents {
  readonly volumes: Pick<CsiVolumes, "republish" | "expand" | "reportsHealth" | "stats">;
  readonly drivers: Pick<CsiDrivers, "refreshLimit">;
  readonly objects: Pick<ClusterObjects, "object">;
  /** Fires when `objects` may have changed. */
  readonly objectsChanged: Watch<unknown>;
  readonly events: EventRecorder;
  readonly clock: Clock;
}

/** A published volume. */
interface Entry {
  readonly pod: DesiredPod;
  readonly volume: CsiVolume;
  /** The pod's name of it. */
  readonly name: string;
  dueAt: MonotonicMs;
  isBusy: boolean;
  /** The condition that the pod has an event of; "": none. */
  abnormal: string;
  /** The failure that the pod has an event of; "": none. */
  reported: string;
}

/** A driver that is asked again and again how many volumes it takes. */
interface Limit {
  dueAt: MonotonicMs;
  isBusy: boolean;
}

/** A volume that is larger than its claim shows. */
interface Expansion {
  readonly claim: ExpandedClaim;
  isDone: boolean;
  isBusy: boolean;
  failures: number;
  retryAt: MonotonicMs;
}

/**
 * Maintains published volumes while their pods run: publishes them again with a current token, expands them when their
 * claims have grown, and reports those that their drivers find abnormal. It also asks drivers for their limits of
 * volumes, as often as their CSIDrivers say. Each volume has tasks of its own, so a driver that hangs delays no other
 * volume.
 */
export class CsiUpkeep {
  readonly #components: CsiUpkeepComponents;
  readonly #alarm: Alarm;
  /** By pod and by the volume's `specName`. */
  readonly #entries = new Map<string, Map<string, Entry>>();

  /** By the volume's `specName`. */
  readonly #expansions = new Map<string, Expansion>();
  /** By the driver's name. */
  readonly #limits = new Map<string, Limit>();
  readonly #expandedClaims = new WatchSource<string | undefined>(undefined);
  readonly #tasks = new Set<Promise<void>>();
  readonly #nodeName: string;

  constructor(components: CsiUpkeepComponents, init: { readonly nodeName: string }) {
    this.#components = components;
    this.#nodeName = init.nodeName;
    this.#alarm = new Alarm(components.clock);
  }

  /** JSON of `ExpandedClaim`s whose status does not show their capacity yet; undefined: there are none. */
  get expandedClaims(): Watch<string | undefined> {
    return this.#expandedClaims;
  }

  /** Called after each publication for a new or changed pod. @param name of the volume in the pod */
  add(pod: DesiredPod, volume: CsiVolume, name: string): void {
    const entries = this.#entries.get(pod.uid) ?? new Map<string, Entry>();
    const { abnormal = "" } = entries.get(volume.specName) ?? {};
    const entry = { pod, volume, name, dueAt: this.#nextDue(), isBusy: false, abnormal, reported: "" };
    this.#entries.set(pod.uid, entries.set(volume.specName, entry));
    this.#alarm.set(millis(0));
  }

  forget(uid: string): void {
    this.#entries.delete(uid);
  }

  async run(signal: AbortSignal): Promise<void> {
    const follow = async (): Promise<void> => {
      for await (const _ of this.#components.objectsChanged.changes(signal))
        if (this.#entries.size > 0 || this.#expansions.size > 0) this.#alarm.set(millis(0));
    };
    await Promise.all([follow(), this.#maintain(signal)]);
  }

  async #maintain(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        await this.#alarm.ring(signal);
        this.#expandAll(signal);
        this.#askLimits(signal);
        for (const entry of this.#due()) this.#start(entry, () => this.#maintainOne(entry, signal));
        const times = [...this.#all(), ...this.#limits.values()].flatMap(({ dueAt, isBusy }) =>
          isBusy ? [] : [dueAt],
        );
        const retries = [...this.#expansions.values()].flatMap(({ isDone, isBusy, retryAt }) =>
          isDone || isBusy ? [] : [retryAt],
        );
        const next = Math.min(...times, ...retries);
        if (next < Number.POSITIVE_INFINITY) this.#alarm.set(millis(Math.max(0, next - this.#now())));
      }
    } finally {
      await Promise.all(this.#tasks);
    }
  }

  /** One task at a time for an entry or an expansion; its end is a reason to plan again. */
  #start(busy: { isBusy: boolean }, work: () => Promise<void>): void {
    busy.isBusy = true;
    const task: Promise<void> = work()
      .catch((error: unknown) => {
        if (!isCancelled(error)) throw error;
      })
      .finally(() => {
        busy.isBusy = false;
        this.#tasks.delete(task);
        this.#alarm.set(millis(0));
      });
    this.#tasks.add(task);
  }

  async #maintainOne(entry: Entry, signal: AbortSignal): Promise<void> {
    await Promise.all([this.#republish(entry, signal), this.#checkHealth(entry, signal)]);
    entry.dueAt = this.#nextDue();
  }

  /** An event tells each change for the worse; `/stats/summary` and a metric have the state. */
  async #checkHealth(entry: Entry, signal: AbortSignal): Promise<void> {
    const { pod, volume, name } = entry;
    const { volumes, events } = this.#components;
    if (!volumes.reportsHealth(volume)) return;
    const figures = await volumes
      .stats(pod.uid, volume.specName, signal)
      .catch(ignore("a volume whose files cannot be read has no condition; its end reports them"));
    const condition = figures?.condition;
    if (condition === undefined) return;
    const abnormal = condition.isAbnormal ? `Volume ${name}: ${condition.message}` : "";
    if (abnormal !== "" && abnormal !== entry.abnormal) warnOfPod(events, pod, "VolumeConditionAbnormal", abnormal);
    entry.abnormal = abnormal;
  }

  #askLimits(signal: AbortSignal): void {
    const { objects, drivers } = this.#components;
    const now = this.#now();
    const names = new Set(this.#all().map(({ volume }) => volume.driver));
    for (const name of this.#limits.keys()) if (!names.has(name)) this.#limits.delete(name);
    for (const name of names) {
      const { limitPeriod } = driverSpec(objects, name);
      if (limitPeriod === undefined) {
        this.#limits.delete(name);
        continue;
      }
      const next = (now + limitPeriod) as MonotonicMs;
      const limit = this.#limits.get(name) ?? { dueAt: next, isBusy: false };
      this.#limits.set(name, limit);
      if (limit.isBusy || limit.dueAt > now) continue;
      limit.dueAt = next;
      this.#start(limit, () => drivers.refreshLimit(name, signal).catch(ignore("the driver is asked again")));
    }
  }

  #expandAll(signal: AbortSignal): void {
    const entries = new Map(this.#all().map((entry) => [entry.volume.specName, entry]));
    for (const name of this.#expansions.keys()) if (!entries.has(name)) this.#expansions.delete(name);
    for (const entry of entries.values()) this.#expand(entry, signal);
    const done = [...this.#expansions.values()].filter(({ isDone }) => isDone).map(({ claim }) => claim);
    const report = done.length === 0 ? undefined : JSON.stringify(done.slice(0, MAX_EXPANDED_CLAIMS));
    if (report !== this.#expandedClaims.current) this.#expandedClaims.set(report);
  }

  #expand({ pod, volume }: Entry, signal: AbortSignal): void {
    const claim = pendingExpansion(this.#components.objects, volume);
    const name = volume.specName;
    if (claim === undefined) {
      this.#expansions.delete(name);
      return;
    }
    const known = this.#expansions.get(name);
    const fresh = { claim, isDone: false, isBusy: false, failures: 0, retryAt: this.#now() };
    const expansion = known?.claim.capacity === claim.capacity ? known : fresh;
    this.#expansions.set(name, expansion);
    if (expansion.isDone || expansion.isBusy || expansion.retryAt > this.#now()) return;
    this.#start(expansion, () => this.#carryOut(expansion, { pod, volume }, signal));
  }

  async #carryOut(
    expansion: Expansion,
    { pod, volume }: Pick<Entry, "pod" | "volume">,
    signal: AbortSignal,
  ): Promise<void> {
    const { volumes, events } = this.#components;
    const { claim } = expansion;
    const name = volume.specName;
    try {
      const bytes = Number(quantityValue(quantityOf(claim.capacity)));
      // A driver without expansion on nodes leaves the claim to its controller.
      if (!(await volumes.expand(pod, volume, bytes, signal))) {
        expansion.retryAt = this.#nextDue();
        return;
      }
      expansion.isDone = true;
      const { namespace, name: podName } = pod.pod.metadata;
      const regarding = { kind: "Pod", namespace, name: podName, uid: apiUidOf(pod), fieldPath: "" } as const;
      const message = `MountVolume.NodeExpandVolume succeeded for volume ${JSON.stringify(name)} ${this.#nodeName}`;
      events.record({ regarding, type: "Normal", reason: "FileSystemResizeSuccessful", message });
    } catch (error) {
      if (isCancelled(error)) throw error;
      expansion.failures += 1;
      expansion.retryAt = (this.#now() + backoffDelay(EXPAND_RETRY, expansion.failures)) as MonotonicMs;
      warnOfPod(events, pod, "VolumeResizeFailed", describeError(error));
    }
  }

  async #republish(entry: Entry, signal: AbortSignal): Promise<void> {
    const { pod, volume } = entry;
    try {
      await this.#components.volumes.republish(pod, volume, signal);
      entry.reported = "";
    } catch (error) {
      if (isCancelled(error)) throw error;
      // The pod keeps what is mounted, as in the kubelet.
      const message = describeError(error);
      if (entry.reported !== message) warnOfPod(this.#components.events, pod, "FailedMount", message);
      entry.reported = message;
    }
  }

  #due(): readonly Entry[] {
    const now = this.#now();
    return this.#all().filter(({ dueAt, isBusy }) => !isBusy && dueAt <= now);
  }

  #all(): readonly Entry[] {
    return [...this.#entries.values()].flatMap((entries) => [...entries.values()]);
  }

  #now(): MonotonicMs {
    return this.#components.clock.monotonic();
  }

  #nextDue(): MonotonicMs {
    return (this.#now() + REPUBLISH_AFTER) as MonotonicMs;
  }
}
