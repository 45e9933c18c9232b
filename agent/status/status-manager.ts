import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { PodStatusRecord, StatusOutbox } from "../core/store/store-ports.ts";
import type { PodStatusRecorder, PodView } from "../plan/pod-view.ts";
import { deriveStatus } from "./derive-status.ts";

/** A pod's last view, with the status derived from it. */
export interface PodEntry {
  readonly view: PodView;
  readonly status: PodStatus;
}

/** The status of a pod that was ended before its worker inspected it. */
const NEVER_SEEN: PodStatus = { phase: "Failed" };

const recordOf = (desired: DesiredPod, status: PodStatus): PodStatusRecord => {
  const { namespace, name } = desired.pod.metadata;
  return { uid: desired.uid, apiUid: apiUidOf(desired), namespace, name, status };
};

/** Derives statuses from the workers' views, keeps the latest of each pod, and writes those that changed. */
export class StatusManager implements PodStatusRecorder {
  readonly #outbox: StatusOutbox;
  readonly #log: Log;
  /** At most one for each pod with a worker. */
  readonly #entries = new Map<PodUid, PodEntry>();
  readonly #changes = new WatchSource(0);

  constructor(components: { readonly outbox: StatusOutbox; readonly log: Log }) {
    this.#outbox = components.outbox;
    this.#log = components.log;
  }

  /** By uid. Answers from memory. */
  get pods(): ReadonlyMap<PodUid, PodEntry> {
    return this.#entries;
  }

  /** Counts up whenever a status, or the state of a worker, has changed, or a pod is gone. */
  get changes(): ListenableWatch<number> {
    return this.#changes;
  }

  previous(uid: PodUid): PodStatus | undefined {
    const entry = this.#entries.get(uid);
    if (entry !== undefined) return entry.status;
    return this.#trying("cannot read a pod's status", uid, () => this.#outbox.get(uid)?.status);
  }

  publish(view: PodView): void {
    const { uid } = view.desired;
    const before = this.#entries.get(uid);
    const derived = deriveStatus(view);
    const same = before !== undefined && JSON.stringify(before.status) === JSON.stringify(derived);
    const status = same ? before.status : derived;
    this.#entries.set(uid, { view, status });
    // A pod that took over a running one has the same status under its own UID.
    const renamed = before !== undefined && apiUidOf(before.view.desired) !== apiUidOf(view.desired);
    // A damaged file that was replaced has lost the status.
    const isStored =
      same && !renamed && this.#trying("cannot read a pod's status", uid, () => this.#outbox.has(uid)) !== false;
    if (isStored && before.view.worker.kind === view.worker.kind) return;
    if (!isStored) {
      this.#trying("cannot write a pod's status", uid, () => {
        this.#outbox.put(recordOf(view.desired, status));
        if (before === undefined) this.#outbox.resend(uid);
      });
    }
    this.#changes.set(this.#changes.current + 1);
  }

  flush(): void {
    try {
      this.#outbox.flush();
    } catch (error) {
      this.#log.warn("cannot write statuses now", { error: describeError(error) });
    }
  }

  finish(desired: DesiredPod): void {
    const { uid } = desired;
    const status = this.previous(uid) ?? NEVER_SEEN;
    this.#trying("cannot write a pod's last status", uid, () => this.#outbox.finish(recordOf(desired, status)));
    if (this.#entries.delete(uid)) this.#changes.set(this.#changes.current + 1);
  }

  /** The pod continues even if its status cannot be read or written. */
  #trying<T>(message: string, uid: PodUid, access: () => T): T | undefined {
    try {
      return access();
    } catch (error) {
      this.#log.warn(message, { pod: uid, error: describeError(error) });
      return undefined;
    }
  }
}
