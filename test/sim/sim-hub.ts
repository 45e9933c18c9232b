/**
 * The hub in a simulation: its desired pods, the reports to it, and whether it can be reached. It outlives the agent.
 */

import type { OutgoingStatus } from "@picolet/agent/core/hub/tunnel-ports.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type ObjectKey, objectKey, type RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import { type PodObject, RemoteHub } from "../support/unit/tunnel/remote-hub.ts";
import { asObject, asPod, deleted, isSameWork } from "./sim-manifests.ts";

export class SimHub {
  readonly remote = new RemoteHub();
  /** Counts up with everything that a session may have to carry. */
  readonly changed = new WatchSource(0);
  /** The last report of each pod that exists, by UID. */
  readonly statuses = new Map<string, OutgoingStatus["status"]>();
  isReachable = true;
  /** The share of reports that are not acknowledged, or asked for again. */
  lossiness = 0;
  #backup: ReadonlyMap<ObjectKey, RemoteObject> = new Map();

  get names(): string[] {
    return this.remote.pods.map(({ metadata }) => metadata.name);
  }

  /** Those that are to run. */
  get wanted(): Pod[] {
    return this.remote.pods.map(asPod).filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  }

  pod(name: string): Pod | undefined {
    const object = this.remote.pod(name);
    return object === undefined ? undefined : asPod(object);
  }

  put(pod: Pod): void {
    this.remote.put(asObject(pod));
    this.#poke();
  }

  /** Gracefully; a second time with less time. */
  delete(name: string, graceSeconds: number): void {
    const pod = this.pod(name);
    const { deletionGracePeriodSeconds: known = Number.POSITIVE_INFINITY } = pod?.metadata ?? {};
    if (pod !== undefined && graceSeconds < known) this.put(deleted(pod, graceSeconds));
  }

  remove(name: string): void {
    this.remote.removePod(name);
    this.#poke();
  }

  backUp(): void {
    this.#backup = new Map(this.remote.objects);
  }

  restart(how: "as it was" | "from its backup"): void {
    this.remote.restart(how === "as it was" ? undefined : this.#backup);
    this.#poke();
  }

  setReachable(isReachable: boolean): void {
    this.isReachable = isReachable;
    this.#poke();
  }

  /**
   * Takes a report of the agent.
   * @returns the fault in the report
   */
  receive({ namespace, name, uid, status, gone }: OutgoingStatus): void {
    const object = this.remote.objects.get(objectKey("Pod", namespace, name))?.object as PodObject | undefined;
    if (object?.metadata.uid !== uid) return;
    this.statuses.set(uid, status);
    if (gone && object.metadata.deletionTimestamp !== undefined) this.remove(name);
  }

  /** True when a desired pod equals the running one, only under another UID. */
  hasSuccessorOf(running: Pod): boolean {
    const pod = this.pod(running.metadata.name);
    if (pod === undefined || pod.metadata.deletionTimestamp !== undefined) return false;
    return pod.metadata.uid !== running.metadata.uid && isSameWork(running, pod);
  }

  #poke(): void {
    this.changed.set(this.changed.current + 1);
  }
}
