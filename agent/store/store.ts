import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import { type ObjectKey, objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { OutgoingEvents, OutgoingStatuses } from "../core/hub/tunnel-ports.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { KeptRecords } from "../core/store/kept-records.ts";
import type { Sealer } from "../core/store/sealer.ts";
import type { DesiredStore, EventStore, ObjectStore, StatusOutbox } from "../core/store/store-ports.ts";
import type { Connection } from "./connection.ts";
import { DesiredPods } from "./desired-pods.ts";
import { type DesiredContents, readDesired } from "./desired-rows.ts";
import type { NodeEventRate } from "./event-rate-limit.ts";
import { type EventContents, readEvents } from "./event-rows.ts";
import { Events } from "./events.ts";
import { countKept, KeptTable } from "./kept-table.ts";
import { type ObjectContents, readObjects } from "./object-rows.ts";
import { PodStatuses, type RemotePod } from "./pod-statuses.ts";
import { RemoteObjectTable } from "./remote-object-table.ts";
import { readStatuses, type StatusContents } from "./status-rows.ts";
import { StoreFile, type StoreState } from "./store-file.ts";

/**
 * Statuses and events come in bursts of a few per pod; one transaction takes a whole burst. A power cut costs as much.
 */
const TICK = seconds(1);
/** The delay of counts of repeated events: a pod that fails for a week writes once a minute, not at every failure. */
const LAZY_TICK = seconds(60);
/** From this stretch on counts alone make no batch: they are written with other records. */
const MOST_STRETCHED = 60;
/** After a failed write the next try, doubled up to MAX_RETRY: space on a disk comes back in minutes, if at all. */
const RETRY: BackoffPolicy = { first: seconds(2), max: seconds(60) };
/** The interval at which a store in memory checks whether its file can be written again. */
const RETURN_TO_FILE = seconds(60);

/** The kubelet's `eventRecordQPS` and `eventBurst`. */
const EVENT_RATE: NodeEventRate = { perSecond: 50, burst: 100 };

interface Contents {
  readonly desired: DesiredContents;
  readonly statuses: StatusContents;
  readonly events: EventContents;
  readonly objects: ObjectContents;
  readonly kept: number;
}

/**
 * The agent's state across reboots and power cuts, in one SQLite file that one process has open. It works from its
 * construction to its disposal; `run` only writes the batches. With nothing to write there is no timer and no write.
 */
export class Store implements Component {
  readonly name = "store";
  readonly desired: DesiredStore;
  readonly statuses: StatusOutbox & OutgoingStatuses & Pick<PodStatuses, "acknowledged">;
  readonly events: EventStore & OutgoingEvents;
  readonly objects: ObjectStore;
  /** Secrets that are on disk and cannot be opened, until the hub has sent or deleted them. */
  readonly unreadable: Watch<ReadonlySet<ObjectKey>>;
  readonly kept: KeptRecords;
  readonly #clock: Clock;
  readonly #file: StoreFile<Contents>;
  readonly #ring: Events;
  readonly #alarm: Alarm;
  #isKeeping = false;
  #stretch = 1;
  #triedFileAt: MonotonicMs;

  /**
   * @param components.sealer encrypts Secrets; without one they are plain, and those that were encrypted cannot be
   * opened
   * @param init.path the database file, absolute, its folder is made when it is missing; or `:memory:`
   * @param init.maxBytes of the database; writes fail as on a full disk when it is reached
   * @param init.nodeName what events of the node itself concern
   * @param init.eventRate the kubelet's unless given
   * @throws `conflict` when another process has the file open, or a newer picolet wrote it. Damage, a full disk and a
   * place that cannot be written are no errors: see `state`.
   */
  constructor(
    components: { readonly clock: Clock; readonly log: Log; readonly sealer?: Sealer | undefined },
    init: {
      readonly path: string;
      readonly maxBytes?: number;
      readonly nodeName?: string;
      readonly eventRate?: NodeEventRate;
    },
  ) {
    const { clock, log, sealer } = components;
    this.#clock = clock;
    this.#triedFileAt = clock.monotonic();
    this.#alarm = new Alarm(clock);
    const { nodeName = "", eventRate: rate = EVENT_RATE, ...place } = init;
    this.#file = new StoreFile(components, { ...place, load: (connection) => load(connection, sealer) });
    const { desired, statuses, events, objects, kept: keys } = this.#file.contents;
    const file = this.#file;
    const keepBack = (urgency: "soon" | "later" = "soon"): void => this.#keepBack(urgency);
    const pods = new DesiredPods({ file, keepBack }, desired);
    const known = (pod: RemotePod) => knownOf(pod, this.objects, pods);
    const outbox = new PodStatuses({ file, keepBack, known, flush: () => void this.flush() }, statuses);
    const remind = (delay: Millis): void => this.#alarm.set(delay);
    const ring = new Events({ clock, log, file, keepBack, remind, nodeName, rate }, events);
    const table = new RemoteObjectTable({ file, log, sealer, keepBack, pods, statuses: outbox }, objects);
    const kept = new KeptTable({ file, keepBack, log }, keys);
    for (const part of [pods, outbox, ring, table, kept]) file.join(part);
    this.objects = table;
    this.unreadable = table.unreadable;
    this.kept = kept;
    // A power cut may have come between an object's end and this.
    outbox.sweep();
    this.desired = pods;
    this.statuses = outbox;
    this.events = ring;
    this.#ring = ring;
  }

  /** The durability of writes, and the state of the file when it was opened. */
  get state(): Watch<StoreState> {
    return this.#file.state;
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (this.state.current.kind === "inMemory") this.#alarm.set(RETURN_TO_FILE);
      await this.#alarm.ring(signal);
      this.#ring.reportCounts("due");
      this.#returnToFile();
      await this.#flushUntilWritten(signal);
    }
  }

  /** Writes what is kept back, now. @returns false when the disk did not take it; it is kept then. */
  flush(): boolean {
    if (!this.#isKeeping) return true;
    // A part that has more to write than one batch takes keeps it back again.
    this.#isKeeping = false;
    const isWritten = this.#file.flush();
    if (!isWritten) this.#isKeeping = true;
    return isWritten;
  }

  /**
   * Batches wait `factor` times as long from now on, so that fewer of them wear the disk. Desired pods are still
   * written at once. @param factor 1 or more
   */
  stretch(factor: number): void {
    this.#stretch = factor;
  }

  /** Gives memory back that makes reading faster. */
  shed(): void {
    this.#file.shrink();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ring.reportCounts("all");
    this.flush();
    this.#file.close();
  }

  async #flushUntilWritten(signal: AbortSignal): Promise<void> {
    for (let tries = 1; !this.flush(); tries += 1) await this.#clock.sleep(backoffDelay(RETRY, tries), signal);
  }

  #returnToFile(): void {
    const now = this.#clock.monotonic();
    if (now - this.#triedFileAt < RETURN_TO_FILE) return;
    this.#triedFileAt = now;
    this.#file.returnToFile();
  }

  #keepBack(urgency: "soon" | "later"): void {
    this.#isKeeping = true;
    if (urgency === "soon") this.#alarm.set(millis(TICK * this.#stretch));
    else if (this.#stretch < MOST_STRETCHED) this.#alarm.set(millis(LAZY_TICK * this.#stretch));
  }
}

const load = (connection: Connection, sealer: Sealer | undefined): Contents => ({
  desired: readDesired(connection),
  statuses: readStatuses(connection),
  events: readEvents(connection),
  objects: readObjects(connection, sealer),
  kept: countKept(connection),
});

/** Two incarnations can belong to one pod of the API server, which is reported as gone when both are. */
function knownOf(
  { uid, namespace, name, apiUid }: RemotePod,
  objects: ObjectStore,
  { desired }: DesiredStore,
): { readonly isAwaited: boolean; readonly isThere: boolean } {
  const { metadata } = (objects.object(objectKey("Pod", namespace, name)) ?? {}) as Partial<Pod>;
  const isThere = metadata?.uid === apiUid;
  const { pods, removed } = desired.current;
  const isLast = ![...pods.values(), ...removed.values()].some((each) => each.uid !== uid && apiUidOf(each) === apiUid);
  return { isThere, isAwaited: isThere && metadata?.deletionTimestamp !== undefined && isLast };
}
