import {
  type KubeObject,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { nodeOf, podOf } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { ObjectCache } from "../object-cache.ts";
import { planClaim, planVolume, type VolumeEvent } from "./plan-volumes.ts";
import { claimsOf } from "./pod-claims.ts";
import { type Claim, type ClaimRef, classOf, type StorageClass, type Volume } from "./volume-objects.ts";

const COMPONENT = "persistentvolume-controller";
const BOUND_BY = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED = "pv.kubernetes.io/bind-completed";
const CLAIM_PROTECTION = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION = "kubernetes.io/pv-protection";
const CLAIM = "claim:";
const VOLUME = "volume:";

export interface VolumeCaches {
  readonly claims: ObjectCache;
  readonly volumes: ObjectCache;
  readonly classes: ObjectCache;
  readonly nodes: ObjectCache;
  readonly pods: ObjectCache;
}

/**
 * Binds claims to existing volumes, and keeps the phases of both. Nothing is provisioned, nothing deleted: a volume
 * whose claim is gone stays Released. A volume or claim in use is protected.
 */
export class VolumeBinder extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: VolumeCaches;
  readonly #events: EventRecorder;

  constructor({
    caches,
    events,
    ...ports
  }: ControllerPorts & { readonly caches: VolumeCaches; readonly events: EventRecorder }) {
    super(ports, { name: "volume binder", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    this.#events = events;
    const { claims, volumes, classes, pods } = caches;
    claims.onChange(({ key, before, after }) => {
      this.loop.add(`${CLAIM}${key}`);
      for (const claim of [before, after] as readonly (Claim | undefined)[]) {
        const name = claim?.spec?.volumeName ?? "";
        if (name !== "") this.loop.add(`${VOLUME}${name}`);
      }
      if (before?.metadata.uid !== after?.metadata.uid) this.#eachVolumeOf(key);
    });
    volumes.onChange(({ key }) => {
      this.loop.add(`${VOLUME}${key}`);
      this.#pendingClaims();
    });
    classes.onChange(() => this.#pendingClaims());
    pods.onChange(({ before, after }) => {
      if (after !== undefined && after.metadata.uid === before?.metadata.uid) return;
      const pod = before ?? after;
      if (pod === undefined) return;
      for (const name of claimsOf(podOf(pod))) this.loop.add(`${CLAIM}${keyOf(pod.metadata.namespace, name)}`);
    });
  }

  protected async reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined> {
    if (key.startsWith(CLAIM)) {
      const claim = this.#caches.claims.get(key.slice(CLAIM.length)) as Claim | undefined;
      if (claim !== undefined) await this.#reconcileClaim(claim, signal);
    } else {
      const volume = this.#caches.volumes.get(key.slice(VOLUME.length)) as Volume | undefined;
      if (volume !== undefined) await this.#reconcileVolume(volume, signal);
    }
    return undefined;
  }

  #pendingClaims(): void {
    for (const key of this.#caches.claims.keys()) {
      if ((this.#caches.claims.get(key) as Claim).status?.phase !== "Bound") this.loop.add(`${CLAIM}${key}`);
    }
  }

  #eachVolumeOf(claim: string): void {
    for (const volume of this.#caches.volumes.list() as readonly Volume[]) {
      const { namespace, name = "" } = volume.spec?.claimRef ?? {};
      if (name !== "" && keyOf(namespace, name) === claim) this.loop.add(`${VOLUME}${volume.metadata.name}`);
    }
  }

  async #reconcileClaim(claim: Claim, signal: AbortSignal): Promise<void> {
    const { claims: _, volumes, classes, nodes } = this.#caches;
    if (claim.metadata.deletionTimestamp !== undefined) {
      if (!this.#isUsed(claim)) await this.#unprotect(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_PROTECTION, signal);
      return;
    }
    const plan = planClaim({
      claim,
      volumes: volumes.list() as readonly Volume[],
      storageClass: classes.get(classOf(claim)) as StorageClass | undefined,
      node: (name) => {
        const found = nodes.get(name);
        return found === undefined ? undefined : nodeOf(found);
      },
    });
    if (plan.kind === "bind") return await this.#bind(claim, plan.volume, signal);
    if (claim.status?.phase !== plan.phase) await this.#claimStatus(claim, { phase: plan.phase }, signal);
    this.#recordEvent(claim, plan.event);
  }

  #isUsed({ metadata }: Claim): boolean {
    const pods = this.#caches.pods.list("namespace", metadata.namespace ?? "").map(podOf);
    return pods.some((pod) => (pod.spec.nodeName ?? "") !== "" && claimsOf(pod).includes(metadata.name));
  }

  /** Each step is seen in the caches before the next is repeated; one that fails is done again from there. */
  async #bind(claim: Claim, volume: Volume, signal: AbortSignal): Promise<void> {
    const { client } = this.#ports;
    const { name, namespace = "", uid = "", resourceVersion } = claim.metadata;
    const ref: ClaimRef | undefined = volume.spec?.claimRef;
    if (ref?.uid !== uid) {
      const claimRef = { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace, name, uid, resourceVersion };
      const metadata = {
        resourceVersion: volume.metadata.resourceVersion,
        ...(ref === undefined ? { annotations: { [BOUND_BY]: "yes" } } : {}),
      };
      const target = { namespace: "", name: volume.metadata.name };
      await client.patch(PERSISTENT_VOLUMES, target, "merge", { metadata, spec: { claimRef } }, {}, signal);
    }
    if (claim.spec?.volumeName !== volume.metadata.name || claim.metadata.annotations?.[BIND_COMPLETED] === undefined) {
      const isChosen = (claim.spec?.volumeName ?? "") === "";
      const annotations = { [BIND_COMPLETED]: "yes", ...(isChosen ? { [BOUND_BY]: "yes" } : {}) };
      const patch = { metadata: { uid, annotations }, spec: { volumeName: volume.metadata.name } };
      await client.patch(PERSISTENT_VOLUME_CLAIMS, { namespace, name }, "merge", patch, {}, signal);
    }
    const { accessModes, capacity } = volume.spec ?? {};
    if (claim.status?.phase !== "Bound") {
      await this.#claimStatus(claim, { phase: "Bound", accessModes, capacity }, signal);
    }
  }

  async #claimStatus({ metadata }: Claim, status: object, signal: AbortSignal): Promise<void> {
    const { name, namespace = "", uid } = metadata;
    const patch = { metadata: { uid }, status };
    const options = { subresource: "status" };
    await this.#ports.client.patch(PERSISTENT_VOLUME_CLAIMS, { namespace, name }, "merge", patch, options, signal);
  }

  async #reconcileVolume(volume: Volume, signal: AbortSignal): Promise<void> {
    const { name, deletionTimestamp, uid } = volume.metadata;
    const ref = { namespace: "", name };
    const plan = planVolume(volume, await this.#claimOf(volume, signal));
    if (deletionTimestamp !== undefined && (plan.kind === "free" || plan.phase !== "Bound")) {
      await this.#unprotect(PERSISTENT_VOLUMES, volume, VOLUME_PROTECTION, signal);
      return;
    }
    const { client } = this.#ports;
    if (plan.kind === "free") {
      // A volume that was set aside by hand returns to that state: for that claim, with any UID.
      const isOurs = volume.metadata.annotations?.[BOUND_BY] !== undefined;
      const claimRef = isOurs ? null : { ...volume.spec?.claimRef, uid: null };
      const metadata = { uid, ...(isOurs ? { annotations: { [BOUND_BY]: null } } : {}) };
      await client.patch(PERSISTENT_VOLUMES, ref, "merge", { metadata, spec: { claimRef } }, {}, signal);
      return;
    }
    if (volume.status?.phase === plan.phase) return;
    const status = {
      phase: plan.phase,
      message: plan.event?.message ?? null,
      lastPhaseTransitionTime: kubeTime(this.#ports.clock.wall()),
    };
    const patch = { metadata: { uid }, status };
    await client.patch(PERSISTENT_VOLUMES, ref, "merge", patch, { subresource: "status" }, signal);
    this.#recordEvent(volume, plan.event);
  }

  /** The claim that a volume is set aside for. The cache may not have seen yet what a user wrote by hand. */
  async #claimOf(volume: Volume, signal: AbortSignal): Promise<Claim | undefined> {
    const { namespace = "", name = "", uid = "" } = volume.spec?.claimRef ?? {};
    if (uid === "") return undefined;
    const known = this.#caches.claims.find(namespace, name) as Claim | undefined;
    if (known?.metadata.uid === uid) return known;
    try {
      const found = await this.#ports.client.get(PERSISTENT_VOLUME_CLAIMS, { namespace, name }, signal);
      return found.metadata.uid === uid ? (found as Claim) : undefined;
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }

  async #unprotect(
    type: typeof PERSISTENT_VOLUMES,
    { metadata }: KubeObject,
    finalizer: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { name, namespace = "", uid, resourceVersion, finalizers = [] } = metadata;
    if (!finalizers.includes(finalizer)) return;
    const left = finalizers.filter((each) => each !== finalizer);
    const patch = { metadata: { uid, resourceVersion, finalizers: left } };
    await this.#ports.client.patch(type, { namespace, name }, "merge", patch, {}, signal);
  }

  #recordEvent(object: KubeObject, event: VolumeEvent | undefined): void {
    if (event === undefined) return;

    this.#events.record(object, { ...event, component: COMPONENT });
  }
}
