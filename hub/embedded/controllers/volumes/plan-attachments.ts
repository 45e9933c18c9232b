/**
 * Plans the attachments of one node. Pure. Rules and messages of pkg/controller/volume/attachdetach (Kubernetes 1.34)
 * with its default options: a volume that a node has in use is not detached, unless the node has not been ready for six
 * minutes since its last pod with the volume ended, or has the taint out-of-service.
 */
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { parseAttachedVolumeName } from "@picolet/hub-core/volume-attachments.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import type { ObjectEvent } from "../event-recorder.ts";
import type { DriverVolume } from "./attachable-volumes.ts";

/** Kubernetes' `maxWaitForUnmountDuration`. */
const FORCE_AFTER = seconds(360);
/** Time for the driver's attacher; then the pods get an event, and the wait begins again. */
const ATTACH_TIMEOUT = seconds(120);
const COMPONENT = "attachdetach-controller";

export interface Attachment extends KubeObject {
  readonly spec?: {
    readonly attacher?: string;
    readonly nodeName?: string;
    readonly source?: { readonly persistentVolumeName?: string };
  };
  readonly status?: {
    readonly attached?: boolean;
    readonly attachError?: { readonly time?: string; readonly message?: string };
  };
}

export interface WantedVolume extends DriverVolume {
  /** Pods of the node that use it, at least one. */
  readonly pods: readonly KubeObject[];
}

/** An attachment that has the name of its volume on this node. */
export interface KnownAttachment {
  readonly id: string;
  readonly driver: string;
  readonly handle: string;
  readonly object: Attachment;
}

export interface AttachedVolume {
  readonly name: string;
  readonly devicePath: string;
}

/** The controller's memory of a node. A controller that starts again counts times again, as Kubernetes' does. */
export interface NodeMemory {
  /** When the last pod with the volume was found gone, by the volume's `id`. */
  readonly unwantedSince: ReadonlyMap<string, number>;
  /** Since when the attacher has been asked, by the attachment's UID. */
  readonly askedSince: ReadonlyMap<string, number>;
  /** Keys of events that are not to be repeated while their cause lasts. */
  readonly reported: ReadonlySet<string>;
}

export const NO_MEMORY: NodeMemory = { unwantedSince: new Map(), askedSince: new Map(), reported: new Set() };

export interface AttachmentsView {
  readonly wanted: readonly WantedVolume[];
  readonly known: readonly KnownAttachment[];
  /** Undefined: there is no such node, or no controller attaches its volumes. */
  readonly node:
    | {
        readonly volumesAttached: readonly AttachedVolume[];
        readonly volumesInUse: readonly string[];
        readonly isReady: boolean;
        readonly isOutOfService: boolean;
      }
    | undefined;
  /** Pods of other nodes that have the volume, where one of them has it attached; undefined: none has. */
  readonly usersElsewhere: (volume: DriverVolume) => readonly KubeObject[] | undefined;
  readonly memory: NodeMemory;
  readonly nowMs: number;
}

export interface PodEvent {
  readonly pod: KubeObject;
  readonly event: ObjectEvent;
}

export interface AttachmentsPlan {
  readonly attach: readonly WantedVolume[];
  /** After the Node no longer shows them. Forced: also if the node has them in use. */
  readonly detach: readonly { readonly attachment: KnownAttachment; readonly isForced: boolean }[];
  /** Volumes that wait until another node has detached them. */
  readonly blocked: readonly DriverVolume[];
  /** For the Node's status; volumes of other plugins stay in it. */
  readonly volumesAttached: readonly AttachedVolume[];
  readonly events: readonly PodEvent[];
  readonly memory: NodeMemory;
  /** When to plan again although nothing has changed. */
  readonly again: Millis | undefined;
}

export function planAttachments(view: AttachmentsView): AttachmentsPlan {
  const plan = new Planner(view);
  for (const attachment of view.known) plan.follow(attachment);
  for (const volume of view.wanted) plan.want(volume);
  return plan.result();
}

class Planner {
  readonly #view: AttachmentsView;
  readonly #wanted: ReadonlyMap<string, WantedVolume>;
  readonly #known: ReadonlySet<string>;
  readonly #attach: WantedVolume[] = [];
  readonly #detach: { attachment: KnownAttachment; isForced: boolean }[] = [];
  readonly #blocked: DriverVolume[] = [];
  readonly #attached: AttachedVolume[] = [];
  readonly #events: PodEvent[] = [];
  readonly #unwantedSince = new Map<string, number>();
  readonly #askedSince = new Map<string, number>();
  readonly #reported = new Set<string>();
  #again = Number.POSITIVE_INFINITY;

  constructor(view: AttachmentsView) {
    this.#view = view;
    this.#wanted = new Map(view.wanted.map((each) => [each.id, each]));
    this.#known = new Set(view.known.map(({ id }) => id));
  }

