import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import type { CsiVolume } from "./csi-source.ts";
import type { CsiVolumes } from "./csi-volumes.ts";

/**
 * The shortest time between two publications of a volume, the kubelet's `syncFrequency`. There is no jitter: the driver
 * is local and the volumes' times differ by themselves, and a token is requested by its own age.
 */
const REPUBLISH_AFTER = seconds(60);

export interface CsiUpkeepComponents {
  readonly volumes: Pick<CsiVolumes, "republish">;
  readonly events: EventRecorder;
  readonly clock: Clock;
}

/** A published volume. */
interface Entry {
  readonly pod: DesiredPod;
  readonly volume: CsiVolume;
  dueAt: MonotonicMs;
  /** The failure that the pod has an event of; "": none. */
  reported: string;
}

/** Maintains published volumes while their pods run: publishes them again with a current token. */
export class CsiUpkeep {
  readonly #components: CsiUpkeepComponents;
  readonly #alarm: Alarm;
  /** By pod and by the volume's `specName`. */
  readonly #entries = new Map<string, Map<string, Entry>>();

  constructor(components: CsiUpkeepComponents) {
    this.#components = components;
    this.#alarm = new Alarm(components.clock);
  }

  /** Called after each publication for a new or changed pod. */
  add(pod: DesiredPod, volume: CsiVolume): void {
    const entries = this.#entries.get(pod.uid) ?? new Map<string, Entry>();
    this.#entries.set(pod.uid, entries.set(volume.specName, { pod, volume, dueAt: this.#nextDue(), reported: "" }));
    this.#alarm.set(REPUBLISH_AFTER);
  }

  forget(uid: string): void {
    this.#entries.delete(uid);
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#alarm.ring(signal);
      // A driver that hangs delays others by the limit of its calls, some minutes; a token lasts ten at least.
      await Promise.all(this.#due().map((entry) => this.#republish(entry, signal)));
      const next = Math.min(...this.#all().map(({ dueAt }) => dueAt));
      if (next < Number.POSITIVE_INFINITY) this.#alarm.set(millis(Math.max(0, next - this.#now())));
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
    entry.dueAt = this.#nextDue();
  }

  #due(): readonly Entry[] {
    const now = this.#now();
    return this.#all().filter(({ dueAt }) => dueAt <= now);
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
