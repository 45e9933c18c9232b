import { type KubeObject, PERSISTENT_VOLUME_CLAIMS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { controllerOf, podOf } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { ObjectCache } from "../object-cache.ts";
import { ephemeralClaimName, volumesOf } from "./pod-claims.ts";

const COMPONENT = "ephemeral_volume";

interface ClaimTemplate {
  readonly metadata?: {
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec?: object;
}

export interface EphemeralClaimCaches {
  readonly pods: ObjectCache;
  readonly claims: ObjectCache;
}

/** Makes the claims of generic ephemeral volumes. They belong to their pod and go with it. */
export class EphemeralClaims extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: EphemeralClaimCaches;
  readonly #events: EventRecorder;

  constructor({
    caches,
    events,
    ...ports
  }: ControllerPorts & { readonly caches: EphemeralClaimCaches; readonly events: EventRecorder }) {
    super(ports, { name: "ephemeral volume controller", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    this.#events = events;
    caches.pods.onChange(({ key, after }) => {
      if (after !== undefined && ephemeralVolumes(podOf(after)).length > 0) this.loop.add(key);
    });
    caches.claims.onChange(({ before, after }) => {
      const owner = after === undefined && before !== undefined ? controllerOf(before.metadata) : undefined;
      if (owner?.kind === "Pod") this.loop.add(`${before?.metadata.namespace}/${owner.name}`);
    });
  }

  protected async reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined> {
    const object = this.#caches.pods.get(key);
    if (object === undefined || object.metadata.deletionTimestamp !== undefined) return undefined;
    const pod = podOf(object);
    for (const { name, ephemeral } of ephemeralVolumes(pod)) {
      const template = (ephemeral?.volumeClaimTemplate ?? {}) as ClaimTemplate;
      await this.#ensure(object, ephemeralClaimName(pod, name), template, signal);
    }
    return undefined;
  }

  async #ensure(pod: KubeObject, name: string, template: ClaimTemplate, signal: AbortSignal): Promise<void> {
    const { namespace = "", uid = "" } = pod.metadata;
    const existing = this.#caches.claims.find(namespace, name);
    if (existing !== undefined) {
      if (controllerOf(existing.metadata)?.uid === uid) return;
      const message = `ephemeral volume PVC ${namespace}/${name}: PVC was not created for the pod (pod is not owner)`;
      this.#events.record(pod, { type: "Warning", reason: "FailedBinding", message, component: COMPONENT });
      return;
    }
    const { labels, annotations } = template.metadata ?? {};
    const owner = {
      apiVersion: "v1",
      kind: "Pod",
      name: pod.metadata.name,
      uid,
      controller: true,
      blockOwnerDeletion: true,
    };
    const metadata = { namespace, name, labels, annotations, ownerReferences: [owner] };
    const claim = { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata, spec: template.spec ?? {} };
    try {
      await this.#ports.client.create(PERSISTENT_VOLUME_CLAIMS, { namespace, name }, claim, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "already_exists")) throw error;
    }
  }
}

const ephemeralVolumes = (pod: Pod) => volumesOf(pod).filter(({ ephemeral }) => ephemeral !== undefined);
