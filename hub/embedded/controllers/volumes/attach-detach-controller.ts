import { type KubeObject, NODES, VOLUME_ATTACHMENTS } from "@picolet/hub-core/kube-client/kube-client.ts";
import {
  attachedVolumeName,
  attachmentName,
  CONTROLLER_ATTACHES,
  parseAttachedVolumeName,
} from "@picolet/hub-core/volume-attachments.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import { conditionOf, type NodeObject, nodeOf, podOf } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { ObjectCache } from "../object-cache.ts";
import { type DriverVolume, driverVolume, driverVolumesOf, hasReleased } from "./attachable-volumes.ts";
import {
  type AttachedVolume,
  type Attachment,
  type AttachmentsPlan,
  type KnownAttachment,
  NO_MEMORY,
  type NodeMemory,
  planAttachments,
  type WantedVolume,
} from "./plan-attachments.ts";
import { claimsOf } from "./pod-claims.ts";
import type { Claim, Volume } from "./volume-objects.ts";

const OUT_OF_SERVICE = "node.kubernetes.io/out-of-service";
/** Bounds how long an attachment that was made counts without being in the cache, should a watch miss it. */
const MADE_FOR = seconds(60);
/** The cache shows within milliseconds what the API server has; a watch that broke off is back within a second. */
const CACHE_DELAY = seconds(1);

export interface AttachDetachCaches {
  readonly pods: ObjectCache;
  readonly nodes: ObjectCache;
  readonly claims: ObjectCache;
  /** With the index `disk`. */
  readonly volumes: ObjectCache;
  readonly drivers: ObjectCache;
  /** With the indexes `node` and `volume`. */
  readonly attachments: ObjectCache;
}

/** An attachment that was created, until the cache shows it. */
interface Made {
  readonly node: string;
  /** `DriverVolume.id`. */
  readonly disk: string;
  readonly untilMs: number;
}

/**
 * Attaches volumes of CSI drivers with `attachRequired` to the nodes of their pods: it makes the VolumeAttachment that
 * the driver's attacher carries out, shows attached volumes in the Node's `volumesAttached`, and deletes the
 * VolumeAttachment when no pod of the node needs the volume and the node no longer has it in use. Keys are nodes.
 */