  /** An attachment that is there: in use, waited for, or to be detached. */
  follow(attachment: KnownAttachment): void {
    const { id, object } = attachment;
    const isEnding = object.metadata.deletionTimestamp !== undefined;
    const isAttached = object.status?.attached === true && !isEnding;
    const wanted = this.#wanted.get(id);
    if (wanted !== undefined) {
      if (isAttached) this.#showAttached(attachment, wanted);
      else if (!isEnding) this.#await(attachment, wanted);
      return;
    }
    const since = this.#view.memory.unwantedSince.get(id) ?? this.#view.nowMs;
    this.#unwantedSince.set(id, since);
    if (isEnding) return;
    const { isInUse, isForced } = this.#useOf(id, since);
    if (!isInUse || isForced) this.#detach.push({ attachment, isForced });
    else if (isAttached) this.#attached.push({ name: id, devicePath: "" });
  }

  /** A node that is gone cannot say that it has unmounted the volume. */
  #useOf(id: string, since: number): { readonly isInUse: boolean; readonly isForced: boolean } {
    const { node, nowMs } = this.#view;
    const isInUse = node === undefined || node.volumesInUse.includes(id);
    const isTimedOut = nowMs - since >= FORCE_AFTER;
    const isForced = node?.isOutOfService === true || (node?.isReady !== true && isTimedOut);
    if (isInUse && !isTimedOut) this.#wakeIn(since + FORCE_AFTER - nowMs);
    return { isInUse, isForced };
  }

  #showAttached({ id, object }: KnownAttachment, wanted: WantedVolume): void {
    this.#attached.push({ name: id, devicePath: "" });
    const wasShown = this.#view.node?.volumesAttached.some(({ name }) => name === id) === true;
    const message = `AttachVolume.Attach succeeded for volume ${JSON.stringify(wanted.volume)} `;
    this.#once(`attached ${object.metadata.uid}`, () => {
      if (!wasShown) this.#recordEvent(wanted.pods, "Normal", "SuccessfulAttachVolume", message);
    });
  }

  #await({ object, driver, handle }: KnownAttachment, wanted: WantedVolume): void {
    const { uid = "" } = object.metadata;
    const { attachError } = object.status ?? {};
    const fail = (why: string): void =>
      this.#recordEvent(
        wanted.pods,
        "Warning",
        "FailedAttachVolume",
        `AttachVolume.Attach failed for volume ${JSON.stringify(wanted.volume)} : ${why}`,
      );
    if (attachError !== undefined) {
      const { time = "", message = "" } = attachError;
      this.#once(`error ${uid} ${time} ${message}`, () => fail(message));
    }
    const since = this.#view.memory.askedSince.get(uid) ?? this.#view.nowMs;
    const isLate = this.#view.nowMs - since >= ATTACH_TIMEOUT;
    if (isLate && attachError === undefined)
      fail(`timed out waiting for external-attacher of ${driver} CSI driver to attach volume ${handle}`);
    const counted = isLate ? this.#view.nowMs : since;
    this.#askedSince.set(uid, counted);
    this.#wakeIn(counted + ATTACH_TIMEOUT - this.#view.nowMs);
  }

  /** A volume that has no attachment on this node is attached, unless another node has it to itself. */
  want(volume: WantedVolume): void {
    if (this.#view.node === undefined || this.#known.has(volume.id)) return;
    const users = volume.isShared ? undefined : this.#view.usersElsewhere(volume);
    if (users === undefined) this.#attach.push(volume);
    else this.#refuse(volume, users);
  }

  /** Pods of other namespaces are counted, not named. */
  #refuse(volume: WantedVolume, users: readonly KubeObject[]): void {
    this.#blocked.push(volume);
    for (const pod of volume.pods) {
      const local = users.filter(({ metadata }) => metadata.namespace === pod.metadata.namespace);
      const others = `${users.length - local.length} pod(s) in different namespaces`;
      const names = local.map(({ metadata }) => metadata.name).join(", ");
      const used =
        local.length === 0
          ? `Volume is already used by ${others}`
          : `Volume is already used by pod(s) ${names}${users.length > local.length ? ` and ${others}` : ""}`;
      const why =
        users.length === 0
          ? "Volume is already exclusively attached to one node and can't be attached to another"
          : used;
      this.#once(`multi-attach ${volume.id} ${pod.metadata.uid}`, () =>
        this.#recordEvent(
          [pod],
          "Warning",
          "FailedAttachVolume",
          `Multi-Attach error for volume ${JSON.stringify(volume.volume)} ${why}`,
        ),
      );
    }
  }

  result(): AttachmentsPlan {
    const others = (this.#view.node?.volumesAttached ?? []).filter(
      ({ name }) => parseAttachedVolumeName(name) === undefined,
    );
    return {
      attach: this.#attach,
      detach: this.#detach,
      blocked: this.#blocked,
      volumesAttached: [...others, ...this.#attached].sort((a, b) => (a.name < b.name ? -1 : 1)),
      events: this.#events,
      memory: { unwantedSince: this.#unwantedSince, askedSince: this.#askedSince, reported: this.#reported },
      again: this.#again === Number.POSITIVE_INFINITY ? undefined : millis(this.#again),
    };
  }

  #once(key: string, report: () => void): void {
    if (!this.#view.memory.reported.has(key)) report();
    this.#reported.add(key);
  }

  #recordEvent(pods: readonly KubeObject[], type: ObjectEvent["type"], reason: string, message: string): void {
    for (const pod of pods) this.#events.push({ pod, event: { type, reason, message, component: COMPONENT } });
  }

  #wakeIn(duration: number): void {
    this.#again = Math.min(this.#again, duration);
  }
}