export class AttachDetachController extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: AttachDetachCaches;
  readonly #events: EventRecorder;
  readonly #memory = new Map<string, NodeMemory>();
  /** By the attachment's name. */
  readonly #made = new Map<string, Made>();
  /** Nodes that wait for a disk, by `DriverVolume.id`. */
  readonly #blocked = new Map<string, Set<string>>();

  constructor({
    caches,
    events,
    ...ports
  }: ControllerPorts & { readonly caches: AttachDetachCaches; readonly events: EventRecorder }) {
    super(ports, { name: "attach/detach controller", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    this.#events = events;
    const { pods, nodes, claims, volumes, drivers, attachments } = caches;
    pods.onChange(({ before, after }) => {
      for (const pod of [before, after]) if (pod !== undefined) this.#addNodeOf(pod);
    });
    nodes.onChange(({ key, before, after }) => {
      if (before === undefined || after === undefined || decides(before) !== decides(after)) this.loop.add(key);
    });
    claims.onChange(({ before, after }) => this.#addUsersOf((after ?? before) as Claim | undefined));
    volumes.onChange(({ before, after }) => {
      const { namespace = "", name = "" } = ((after ?? before) as Volume | undefined)?.spec?.claimRef ?? {};
      this.#addUsersOf(claims.find(namespace, name) as Claim | undefined);
    });
    drivers.onChange(() => {
      for (const node of nodes.keys()) this.loop.add(node);
    });
    attachments.onChange(({ key, before, after }) => {
      this.#made.delete(key);
      const { nodeName = "", source } = ((after ?? before) as Attachment | undefined)?.spec ?? {};
      if (nodeName !== "") this.loop.add(nodeName);
      if (after === undefined) this.#unblock(source?.persistentVolumeName ?? "");
    });
  }

  #addNodeOf(object: KubeObject): void {
    const pod = podOf(object);
    const { nodeName = "" } = pod.spec;
    if (nodeName !== "" && claimsOf(pod).length > 0) this.loop.add(nodeName);
  }

  #addUsersOf(claim: Claim | undefined): void {
    if (claim === undefined) return;
    const { namespace = "", name } = claim.metadata;
    for (const object of this.#caches.pods.list("namespace", namespace))
      if (claimsOf(podOf(object)).includes(name)) this.#addNodeOf(object);
  }

  /** @param volume the name of the PersistentVolume; without its object all waiting nodes are planned again */
  #unblock(volume: string): void {
    const disk = driverVolume(this.#caches.volumes.get(volume))?.id;
    for (const each of disk === undefined ? [...this.#blocked.keys()] : [disk]) {
      for (const node of this.#blocked.get(each) ?? []) this.loop.add(node);
      this.#blocked.delete(each);
    }
  }

  protected async reconcile(name: string, signal: AbortSignal): Promise<Millis | undefined> {
    const plan = this.#plan(name);
    const { memory, events, blocked, again } = plan;
    const isEmpty = memory.unwantedSince.size + memory.askedSince.size + memory.reported.size === 0;
    if (isEmpty) this.#memory.delete(name);
    else this.#memory.set(name, memory);
    for (const { pod, event } of events) this.#events.record(pod, event);
    for (const { id } of blocked) this.#blocked.set(id, (this.#blocked.get(id) ?? new Set()).add(name));
    for (const volume of plan.attach) await this.#attach(name, volume, signal);
    await this.#show(name, plan.volumesAttached, signal);
    let next = blocked.length === 0 ? again : Math.min(again ?? MADE_FOR, MADE_FOR);
    for (const each of plan.detach) {
      if (!(await this.#detach(name, each, signal))) next = Math.min(next ?? CACHE_DELAY, CACHE_DELAY);
    }
    return next === undefined ? undefined : millis(next);
  }

  #plan(name: string): AttachmentsPlan {
    const node = this.#nodeOf(name);
    const wanted = this.#wantedOn(name);
    return planAttachments({
      wanted,
      known: this.#knownOn(name, wanted),
      node: node?.metadata.annotations?.[CONTROLLER_ATTACHES] === undefined ? undefined : stateOf(node),
      usersElsewhere: (volume) => this.#usersElsewhere(name, volume),
      memory: this.#memory.get(name) ?? NO_MEMORY,
      nowMs: this.#ports.clock.monotonic(),
    });
  }

  #nodeOf(name: string): NodeObject | undefined {
    const object = this.#caches.nodes.get(name);
    return object === undefined ? undefined : nodeOf(object);
  }

  /** One for each disk: two persistent volumes may name the same. */
  #wantedOn(node: string): readonly WantedVolume[] {
    const wanted = new Map<string, DriverVolume & { readonly pods: KubeObject[] }>();
    for (const object of this.#caches.pods.list("node", node)) {
      const pod = podOf(object);
      if (claimsOf(pod).length === 0 || hasReleased(pod)) continue;
      for (const volume of driverVolumesOf(pod, this.#caches)) {
        if (!this.#isAttachable(volume)) continue;
        const known = wanted.get(volume.id);
        if (known === undefined) wanted.set(volume.id, { ...volume, pods: [object] });
        else if (!known.pods.includes(object)) known.pods.push(object);
      }
    }
    return [...wanted.values()];
  }

  /** Without its CSIDriver a driver must be attached, as in Kubernetes. */
  #isAttachable({ driver }: DriverVolume): boolean {
    const spec = this.#caches.drivers.get(driver)?.spec as { readonly attachRequired?: boolean } | undefined;
    return spec?.attachRequired !== false;
  }

  /** Attachments of other names were made by other controllers, which remove them. */
  #knownOn(name: string, wanted: readonly WantedVolume[]): readonly KnownAttachment[] {
    const node = this.#nodeOf(name);
    const { volumesAttached, volumesInUse } = stateOf(node);
    // The node still knows a volume whose object is gone.
    const reported = [...volumesAttached.map((each) => each.name), ...volumesInUse].flatMap(
      (each) => parseAttachedVolumeName(each) ?? [],
    );
    return (this.#caches.attachments.list("node", name) as readonly Attachment[]).flatMap((object) => {
      const volume = object.spec?.source?.persistentVolumeName ?? "";
      const own = driverVolume(this.#caches.volumes.get(volume));
      const found = [...(own === undefined ? [] : [own]), ...wanted, ...reported].find(
        ({ driver, handle }) => attachmentName(driver, handle, name) === object.metadata.name,
      );
      if (found === undefined) return [];
      const { driver, handle } = found;
      return { id: attachedVolumeName(driver, handle), driver, handle, object };
    });
  }

  /** Two persistent volumes may name the same disk. */
  #usersElsewhere(name: string, { id }: DriverVolume): readonly KubeObject[] | undefined {
    const { attachments, volumes } = this.#caches;
    const attached = volumes
      .list("disk", id)
      .flatMap(({ metadata }) => attachments.list("volume", metadata.name) as readonly Attachment[]);
    const made = [...this.#made.values()].filter(
      ({ disk, untilMs }) => disk === id && untilMs > this.#ports.clock.monotonic(),
    );
    const nodes = new Set([...attached.map(({ spec }) => spec?.nodeName ?? ""), ...made.map(({ node }) => node)]);
    nodes.delete(name);
    if (nodes.size === 0) return undefined;
    return [...nodes].flatMap((node) => this.#wantedOn(node).find((each) => each.id === id)?.pods ?? []);
  }

  async #attach(node: string, { id: disk, driver, handle, volume }: WantedVolume, signal: AbortSignal): Promise<void> {
    const name = attachmentName(driver, handle, node);
    this.#made.set(name, { node, disk, untilMs: this.#ports.clock.monotonic() + MADE_FOR });
    const attachment = {
      apiVersion: "storage.k8s.io/v1",
      kind: "VolumeAttachment",
      metadata: { name },
      spec: { attacher: driver, nodeName: node, source: { persistentVolumeName: volume } },
    };
    try {
      await this.#ports.client.create(VOLUME_ATTACHMENTS, { namespace: "", name }, attachment, {}, signal);
    } catch (error) {
      if (isPicoletError(error, "already_exists")) return;
      this.#made.delete(name);
      throw error;
    }
  }

  async #show(name: string, volumesAttached: readonly AttachedVolume[], signal: AbortSignal): Promise<void> {
    const node = this.#nodeOf(name);
    if (node === undefined || JSON.stringify(stateOf(node).volumesAttached) === JSON.stringify(volumesAttached)) return;
    const status = { volumesAttached: volumesAttached.length === 0 ? null : volumesAttached };
    const patch = { metadata: { uid: node.metadata.uid }, status };
    const options = { subresource: "status" };
    try {
      await this.#ports.client.patch(NODES, { namespace: "", name }, "merge", patch, options, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }

  /**
   * The Node no longer shows the volume as attached, so a node that has not used it so far does not begin now.
   * @returns false when the node has the volume in use, which the cache does not show yet
   */
  async #detach(
    name: string,
    { attachment: { id, object }, isForced }: AttachmentsPlan["detach"][number],
    signal: AbortSignal,
  ): Promise<boolean> {
    if (!isForced && (await this.#usesNow(name, id, signal))) return false;
    const { name: attachment, uid = "" } = object.metadata;
    try {
      await this.#ports.client.delete(VOLUME_ATTACHMENTS, { namespace: "", name: attachment }, { uid }, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
    return true;
  }

  /** Asks the API server, because the cache may be behind. */
  async #usesNow(name: string, id: string, signal: AbortSignal): Promise<boolean> {
    try {
      const node = await this.#ports.client.get(NODES, { namespace: "", name }, signal);
      return stateOf(nodeOf(node)).volumesInUse.includes(id);
    } catch (error) {
      if (isPicoletError(error, "not_found")) return false;
      throw error;
    }
  }
}

interface NodeState {
  readonly volumesAttached: readonly AttachedVolume[];
  readonly volumesInUse: readonly string[];
  readonly isReady: boolean;
  readonly isOutOfService: boolean;
}

function stateOf(node: NodeObject | undefined): NodeState {
  const { volumesAttached, volumesInUse, conditions } = (node?.status ?? {}) as Partial<NodeState> &
    NonNullable<NodeObject["status"]>;
  return {
    // A node writes its own status, and may leave the name out.
    volumesAttached: (volumesAttached ?? []).filter(({ name }) => name !== undefined),
    volumesInUse: volumesInUse ?? [],
    isReady: conditionOf(conditions, "Ready")?.status === "True",
    isOutOfService: (node?.spec?.taints ?? []).some(({ key }) => key === OUT_OF_SERVICE),
  };
}

/** Fields of a Node that the plan depends on. Heartbeats are excluded. */
const decides = (object: KubeObject): string =>
  JSON.stringify([stateOf(nodeOf(object)), object.metadata.annotations?.[CONTROLLER_ATTACHES], object.metadata.uid]);
